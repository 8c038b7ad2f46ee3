//! Dot products with one fixed order.
//!
//! Product `k` is added to lane `k % 32`, `k` ascending; the lanes are then folded in halves. The
//! last chunk of a width that is no multiple of 32 is filled up with zeros.

use super::simd::Lanes;

/// `x . w`; both have the same length.
#[inline(always)]
pub(super) fn dot<S: Lanes>(simd: S, w: &[f32], x: &[f32]) -> f32 {
    let ((w, w_rest), (x, x_rest)) = (w.as_chunks::<16>(), x.as_chunks::<16>());
    let ((w, w_last), (x, x_last)) = (w.as_chunks::<2>(), x.as_chunks::<2>());
    let (mut low, mut high) = (simd.splat(0.0), simd.splat(0.0));
    for (w, x) in w.iter().zip(x) {
        low = step(simd, low, &w[0], &x[0]);
        high = step(simd, high, &w[1], &x[1]);
    }
    let (w_rest, x_rest) = (filled(w_rest), filled(x_rest));
    if let ([w], [x]) = (w_last, x_last) {
        low = step(simd, low, w, x);
        high = step(simd, high, &w_rest, &x_rest);
    } else {
        low = step(simd, low, &w_rest, &x_rest);
    }
    simd.sum(simd.plus(low, high))
}

/// Adds sixteen products to `acc`, each rounded before.
#[inline(always)]
fn step<S: Lanes>(simd: S, acc: S::Sixteen, w: &[f32; 16], x: &[f32; 16]) -> S::Sixteen {
    simd.plus(acc, simd.product(simd.sixteen(w), simd.sixteen(x)))
}

/// Up to sixteen values, filled up with zeros.
#[inline(always)]
pub(super) fn filled(values: &[f32]) -> [f32; 16] {
    let mut all = [0.0; 16];
    all[..values.len()].copy_from_slice(values);
    all
}
