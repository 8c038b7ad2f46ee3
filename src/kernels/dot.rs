//! Dot products with one fixed order.
//!
//! Product `k` is added to lane `k % 32`, `k` ascending; the lanes are then folded in halves. The
//! last chunk of a width that is no multiple of 32 is filled up with zeros. Accumulators are named
//! one by one and chunks are passed by reference, which keeps both in registers.

use super::simd::Lanes;

const LANES: usize = 32;

/// 32 values.
type Chunk = [[f32; 8]; LANES / 8];

/// `x . w`; both have the same length.
#[inline(always)]
pub(super) fn dot<S: Lanes>(simd: S, w: &[f32], x: &[f32]) -> f32 {
    let ((w, w_rest), (x, x_rest)) = (chunks(w), chunks(x));
    let mut acc = Acc::zero(simd);
    for (w, x) in w.iter().zip(x) {
        acc = acc.add(simd, w, x);
    }
    if !w_rest.is_empty() {
        acc = acc.add(simd, &filled(w_rest), &filled(x_rest));
    }
    acc.fold(simd)
}

/// Accumulators of 32 lanes.
struct Acc<S: Lanes>(S::Eight, S::Eight, S::Eight, S::Eight);

impl<S: Lanes> Acc<S> {
    #[inline(always)]
    fn zero(simd: S) -> Self {
        let zero = simd.load(&[0.0; 8]);
        Self(zero, zero, zero, zero)
    }

    #[inline(always)]
    fn add(self, simd: S, w: &Chunk, x: &Chunk) -> Self {
        Self(
            step(simd, self.0, &w[0], &x[0]),
            step(simd, self.1, &w[1], &x[1]),
            step(simd, self.2, &w[2], &x[2]),
            step(simd, self.3, &w[3], &x[3]),
        )
    }

    #[inline(always)]
    fn fold(self, simd: S) -> f32 {
        let even = simd.add(self.0, self.2);
        let odd = simd.add(self.1, self.3);
        let [a, b, c, d, e, f, g, h] = simd.store(simd.add(even, odd));
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

#[inline(always)]
fn step<S: Lanes>(simd: S, acc: S::Eight, w: &[f32; 8], x: &[f32; 8]) -> S::Eight {
    simd.add(acc, simd.mul(simd.load(w), simd.load(x)))
}

#[inline(always)]
fn chunks(x: &[f32]) -> (&[Chunk], &[f32]) {
    let (whole, rest) = x.split_at(x.len() / LANES * LANES);
    (whole.as_chunks().0.as_chunks().0, rest)
}

#[inline(always)]
fn filled(tail: &[f32]) -> Chunk {
    let mut chunk = [[0.0; 8]; LANES / 8];
    chunk.as_flattened_mut()[..tail.len()].copy_from_slice(tail);
    chunk
}
