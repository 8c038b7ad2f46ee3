//! Bytes with a scale every 32.

use super::{
    HALF, Half,
    drive::{Sums, Tile},
    fetch,
    ints::{self, Quantised, Words, half},
};
use crate::kernels::simd::{Isa, Lanes};

/// Pair `N` of group `group` of bytes: column `4 * i + 2 * n + p` is byte `n` of word `p` of `q[i]`.
#[inline(always)]
pub(super) fn pairs<S: Lanes, const N: usize>(simd: S, q: &[Words], group: usize) -> S::Pairs {
    let words = &q[2 * group + N / 2];
    if N.is_multiple_of(2) {
        simd.low_bytes(words)
    } else {
        simd.high_bytes(words)
    }
}

/// `Q8_0`, 32 columns.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Q80 {
    pub(super) d: [u16; HALF],
    pub(super) q: [Words; 8],
}

half!(Q80, 32, |self, _| {
    fetch(&self.d);
    fetch(self.q.as_flattened());
});

impl Quantised for Q80 {
    const SUB: usize = 32;

    #[inline(always)]
    fn pairs<S: Lanes, const N: usize>(&self, simd: S, _: usize, group: usize) -> S::Pairs {
        pairs::<S, N>(simd, &self.q, group)
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.d)
    }
}
