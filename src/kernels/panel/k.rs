//! The "k" formats of 4 and 6 bits: 256 columns with scales of scales.

use super::{
    HALF, Half,
    drive::{Sums, Tile},
    fetch,
    ints::{self, Quantised, Words, half},
    q4::{self, Nibbles},
    q8,
};
use crate::kernels::simd::{Isa, Lanes};

/// `Q4_K`: eight subs of 32 columns.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::kernels) struct Q4K {
    pub(super) d: [u16; HALF],
    /// Less than zero times the minimum's scale.
    pub(super) min: [u16; HALF],
    pub(super) scales: [[u8; HALF]; 8],
    pub(super) mins: [[u8; HALF]; 8],
    pub(super) q: [Nibbles; 8],
}

/// `Q6_K`: sixteen subs of 16 columns. A value takes a whole byte: 8.6 bits a weight in place of 6.6, and
/// no bits to gather.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Q6K {
    pub(super) d: [u16; HALF],
    pub(super) scales: [[i8; HALF]; 16],
    pub(super) q: [[Words; 4]; 16],
}

half!(Q4K, 256, |self, sub| {
    if sub == 0 {
        fetch(&self.d);
        fetch(self.scales.as_flattened());
        fetch(self.mins.as_flattened());
    }
    fetch(self.q[sub].as_flattened());
});

half!(Q6K, 256, |self, sub| {
    if sub == 0 {
        fetch(&self.d);
        fetch(self.scales.as_flattened());
    }
    fetch(self.q[sub].as_flattened());
});

impl Quantised for Q4K {
    const SUB: usize = 32;
    const SHIFTED: bool = true;

    #[inline(always)]
    fn pairs<S: Lanes, const N: usize>(&self, simd: S, sub: usize, group: usize) -> S::Pairs {
        q4::pairs::<S, N>(simd, &self.q[sub], group)
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.d), simd.unsigned(&self.scales[sub]))
    }

    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.min), simd.unsigned(&self.mins[sub]))
    }
}

impl Quantised for Q6K {
    const SUB: usize = 16;

    #[inline(always)]
    fn pairs<S: Lanes, const N: usize>(&self, simd: S, sub: usize, group: usize) -> S::Pairs {
        q8::pairs::<S, N>(simd, &self.q[sub], group)
    }

    #[inline(always)]
    fn scale<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen {
        simd.product(simd.halves(&self.d), simd.signed(&self.scales[sub]))
    }
}
