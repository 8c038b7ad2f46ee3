//! Nibbles with a scale every 32.

use super::{
    HALF, Half,
    drive::{Sums, Tile},
    fetch,
    ints::{self, Quantised, Words, half},
};
use crate::kernels::simd::{Isa, Lanes};

/// Nibbles of 32 columns: column `8 * i + 2 * n + p` is nibble `n` of word `p` of `[i]`.
pub(super) type Nibbles = [Words; 4];

/// Pair `N` of group `group`.
#[inline(always)]
pub(super) fn pairs<S: Lanes, const N: usize>(simd: S, q: &Nibbles, group: usize) -> S::Pairs {
    match N {
        0 => simd.nibbles::<0>(&q[group]),
        1 => simd.nibbles::<4>(&q[group]),
        2 => simd.nibbles::<8>(&q[group]),
        _ => simd.nibbles::<12>(&q[group]),
    }
}

/// `Q4_0`, 32 columns, eight more than they stand for.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Q40 {
    pub(super) d: [u16; HALF],
    pub(super) q: Nibbles,
}

/// `Q4_1`, 32 columns.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::kernels) struct Q41 {
    pub(super) d: [u16; HALF],
    pub(super) m: [u16; HALF],
    pub(super) q: Nibbles,
}

half!(Q40, 32, |self, _| {
    fetch(&self.d);
    fetch(self.q.as_flattened());
});

half!(Q41, 32, |self, _| {
    fetch(&self.d);
    fetch(self.q.as_flattened());
});

impl Quantised for Q40 {
    const SUB: usize = 32;
    const SHIFTED: bool = true;

    #[inline(always)]
    fn pairs<S: Lanes, const N: usize>(&self, simd: S, _: usize, group: usize) -> S::Pairs {
        pairs::<S, N>(simd, &self.q, group)
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.d)
    }

    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.d), simd.splat(-8.0))
    }
}

impl Quantised for Q41 {
    const SUB: usize = 32;
    const SHIFTED: bool = true;

    #[inline(always)]
    fn pairs<S: Lanes, const N: usize>(&self, simd: S, _: usize, group: usize) -> S::Pairs {
        pairs::<S, N>(simd, &self.q, group)
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.d)
    }

    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
        simd.halves(&self.m)
    }
}
