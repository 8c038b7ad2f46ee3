//! Bytes with a scale every 32.

use super::{HALF, Half, fetch};
use crate::kernels::simd::Lanes;

/// `Q8_0`, 32 columns.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Q80 {
    pub(super) d: [u16; HALF],
    pub(super) q: [[i8; HALF]; 32],
}

impl Half for Q80 {
    const SUB: usize = 32;

    #[inline(always)]
    fn weights<S: Lanes>(&self, simd: S, _: usize, j: usize) -> [S::Sixteen; 2] {
        let weights = simd.signed(&self.q[j]);
        [weights, weights]
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
