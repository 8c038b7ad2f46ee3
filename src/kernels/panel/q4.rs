//! Nibbles with a scale every 32.

use super::{HALF, Half, fetch};
use crate::kernels::simd::Lanes;

/// `Q4_0`, 32 columns: column `j` in low nibbles, `j + 16` in high ones.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Q40 {
    pub(super) d: [u16; HALF],
    pub(super) q: [[u8; HALF]; 16],
}

/// `Q4_1`, 32 columns: column `j` in low nibbles, `j + 16` in high ones.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::kernels) struct Q41 {
    pub(super) d: [u16; HALF],
    pub(super) m: [u16; HALF],
    pub(super) q: [[u8; HALF]; 16],
}

impl Half for Q40 {
    const SUB: usize = 32;
    const PAIRS: bool = true;

    #[inline(always)]
    fn weights<S: Lanes>(&self, simd: S, _: usize, j: usize) -> [S::Sixteen; 2] {
        simd.nibbles::<8>(&self.q[j])
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.d)
    }

    #[inline(always)]
    fn fetch(&self, _: usize) {
        fetch(&self.d);
        fetch(self.q.as_flattened());
    }
}

impl Half for Q41 {
    const SUB: usize = 32;
    const SHIFTED: bool = true;
    const PAIRS: bool = true;

    #[inline(always)]
    fn weights<S: Lanes>(&self, simd: S, _: usize, j: usize) -> [S::Sixteen; 2] {
        simd.nibbles::<0>(&self.q[j])
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.d)
    }

    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.m)
    }

    #[inline(always)]
    fn fetch(&self, _: usize) {
        fetch(&self.d);
        fetch(self.q.as_flattened());
    }
}
