//! Floats.

use super::{HALF, Half, fetch};
use crate::kernels::simd::Lanes;

/// One column.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::kernels) struct F32(pub(super) [f32; HALF]);

/// One column of IEEE halves.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct F16(pub(super) [u16; HALF]);

/// One column of upper halves of `f32`.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Bf16(pub(super) [u16; HALF]);

impl F32 {
    /// Sets the weight of output `lane`.
    #[inline(always)]
    pub(in crate::kernels) fn put(&mut self, lane: usize, value: f32) {
        self.0[lane] = value;
    }
}

macro_rules! float {
    ($name:ident, $read:ident) => {
        impl Half for $name {
            const SUB: usize = 1;
            const SCALED: bool = false;

            #[inline(always)]
            fn weights<S: Lanes>(&self, simd: S, _: usize, _: usize) -> [S::Sixteen; 2] {
                let weights = simd.$read(&self.0);
                [weights, weights]
            }

            #[inline(always)]
            fn scale<S: Lanes>(&self, simd: S, _: usize) -> S::Sixteen {
                simd.splat(1.0)
            }

            #[inline(always)]
            fn fetch(&self, _: usize) {
                fetch(&self.0);
            }
        }
    };
}

float!(F32, sixteen);
float!(F16, halves);
float!(Bf16, uppers);
