//! Linear layers over weights as stored.

use super::{
    Exec, Format,
    exec::share_out,
    panel::{
        Bf16, F16, F32, HALF, Half, Inputs, PANEL, Pack, Panel, Q4K, Q6K, Q40, Q41, Q80, Rounded,
        drive, pack, value,
    },
    simd::Isa,
    unpack::unpack,
};

/// A weight matrix `[outputs, width]` in its storage format, packed thirty-two outputs wide.
#[derive(Clone, Debug)]
pub struct Weight {
    format: Format,
    outputs: usize,
    width: usize,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    F32(Vec<Panel<F32>>),
    F16(Vec<Panel<F16>>),
    Bf16(Vec<Panel<Bf16>>),
    Q40(Vec<Panel<Q40>>),
    Q41(Vec<Panel<Q41>>),
    Q80(Vec<Panel<Q80>>),
    Q4K(Vec<Panel<Q4K>>),
    Q6K(Vec<Panel<Q6K>>),
    /// Unpacked to floats whenever it is read.
    Stored {
        bytes: Vec<u8>,
        row: usize,
    },
}

/// Does `$do` with the panels of `$data`, else with its bytes.
macro_rules! panels {
    ($data:expr, $panels:ident => $do:expr, ($bytes:ident, $row:ident) => $other:expr) => {
        match $data {
            Data::F32($panels) => $do,
            Data::F16($panels) => $do,
            Data::Bf16($panels) => $do,
            Data::Q40($panels) => $do,
            Data::Q41($panels) => $do,
            Data::Q80($panels) => $do,
            Data::Q4K($panels) => $do,
            Data::Q6K($panels) => $do,
            Data::Stored {
                bytes: $bytes,
                row: $row,
            } => $other,
        }
    };
}

/// Bytes that are no matrix of the given shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// No rows, or rows of nothing.
    #[error("{outputs} rows of {width} values are no matrix; accepted is at least 1 of each")]
    Empty {
        /// Rows.
        outputs: usize,
        /// Values in a row.
        width: usize,
    },
    /// A row would end inside a block.
    #[error("rows of {width} values are no whole blocks of {format} ({block} values each)")]
    Block {
        /// The storage format.
        format: Format,
        /// Values in a row.
        width: usize,
        /// Values in a block.
        block: usize,
    },
    /// Too few or too many bytes.
    #[error("{bytes} bytes cannot hold {outputs} rows of {width} values in {format}")]
    Size {
        /// The storage format.
        format: Format,
        /// Rows.
        outputs: usize,
        /// Values in a row.
        width: usize,
        /// Bytes given.
        bytes: usize,
    },
}

impl Weight {
    /// Wraps `bytes` (row after row, little-endian) as `[outputs, width]` values in `format`.
    ///
    /// # Errors
    /// If there is no row or no column, the width is no whole number of blocks, or the bytes are not
    /// exactly the matrix.
    pub fn new(
        format: Format,
        outputs: usize,
        width: usize,
        bytes: Vec<u8>,
    ) -> Result<Self, WeightError> {
        if outputs == 0 || width == 0 {
            return Err(WeightError::Empty { outputs, width });
        }
        let row = format.row_bytes(width).ok_or(WeightError::Block {
            format,
            width,
            block: format.block().0,
        })?;
        if row.checked_mul(outputs) != Some(bytes.len()) {
            return Err(WeightError::Size {
                format,
                outputs,
                width,
                bytes: bytes.len(),
            });
        }
        let data = match format {
            Format::F32 => Data::F32(pack(&bytes, outputs)),
            Format::F16 => Data::F16(pack(&bytes, outputs)),
            Format::BF16 => Data::Bf16(pack(&bytes, outputs)),
            Format::Q4_0 => Data::Q40(pack(&bytes, outputs)),
            Format::Q4_1 => Data::Q41(pack(&bytes, outputs)),
            Format::Q8_0 => Data::Q80(pack(&bytes, outputs)),
            Format::Q4K => Data::Q4K(pack(&bytes, outputs)),
            Format::Q6K => Data::Q6K(pack(&bytes, outputs)),
            _ => Data::Stored { bytes, row },
        };
        Ok(Self {
            format,
            outputs,
            width,
            data,
        })
    }

