//! From rows of GGML blocks to panels, and back.

use super::{
    Bf16, F16, F32, HALF, Half, PANEL, Panel, Q4K, Q6K, Q40, Q41, Q80, ints::Words, q4::Nibbles,
};
use crate::kernels::{
    unpack::half,
    unpack_k::{scale_min_bits, six},
};

/// A block of half a panel that is filled output by output from the blocks of the stored format.
pub(in crate::kernels) trait Pack: Half + Copy {
    /// All zero.
    const EMPTY: Self;
    /// Bytes of a stored block, which has the columns of one of these.
    const BYTES: usize;

    /// Takes the stored block of output `lane`.
    fn set(&mut self, lane: usize, block: &[u8]);

    /// The values of output `lane`, as the stored block's unpacker gives them.
    fn get(&self, lane: usize, out: &mut [f32]);
}

/// Panels of `[outputs, width]` values, whose rows are `bytes` one after another; the last panel is filled
/// up with zeros.
pub(in crate::kernels) fn pack<F: Pack>(bytes: &[u8], outputs: usize) -> Vec<Panel<F>> {
    let row = bytes.len() / outputs;
    let blocks = row / F::BYTES;
    let mut panels = vec![[F::EMPTY; 2]; outputs.div_ceil(PANEL) * blocks];
    for (output, row) in bytes.chunks_exact(row).enumerate() {
        let panel = &mut panels[output / PANEL * blocks..][..blocks];
        let (half, lane) = (output % PANEL / HALF, output % HALF);
        for (to, block) in panel.iter_mut().zip(row.chunks_exact(F::BYTES)) {
            to[half].set(lane, block);
        }
    }
    panels
}

/// The row of `output`.
pub(in crate::kernels) fn value<F: Pack>(panels: &[Panel<F>], output: usize, out: &mut [f32]) {
    let columns = F::COLUMNS;
    let blocks = out.len() / columns;
    let panel = &panels[output / PANEL * blocks..][..blocks];
    let (half, lane) = (output % PANEL / HALF, output % HALF);
    for (block, out) in panel.iter().zip(out.chunks_exact_mut(columns)) {
        block[half].get(lane, out);
    }
}

impl Pack for F32 {
    const EMPTY: Self = Self([0.0; HALF]);
    const BYTES: usize = 4;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.0[lane] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        out[0] = self.0[lane];
    }
}

impl Pack for F16 {
    const EMPTY: Self = Self([0; HALF]);
    const BYTES: usize = 2;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.0[lane] = word(block);
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        out[0] = float(self.0[lane]);
    }
}

impl Pack for Bf16 {
    const EMPTY: Self = Self([0; HALF]);
    const BYTES: usize = 2;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.0[lane] = word(block);
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        out[0] = f32::from_bits(u32::from(self.0[lane]) << 16);
    }
}

impl Pack for Q80 {
    const EMPTY: Self = Self {
        d: [0; HALF],
        q: [[[0; 2]; HALF]; 8],
    };
    const BYTES: usize = 34;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.d[lane] = word(block);
        for (column, byte) in block[2..].iter().enumerate() {
            put_byte(&mut self.q, lane, column, *byte);
        }
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        let d = float(self.d[lane]);
        for (column, o) in out.iter_mut().enumerate() {
            *o = f32::from(byte(&self.q, lane, column)) * d;
        }
    }
}

impl Pack for Q40 {
    const EMPTY: Self = Self {
        d: [0; HALF],
        q: [[[0; 2]; HALF]; 4],
    };
    const BYTES: usize = 18;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.d[lane] = word(block);
        for (column, byte) in block[2..].iter().enumerate() {
            put_nibble(&mut self.q, lane, column, byte & 15);
            put_nibble(&mut self.q, lane, column + 16, byte >> 4);
        }
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        let d = float(self.d[lane]);
        for (column, o) in out.iter_mut().enumerate() {
            *o = (f32::from(nibble(&self.q, lane, column)) - 8.0) * d;
        }
    }
}

