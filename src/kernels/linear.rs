//! Linear layers over weights as stored.

use super::{
    Exec, Format,
    dot::{dot, two_dots},
    simd::{Kernel, Lanes, dispatch},
    unpack::unpack,
};

/// Outputs whose weights are unpacked together, so that a row's activations are loaded once for all
/// of them.
const BLOCK: usize = 4;

/// Outputs of one parallel task.
const TASK: usize = 32;

/// A weight matrix `[outputs, width]` in its storage format.
#[derive(Clone, Debug)]
pub struct Weight {
    format: Format,
    outputs: usize,
    width: usize,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Floats(Vec<f32>),
    Packed { bytes: Vec<u8>, row: usize },
}

/// Bytes that are no matrix of the given shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
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
    /// If the width is no whole number of blocks, or the bytes are not exactly the matrix.
    pub fn new(
        format: Format,
        outputs: usize,
        width: usize,
        bytes: Vec<u8>,
    ) -> Result<Self, WeightError> {
        let row = format.row_bytes(width).ok_or(WeightError::Block {
            format,
            width,
            block: format.block().0,
        })?;
        if row == 0 || row.checked_mul(outputs) != Some(bytes.len()) {
            return Err(WeightError::Size {
                format,
                outputs,
                width,
                bytes: bytes.len(),
            });
        }
        let data = if format == Format::F32 {
            let (values, _) = bytes.as_chunks();
            Data::Floats(values.iter().map(|b| f32::from_le_bytes(*b)).collect())
        } else {
            Data::Packed { bytes, row }
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
        match &self.data {
            Data::Floats(values) => values.len() * size_of::<f32>(),
            Data::Packed { bytes, .. } => bytes.len(),
        }
    }

    /// Row `output` as floats.
    pub fn unpack_row(&self, output: usize, out: &mut [f32]) {
        match &self.data {
            Data::Floats(values) => {
                out.copy_from_slice(&values[output * self.width..][..self.width]);
            }
            Data::Packed { bytes, row } => {
                unpack(self.format, &bytes[output * row..][..*row], out);
            }
        }
    }

    /// `y[r][j] = x[r] . w[j]`: `x` is `[rows, width]`, `y` is `[rows, outputs]`.
    ///
    /// # Panics
    /// If the slices are not whole rows.
    pub fn apply(&self, x: &[f32], y: &mut [f32], exec: Exec) {
        let rows = x.len() / self.width;
        assert!(
            x.len() == rows * self.width && y.len() == rows * self.outputs,
            "{} and {} values are no rows of {} and {}",
            x.len(),
            y.len(),
            self.width,
            self.outputs
        );
        // Unpacking costs about as much as one more row.
        let work = (rows + 1) * self.outputs * self.width;
        if !exec.parallel(work) || rows == 0 {
            dispatch(Tile {
                weight: self,
                first: 0,
                outputs: self.outputs,
                x,
                y,
                strides: (1, self.outputs),
            });
            return;
        }
        // By outputs first, so that each task owns its part.
        let tasks = |y: &mut [f32]| {
            exec.chunks(y, TASK * rows, work, |task, part| {
                dispatch(Tile {
                    weight: self,
                    first: task * TASK,
                    outputs: part.len() / rows,
                    x,
                    y: part,
                    strides: (rows, 1),
                });
            });
        };
        if rows == 1 {
            tasks(y);
            return;
        }
        let mut turned = vec![0.0; y.len()];
        tasks(&mut turned);
        for (r, row) in y.chunks_exact_mut(self.outputs).enumerate() {
            for (y, column) in row.iter_mut().zip(turned.chunks_exact(rows)) {
                *y = column[r];
            }
        }
    }
}

/// Some outputs of all rows. Output `first + j` of row `r` goes to `y[j * strides.0 + r * strides.1]`.
#[derive(Debug)]
pub(super) struct Tile<'a> {
    pub(super) weight: &'a Weight,
    pub(super) first: usize,
    pub(super) outputs: usize,
    pub(super) x: &'a [f32],
    pub(super) y: &'a mut [f32],
    pub(super) strides: (usize, usize),
}

impl Kernel for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let Self { weight, first, .. } = self;
        let width = weight.width;
        let (by_output, by_row) = self.strides;
        let mut scratch = match weight.data {
            Data::Floats(_) => Vec::new(),
            Data::Packed { .. } => vec![0.0; BLOCK * width],
        };
        for block in (0..self.outputs).step_by(BLOCK) {
            let outputs = BLOCK.min(self.outputs - block);
            let at = first + block;
            let w = match &weight.data {
                Data::Floats(values) => &values[at * width..(at + outputs) * width],
                Data::Packed { bytes, row } => {
                    let bytes = &bytes[at * row..(at + outputs) * row];
                    unpack(weight.format, bytes, &mut scratch[..outputs * width]);
                    &scratch[..outputs * width]
                }
            };
            let mut pairs = self.x.chunks_exact(2 * width);
            for (pair, x) in pairs.by_ref().enumerate() {
                let (a, b) = x.split_at(width);
                for (j, w) in w.chunks_exact(width).enumerate() {
                    let to = (block + j) * by_output + 2 * pair * by_row;
                    [self.y[to], self.y[to + by_row]] = two_dots(simd, w, a, b);
                }
            }
            let last = pairs.remainder();
            if !last.is_empty() {
                let row = self.x.len() / width - 1;
                for (j, w) in w.chunks_exact(width).enumerate() {
                    self.y[(block + j) * by_output + row * by_row] = dot(simd, w, last);
                }
            }
        }
    }
}
