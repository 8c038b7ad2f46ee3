//! Weights packed thirty-two outputs wide.
//!
//! A panel holds thirty-two outputs, side by side for each column of the width, so that a register has
//! one weight of each of sixteen and a column of a row's activations is one number for all: a weight is
//! loaded and unpacked once for all rows of a tile, and no sum is ever folded across lanes. Two
//! registers' worth lie next to each other, so that a tile, and a task after it, read memory in one
//! stream. Each output's sum runs over the width, some values at a time that are added up by themselves
//! first; how many rows and panels share a tile changes which sums are in registers together, never
//! their order.

mod drive;
mod floats;
mod k;
mod pack;
mod q4;
mod q8;

pub(super) use drive::{Inputs, drive};
pub(super) use floats::{Bf16, F16, F32};
pub(super) use k::{Q4K, Q6K};
pub(super) use pack::{Pack, pack, value};
pub(super) use q4::{Q40, Q41};
pub(super) use q8::Q80;

use prefetch_index::prefetch_index;

use super::simd::Lanes;

/// Outputs of half a panel: as many as a register holds.
pub(super) const HALF: usize = 16;

/// Outputs of a panel.
pub(super) const PANEL: usize = 2 * HALF;

/// Some columns of a panel.
pub(super) type Panel<F> = [F; 2];

/// Some columns of half a panel: `SUBS` times `SUB` values of each output, each sub with its own scale.
pub(super) trait Half: Sync {
    /// Values that share a scale; 1 for floats, which have none.
    const SUB: usize;
    /// Subs of a block.
    const SUBS: usize = 1;
    /// Whether values have scales.
    const SCALED: bool = true;
    /// Whether a sub's values have a common summand, too.
    const SHIFTED: bool = false;
    /// Weights that [`Half::weights`] gives at a time: 1, or 2 that lie half a sub apart.
    const PAIRS: bool = false;

    /// Values `j`, and `j + SUB / 2` for pairs (else anything), of sub `sub`.
    fn weights<S: Lanes>(&self, simd: S, sub: usize, j: usize) -> [S::Sixteen; 2];

    /// The scale of sub `sub`.
    fn scale<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen;

    /// The summand of sub `sub`, where values have one.
    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, _sub: usize) -> S::Sixteen {
        simd.splat(0.0)
    }

    /// Asks memory for sub `sub`.
    fn fetch(&self, sub: usize);
}

/// Bytes of a line of memory.
const LINE: usize = 64;

/// Asks memory for the lines of `values`.
#[inline(always)]
fn fetch<T>(values: &[T]) {
    for at in (0..values.len()).step_by(LINE / size_of::<T>()) {
        prefetch_index(values, at);
    }
}
