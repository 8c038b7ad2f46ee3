//! Activations in sixteen bits.

use crate::kernels::simd::{Kernel, Lanes, dispatch};

/// Values that share a scale.
pub(super) const BLOCK: usize = 32;

/// The greatest integer.
const TOP: f32 = 32767.0;

/// Rows of activations rounded to integers of -32,767 to 32,767 times a scale, which every 32 values of a
/// row have of their own: a value is off by at most a 65,534th of the greatest of them.
///
/// Products of integers are exact, so their sums are the same in any order. A block that holds an
/// infinity or a NaN has a NaN for its scale, and so has whatever is made of it.
#[derive(Clone, Debug, Default)]
pub(in crate::kernels) struct Rounded {
    /// `[rows, width / 2]`, neighbours side by side.
    pub(super) pairs: Vec<[i16; 2]>,
    /// `[rows, width / 32]`.
    pub(super) scales: Vec<f32>,
    /// The sums of each block, with their scales: `[rows, width / 32]`.
    pub(super) sums: Vec<f32>,
}

impl Rounded {
    /// Of rows whose width is a multiple of 32.
    pub(in crate::kernels) fn new(x: &[f32]) -> Self {
        dispatch(Round { x })
    }
}

struct Round<'a> {
    x: &'a [f32],
}

impl Kernel for Round<'_> {
    type Output = Rounded;

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) -> Rounded {
        let blocks = self.x.as_chunks::<BLOCK>().0;
        let mut all = Rounded {
            pairs: vec![[0; 2]; blocks.len() * BLOCK / 2],
            scales: Vec::with_capacity(blocks.len()),
            sums: Vec::with_capacity(blocks.len()),
        };
        let pairs = all.pairs.as_chunks_mut::<{ BLOCK / 2 }>().0;
        for (block, pairs) in blocks.iter().zip(pairs) {
            let (scale, factor) = scale(block);
            let sum = round(block, factor, pairs.as_flattened_mut());
            all.scales.push(scale);
            all.sums.push(scale * sum);
        }
        all
    }
}

/// The scale of a block, and what its values are multiplied with.
#[inline(always)]
fn scale(block: &[f32; BLOCK]) -> (f32, f32) {
    // Of floats without their signs, greater ones have greater bits, infinities and NaN the greatest.
    let mut top = 0;
    for x in block {
        top = top.max(x.to_bits() & 0x7fff_ffff);
    }
    let top = f32::from_bits(top);
    let factor = TOP / top;
    if !top.is_finite() {
        (f32::NAN, 0.0)
    } else if factor.is_finite() {
        (top / TOP, factor)
    } else {
        // No more than a few times 1e-35.
        (0.0, 0.0)
    }
}

/// The nearest integers of a block's values times `factor`, and their sum.
#[inline(always)]
fn round(block: &[f32; BLOCK], factor: f32, to: &mut [i16]) -> f32 {
    // Where floats are whole numbers, an addition rounds; their last bits are the integer's.
    const WHOLE: f32 = 12_582_912.0;
    let mut sum = 0;
    for (x, to) in block.iter().zip(to) {
        let [low, high, ..] = (x * factor + WHOLE).to_bits().to_le_bytes();
        *to = i16::from_le_bytes([low, high]);
        sum += i32::from(*to);
    }
    #[expect(clippy::cast_precision_loss, reason = "less than 2^24")]
    let sum = sum as f32;
    sum
}
