//! Sums of activations.

use super::{
    dot::sum,
    simd::{Kernel, Lanes, dispatch},
};

/// The sums of every `size` values of `x`, each in the order of [`sum`].
pub(super) fn sums(x: &[f32], size: usize) -> Vec<f32> {
    dispatch(Sums { x, size })
}

struct Sums<'a> {
    x: &'a [f32],
    size: usize,
}

impl Kernel for Sums<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> Vec<f32> {
        self.x
            .chunks_exact(self.size)
            .map(|x| sum(simd, x))
            .collect()
    }
}
