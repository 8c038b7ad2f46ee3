//! Dot products with one fixed order.
//!
//! Product `k` is added to lane `k % 32`, `k` ascending; the lanes are then folded in halves. The
//! last chunk of a width that is no multiple of 32 is filled up with zeros.

use pulp::{cast, f32x8};

use super::simd::Lanes;

const LANES: usize = 32;
const PARTS: usize = LANES / 8;

type Chunk = [f32; LANES];
type Acc = [f32x8; PARTS];

/// `x[r] . w` for each `r`. All slices have the length of `w`.
#[inline(always)]
pub(super) fn dots<S: Lanes, const R: usize>(simd: S, w: &[f32], x: [&[f32]; R]) -> [f32; R] {
    let (chunks, rest) = w.as_chunks::<LANES>();
    let rows = x.map(|x| {
        let (full, tail) = x[..w.len()].as_chunks::<LANES>();
        (&full[..chunks.len()], tail)
    });
    let mut acc = [[simd.splat_f32s(0.0); PARTS]; R];
    for (i, w) in chunks.iter().enumerate() {
        let w: Acc = cast(*w);
        for (acc, row) in acc.iter_mut().zip(&rows) {
            add(simd, acc, cast(row.0[i]), w);
        }
    }
    if !rest.is_empty() {
        let w = cast(filled(rest));
        for (acc, row) in acc.iter_mut().zip(&rows) {
            add(simd, acc, cast(filled(row.1)), w);
        }
    }
    acc.map(
        #[inline(always)]
        |acc| fold(simd, acc),
    )
}

/// The sum of `x`, in the order of a dot product with ones.
#[inline(always)]
pub(super) fn sum<S: Lanes>(simd: S, x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut acc: Acc = cast(filled(rest));
    for chunk in chunks {
        let chunk: Acc = cast(*chunk);
        for (acc, x) in acc.iter_mut().zip(chunk) {
            *acc = simd.add_f32s(*acc, x);
        }
    }
    fold(simd, acc)
}

#[inline(always)]
fn add<S: Lanes>(simd: S, acc: &mut Acc, x: Acc, w: Acc) {
    for ((acc, x), w) in acc.iter_mut().zip(x).zip(w) {
        *acc = simd.add_f32s(*acc, simd.mul_f32s(x, w));
    }
}

#[inline(always)]
fn filled(tail: &[f32]) -> Chunk {
    let mut chunk = [0.0; LANES];
    chunk[..tail.len()].copy_from_slice(tail);
    chunk
}

#[inline(always)]
fn fold<S: Lanes>(simd: S, acc: Acc) -> f32 {
    let [a, b, c, d] = acc;
    let eight = simd.add_f32s(simd.add_f32s(a, c), simd.add_f32s(b, d));
    let [a, b, c, d, e, f, g, h]: [f32; 8] = cast(eight);
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