    /// The storage format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows of the matrix.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Values in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes that a pass reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        panels!(&self.data, panels => size_of_val(&panels[..]), (bytes, _row) => bytes.len())
    }

    /// [`bytes`](Self::bytes) of a matrix of this shape, which packing makes more than those stored in
    /// some formats; `None` if the width is not a whole number of blocks.
    #[must_use]
    pub fn packed_bytes(format: Format, outputs: usize, width: usize) -> Option<usize> {
        fn of<F: Half>(outputs: usize, width: usize) -> Option<usize> {
            let panels = outputs.div_ceil(PANEL) * (width / F::COLUMNS);
            panels.checked_mul(size_of::<Panel<F>>())
        }
        let stored = format.row_bytes(width)?;
        match format {
            Format::F32 => of::<F32>(outputs, width),
            Format::F16 => of::<F16>(outputs, width),
            Format::BF16 => of::<Bf16>(outputs, width),
            Format::Q4_0 => of::<Q40>(outputs, width),
            Format::Q4_1 => of::<Q41>(outputs, width),
            Format::Q8_0 => of::<Q80>(outputs, width),
            Format::Q4K => of::<Q4K>(outputs, width),
            Format::Q6K => of::<Q6K>(outputs, width),
            _ => stored.checked_mul(outputs),
        }
    }

    /// Row `output` as floats.
    pub fn unpack_row(&self, output: usize, out: &mut [f32]) {
        panels!(
            &self.data,
            panels => value(panels, output, out),
            (bytes, row) => unpack(self.format, &bytes[output * row..][..*row], out)
        );
    }

    /// `y[r][j] = x[r] . w[j]`: `x` is `[rows, width]`, `y` is `[rows, outputs]`.
    ///
    /// # Panics
    /// If the slices are not whole rows.
    pub fn apply(&self, x: &[f32], y: &mut [f32], exec: Exec) {
        Self::apply_all([(self, y)], x, exec);
    }

    /// [`apply`](Self::apply) of several matrices of one width to the same rows, in one parallel step.
    ///
    /// # Panics
    /// If the slices are not whole rows.
    pub fn apply_all<const N: usize>(all: [(&Self, &mut [f32]); N], x: &[f32], exec: Exec) {
        let Some(width) = all.first().map(|(weight, _)| weight.width) else {
            return;
        };
        let rows = x.len() / width;
        for (weight, y) in &all {
            assert!(
                x.len() == rows * weight.width && y.len() == rows * weight.outputs,
                "{} and {} values are no rows of {} and {}",
                x.len(),
                y.len(),
                weight.width,
                weight.outputs
            );
        }
        if rows == 0 {
            return;
        }
        let quantised = all.iter().any(|(weight, _)| weight.is_quantised());
        let rounded = if quantised {
            Rounded::new(x)
        } else {
            Rounded::default()
        };
        let inputs = Inputs {
            x,
            rounded: &rounded,
            width,
        };
        let outputs: usize = all.iter().map(|(weight, _)| weight.outputs).sum();
        let threads = exec.threads((rows + 1) * outputs * width);
        let mut left = Left::new(all, inputs, threads);
        let isa = Isa::best();
        share_out(threads, || left.next(), |tile| tile.compute(isa));
    }

    /// Whether activations are rounded for it.
    pub(super) fn is_quantised(&self) -> bool {
        fn of<F: Half>(_: &[Panel<F>]) -> bool {
            F::ROUNDED
        }
        panels!(&self.data, panels => of(panels), (_bytes, _row) => false)
    }
}

/// Outputs that no thread has taken yet, of some matrices.
struct Left<'a, const N: usize> {
    parts: [Tile<'a>; N],
    threads: usize,
}

impl<'a, const N: usize> Left<'a, N> {
    fn new(all: [(&'a Weight, &'a mut [f32]); N], inputs: Inputs<'a>, threads: usize) -> Self {
        let parts = all.map(|(weight, y)| Tile {
            weight,
            first: 0,
            inputs,
            y: y.chunks_exact_mut(weight.outputs).collect(),
        });
        Self { parts, threads }
    }

    /// A thread's share of what is left, of one matrix: ever smaller ones, so that all end together.
    fn next(&mut self) -> Option<Tile<'a>> {
        let left: usize = self.parts.iter().map(Tile::panels).sum();
        let mut parts = self.parts.iter_mut();
        let part = parts.find(|part| part.panels() > 0)?;
        Some(part.split_off(left.div_ceil(self.threads)))
    }
}

/// Some outputs of all rows, panels from `first` on.
#[derive(Debug)]
pub(super) struct Tile<'a> {
    pub(super) weight: &'a Weight,
    pub(super) first: usize,
    pub(super) inputs: Inputs<'a>,
    pub(super) y: Vec<&'a mut [f32]>,
}

impl Tile<'_> {
    /// Panels that it has.
    fn panels(&self) -> usize {
        self.y[0].len().div_ceil(PANEL)
    }

    /// The first `panels` of them, or all, which it loses.
    fn split_off(&mut self, panels: usize) -> Self {
        let outputs = (panels * PANEL).min(self.y[0].len());
        let rows = self.y.iter_mut();
        let y = rows.map(|y| y.split_off_mut(..outputs).expect("as many"));
        let split = Self {
            weight: self.weight,
            first: self.first,
            inputs: self.inputs,
            y: y.collect(),
        };
        self.first += outputs.div_ceil(PANEL);
        split
    }

    pub(super) fn compute(mut self, isa: Isa) {
        panels!(
            &self.weight.data,
            panels => self.packed(isa, panels),
            (bytes, row) => self.stored(isa, bytes, *row)
        );
    }

    fn packed<F: Half>(&mut self, isa: Isa, panels: &[Panel<F>]) {
        let blocks = self.inputs.width / F::COLUMNS;
        // What follows the task's panels is fetched ahead for whoever comes next.
        let panels = &panels[self.first * blocks..];
        drive(isa, panels, self.inputs, &mut self.y);
    }

    /// A panel at a time, as floats.
    fn stored(&mut self, isa: Isa, bytes: &[u8], row: usize) {
        let width = self.inputs.width;
        let mut values = vec![0.0; width];
        let mut panel = vec![[F32::EMPTY; 2]; width];
        for at in (0..self.y[0].len()).step_by(PANEL) {
            let outputs = PANEL.min(self.y[0].len() - at);
            for lane in 0..outputs {
                let output = self.first * PANEL + at + lane;
                unpack(
                    self.weight.format,
                    &bytes[output * row..][..row],
                    &mut values,
                );
                for (panel, value) in panel.iter_mut().zip(&values) {
                    panel[lane / HALF].put(lane % HALF, *value);
                }
            }
            let mut y: Vec<&mut [f32]> = self
                .y
                .iter_mut()
                .map(|row| &mut row[at..at + outputs])
                .collect();
            drive(isa, &panel, self.inputs, &mut y);
        }
    }
}
