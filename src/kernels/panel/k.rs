//! The "k" formats of 4 and 6 bits: 256 columns with scales of scales.

use super::{HALF, Half, fetch};
use crate::kernels::simd::Lanes;

/// `Q4_K`: eight subs of 32 columns, column `j` in low nibbles, `j + 16` in high ones.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::kernels) struct Q4K {
    pub(super) d: [u16; HALF],
    /// Less than zero times the minimum's scale.
    pub(super) min: [u16; HALF],
    pub(super) scales: [[u8; HALF]; 8],
    pub(super) mins: [[u8; HALF]; 8],
    pub(super) q: [[[u8; HALF]; 16]; 8],
}

/// `Q6_K`: sixteen subs of 16 columns. A value takes a whole byte: 8.6 bits a weight in place of 6.6, and
/// no bits to gather.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Q6K {
    pub(super) d: [u16; HALF],
    pub(super) scales: [[i8; HALF]; 16],
    pub(super) q: [[[i8; HALF]; 16]; 16],
}

impl Half for Q4K {
    const SUB: usize = 32;
    const SUBS: usize = 8;
    const SHIFTED: bool = true;
    const PAIRS: bool = true;

    #[inline(always)]
    fn weights<S: Lanes>(&self, simd: S, sub: usize, j: usize) -> [S::Sixteen; 2] {
        simd.nibbles::<0>(&self.q[sub][j])
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.d), simd.unsigned(&self.scales[sub]))
    }

    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.min), simd.unsigned(&self.mins[sub]))
    }

    #[inline(always)]
    fn fetch(&self, sub: usize) {
        if sub == 0 {
            fetch(&self.d);
            fetch(self.scales.as_flattened());
            fetch(self.mins.as_flattened());
        }
        fetch(self.q[sub].as_flattened());
    }
}

impl Half for Q6K {
    const SUB: usize = 16;
    const SUBS: usize = 16;

    #[inline(always)]
    fn weights<S: Lanes>(&self, simd: S, sub: usize, j: usize) -> [S::Sixteen; 2] {
        let weights = simd.signed(&self.q[sub][j]);
        [weights, weights]
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.d), simd.signed(&self.scales[sub]))
    }

    #[inline(always)]
    fn fetch(&self, sub: usize) {
        if sub == 0 {
            fetch(&self.d);
            fetch(self.scales.as_flattened());
        }
        fetch(self.q[sub].as_flattened());
    }
}
