//! Sums of activations.

use super::simd::{Kernel, Lanes, dispatch};

/// The sums of every 32 values of `x`: halves, quarters, and so on, added to each other.
pub(super) fn sums(x: &[f32]) -> Vec<f32> {
    dispatch(Sums { x })
}

struct Sums<'a> {
    x: &'a [f32],
}

impl Kernel for Sums<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> Vec<f32> {
        let (pairs, _) = self.x.as_chunks::<16>().0.as_chunks::<2>();
        let mut sums = Vec::with_capacity(pairs.len().next_multiple_of(16));
        for pairs in pairs.chunks(16) {
            let mut both = [simd.splat(0.0); 16];
            for (both, [a, b]) in both.iter_mut().zip(pairs) {
                *both = simd.plus(simd.sixteen(a), simd.sixteen(b));
            }
            sums.extend_from_slice(&simd.folded(both));
        }
        sums.truncate(pairs.len());
        sums
    }
}