impl Pack for Q41 {
    const EMPTY: Self = Self {
        d: [0; HALF],
        m: [0; HALF],
        q: [[[0; 2]; HALF]; 4],
    };
    const BYTES: usize = 20;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.d[lane] = word(block);
        self.m[lane] = word(&block[2..]);
        for (column, byte) in block[4..].iter().enumerate() {
            put_nibble(&mut self.q, lane, column, byte & 15);
            put_nibble(&mut self.q, lane, column + 16, byte >> 4);
        }
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        let (d, m) = (float(self.d[lane]), float(self.m[lane]));
        for (column, o) in out.iter_mut().enumerate() {
            *o = f32::from(nibble(&self.q, lane, column)) * d + m;
        }
    }
}

impl Pack for Q4K {
    const EMPTY: Self = Self {
        d: [0; HALF],
        min: [0; HALF],
        scales: [[0; HALF]; 8],
        mins: [[0; HALF]; 8],
        q: [[[[0; 2]; HALF]; 4]; 8],
    };
    const BYTES: usize = 144;

    fn set(&mut self, lane: usize, block: &[u8]) {
        let (head, values) = block.split_at(16);
        self.d[lane] = word(head);
        self.min[lane] = word(&head[2..]) ^ 0x8000;
        for (sub, q) in self.q.iter_mut().enumerate() {
            let (scale, min) = scale_min_bits(head, sub);
            self.scales[sub][lane] = scale;
            self.mins[sub][lane] = min;
            let bytes = &values[sub / 2 * 32..][..32];
            for (column, byte) in bytes.iter().enumerate() {
                put_nibble(q, lane, column, byte >> (sub % 2 * 4) & 15);
            }
        }
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        for (sub, out) in out.chunks_exact_mut(32).enumerate() {
            let scale = float(self.d[lane]) * f32::from(self.scales[sub][lane]);
            let shift = float(self.min[lane]) * f32::from(self.mins[sub][lane]);
            for (column, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(nibble(&self.q[sub], lane, column)) + shift;
            }
        }
    }
}

impl Pack for Q6K {
    const EMPTY: Self = Self {
        d: [0; HALF],
        scales: [[0; HALF]; 16],
        q: [[[[0; 2]; HALF]; 4]; 16],
    };
    const BYTES: usize = 210;

    fn set(&mut self, lane: usize, block: &[u8]) {
        self.d[lane] = word(&block[208..]);
        for (sub, q) in self.q.iter_mut().enumerate() {
            self.scales[sub][lane] = block[192 + sub].cast_signed();
            for column in 0..16 {
                let six = six(block, sub, column);
                put_byte(q, lane, column, six.cast_unsigned());
            }
        }
    }

    fn get(&self, lane: usize, out: &mut [f32]) {
        for (sub, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = float(self.d[lane]) * f32::from(self.scales[sub][lane]);
            for (column, o) in out.iter_mut().enumerate() {
                *o = scale * f32::from(byte(&self.q[sub], lane, column));
            }
        }
    }
}

fn word(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn float(half_bits: u16) -> f32 {
    half(half_bits.to_le_bytes())
}

/// Sets a nibble, which was zero.
fn put_nibble(q: &mut Nibbles, lane: usize, column: usize, value: u8) {
    q[column / 8][lane][column % 2] |= u16::from(value) << (column % 8 / 2 * 4);
}

fn nibble(q: &Nibbles, lane: usize, column: usize) -> u16 {
    q[column / 8][lane][column % 2] >> (column % 8 / 2 * 4) & 15
}

/// Sets a byte, which was zero.
fn put_byte(q: &mut [Words], lane: usize, column: usize, value: u8) {
    q[column / 4][lane][column % 2] |= u16::from(value) << (column % 4 / 2 * 8);
}

fn byte(q: &[Words], lane: usize, column: usize) -> i8 {
    q[column / 4][lane][column % 2].to_le_bytes()[column % 4 / 2].cast_signed()
}
