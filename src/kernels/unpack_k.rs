//! The GGML "k" formats: 256 values a block, with scales of 16 or 32 values each.

use super::unpack::half;

/// `Q2_K`: `scales[16]` (scale and minimum, 4 bits each), 2-bit `values[64]`, d, dmin.
#[inline(always)]
pub(super) fn q2(b: &[u8; 84], out: &mut [f32; 256]) {
    let (scales, rest) = b.split_at(16);
    let (values, rest) = rest.split_at(64);
    let (d, min) = (half([rest[0], rest[1]]), half([rest[2], rest[3]]));
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(scales[group] & 15);
        let min = min * f32::from(scales[group] >> 4);
        let (from, shift) = two_bits(group);
        for (o, v) in out.iter_mut().zip(&values[from..]) {
            *o = scale * f32::from(v >> shift & 3) - min;
        }
    }
}

/// `Q3_K`: third `bits[32]`, 2-bit `values[64]`, `scales[12]` (16 of 6 bits), d.
#[inline(always)]
pub(super) fn q3(b: &[u8; 110], out: &mut [f32; 256]) {
    let (high, rest) = b.split_at(32);
    let (values, rest) = rest.split_at(64);
    let (scales, rest) = rest.split_at(12);
    let d = half([rest[0], rest[1]]);
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let top = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        let scale = d * f32::from(i16::from(low | top << 4) - 32);
        let (from, shift) = two_bits(group);
        for (i, o) in out.iter_mut().enumerate() {
            let low = i16::from(values[from + i] >> shift & 3);
            let third = high[(from + i) % 32] >> (group / 2) & 1;
            *o = scale * f32::from(low - if third == 1 { 0 } else { 4 });
        }
    }
}

/// Where the 2-bit values of a group of 16 begin, and their shift.
#[inline(always)]
fn two_bits(group: usize) -> (usize, usize) {
    (group / 8 * 32 + group % 2 * 16, group % 8 / 2 * 2)
}

/// `Q4_K`: d, dmin, `scales[12]` (8 scales and 8 minima of 6 bits), `nibbles[128]`.
#[inline(always)]
pub(super) fn q4(b: &[u8; 144], out: &mut [f32; 256]) {
    let (head, values) = b.split_at(16);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(head, group);
        let nibbles = &values[group / 2 * 32..];
        for (o, v) in out.iter_mut().zip(nibbles) {
            *o = scale * f32::from(v >> (group % 2 * 4) & 15) - min;
        }
    }
}

/// `Q5_K`: as `Q4_K`, with fifth `bits[32]` before the nibbles.
#[inline(always)]
pub(super) fn q5(b: &[u8; 176], out: &mut [f32; 256]) {
    let (head, rest) = b.split_at(16);
    let (high, values) = rest.split_at(32);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(head, group);
        let nibbles = &values[group / 2 * 32..];
        for ((o, v), high) in out.iter_mut().zip(nibbles).zip(high) {
            let fifth = (high >> group & 1) << 4;
            *o = scale * f32::from(v >> (group % 2 * 4) & 15 | fifth) - min;
        }
    }
}

/// Scale and minimum of a group of 32 in `Q4_K` and `Q5_K`; `head` is d, dmin, scales.
#[inline(always)]
fn scale_min(head: &[u8], group: usize) -> (f32, f32) {
    let (d, min) = (half([head[0], head[1]]), half([head[2], head[3]]));
    let (a, b) = scale_min_bits(head, group);
    (d * f32::from(a), min * f32::from(b))
}

/// The factors of d and dmin, 6 bits each.
#[inline(always)]
pub(super) fn scale_min_bits(head: &[u8], group: usize) -> (u8, u8) {
    let s = &head[4..];
    if group < 4 {
        (s[group] & 63, s[group + 4] & 63)
    } else {
        (
            s[group + 4] & 15 | s[group - 4] >> 6 << 4,
            s[group + 4] >> 4 | s[group] >> 6 << 4,
        )
    }
}

/// `Q6_K`: low `nibbles[128]`, high pairs of `bits[64]`, signed `scales[16]`, d.
#[inline(always)]
pub(super) fn q6(b: &[u8; 210], out: &mut [f32; 256]) {
    let d = half([b[208], b[209]]);
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(b[192 + group].cast_signed());
        for (j, o) in out.iter_mut().enumerate() {
            *o = scale * f32::from(six(b, group, j));
        }
    }
}

/// Value `j` of a group of 16 in `Q6_K`, -32 to 31.
#[inline(always)]
pub(super) fn six(b: &[u8], group: usize, j: usize) -> i8 {
    let (section, at) = (group / 2 % 4, group % 2 * 16 + j);
    let low = b[group / 8 * 64 + section % 2 * 32 + at] >> (section / 2 * 4) & 15;
    let high = b[128 + group / 8 * 32 + at] >> (section * 2) & 3;
    (low | high << 4).cast_signed() - 32
}

/// `Q8_K`: d as `f32`, `values[256]`, sums of 16 that a dot product in `f32` ignores.
#[inline(always)]
pub(super) fn q8(b: &[u8; 292], out: &mut [f32; 256]) {
    let d = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    for (o, q) in out.iter_mut().zip(&b[4..]) {
        *o = d * f32::from(q.cast_signed());
    }
}
