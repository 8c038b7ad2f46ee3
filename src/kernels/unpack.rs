//! Rows of weights as stored to `f32`: floats and blocks of 32 values.
//!
//! Values are first spread to 16-bit integers and scaled in a second loop: both loops vectorise.

use super::{Format, unpack_k};

/// Unpacks a row. `bytes` and `out` are the same number of whole blocks.
#[inline(always)]
pub(super) fn unpack(format: Format, bytes: &[u8], out: &mut [f32]) {
    match format {
        Format::F32 => blocks(bytes, out, |b, o| *o = [f32::from_le_bytes(*b)]),
        Format::F16 => blocks(bytes, out, |b, o| *o = [half(*b)]),
        Format::BF16 => blocks(bytes, out, |b, o| {
            *o = [f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16)];
        }),
        Format::Q4_0 => blocks(bytes, out, q4_0),
        Format::Q4_1 => blocks(bytes, out, q4_1),
        Format::Q5_0 => blocks(bytes, out, q5_0),
        Format::Q5_1 => blocks(bytes, out, q5_1),
        Format::Q8_0 => blocks(bytes, out, q8::<34, 2>),
        Format::Q8_1 => blocks(bytes, out, q8::<36, 4>),
        Format::Q2K => blocks(bytes, out, unpack_k::q2),
        Format::Q3K => blocks(bytes, out, unpack_k::q3),
        Format::Q4K => blocks(bytes, out, unpack_k::q4),
        Format::Q5K => blocks(bytes, out, unpack_k::q5),
        Format::Q6K => blocks(bytes, out, unpack_k::q6),
        Format::Q8K => blocks(bytes, out, unpack_k::q8),
    }
}

#[inline(always)]
fn blocks<const B: usize, const V: usize>(
    bytes: &[u8],
    out: &mut [f32],
    one: impl Fn(&[u8; B], &mut [f32; V]),
) {
    let (blocks, _) = bytes.as_chunks::<B>();
    let (out, _) = out.as_chunks_mut::<V>();
    for (block, out) in blocks.iter().zip(out) {
        one(block, out);
    }
}

/// An IEEE half. Subnormals come out right because the multiplication by 2^112 is exact.
#[inline(always)]
pub(super) fn half(bytes: [u8; 2]) -> f32 {
    const TWO_112: f32 = f32::from_bits((112 + 127) << 23);
    let h = u32::from(u16::from_le_bytes(bytes));
    let body = (h & 0x7fff) << 13;
    let finite = (f32::from_bits(body) * TWO_112).to_bits();
    let special = body | 0x7f80_0000;
    let bits = if h & 0x7c00 == 0x7c00 {
        special
    } else {
        finite
    };
    f32::from_bits(bits | (h & 0x8000) << 16)
}

/// Low nibbles, then high nibbles.
#[inline(always)]
fn nibbles(packed: &[u8; 16]) -> [i16; 32] {
    let mut bytes = [0u8; 32];
    for (q, p) in bytes[..16].iter_mut().zip(packed) {
        *q = p & 15;
    }
    for (q, p) in bytes[16..].iter_mut().zip(packed) {
        *q = p >> 4;
    }
    let mut wide = [0; 32];
    for (w, q) in wide.iter_mut().zip(bytes) {
        *w = i16::from(q);
    }
    wide
}

#[inline(always)]
fn q4_0(b: &[u8; 18], out: &mut [f32; 32]) {
    let [d0, d1, packed @ ..] = b;
    let d = half([*d0, *d1]);
    for (o, q) in out.iter_mut().zip(nibbles(packed)) {
        *o = f32::from(q - 8) * d;
    }
}

#[inline(always)]
fn q4_1(b: &[u8; 20], out: &mut [f32; 32]) {
    let [d0, d1, m0, m1, packed @ ..] = b;
    let (d, m) = (half([*d0, *d1]), half([*m0, *m1]));
    for (o, q) in out.iter_mut().zip(nibbles(packed)) {
        *o = f32::from(q) * d + m;
    }
}

/// Nibbles with a fifth bit each from `high`.
#[inline(always)]
fn fives(high: [u8; 4], packed: &[u8; 16]) -> [i16; 32] {
    let high = u32::from_le_bytes(high);
    let mut wide = nibbles(packed);
    for (i, w) in wide.iter_mut().enumerate() {
        *w += if high >> i & 1 == 1 { 16 } else { 0 };
    }
    wide
}

#[inline(always)]
fn q5_0(b: &[u8; 22], out: &mut [f32; 32]) {
    let [d0, d1, h0, h1, h2, h3, packed @ ..] = b;
    let d = half([*d0, *d1]);
    for (o, q) in out.iter_mut().zip(fives([*h0, *h1, *h2, *h3], packed)) {
        *o = f32::from(q - 16) * d;
    }
}

#[inline(always)]
fn q5_1(b: &[u8; 24], out: &mut [f32; 32]) {
    let [d0, d1, m0, m1, h0, h1, h2, h3, packed @ ..] = b;
    let (d, m) = (half([*d0, *d1]), half([*m0, *m1]));
    for (o, q) in out.iter_mut().zip(fives([*h0, *h1, *h2, *h3], packed)) {
        *o = f32::from(q) * d + m;
    }
}

/// `Q8_0` and `Q8_1`, whose second half (the sum of the block) a dot product in `f32` ignores.
#[inline(always)]
fn q8<const B: usize, const HEAD: usize>(b: &[u8; B], out: &mut [f32; 32]) {
    let d = half([b[0], b[1]]);
    for (o, q) in out.iter_mut().zip(&b[HEAD..]) {
        *o = f32::from(q.cast_signed()) * d;
    }
}
