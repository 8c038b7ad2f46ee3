//! Weights packed thirty-two outputs wide.
//!
//! A panel holds thirty-two outputs, side by side for each column of the width, so that a register has
//! a weight (or two) of each of many and a column of a row's activations is one number for all: a weight
//! is loaded and unpacked once for all rows of a tile, and no sum is ever folded across lanes. Two
//! halves lie next to each other, so that a tile, and a task after it, read memory in one stream. Each
//! output's sum runs over the width, some values at a time that are added up by themselves first; how
//! many rows and panels share a tile changes which sums are in registers together, never their order.
//!
//! Float weights are multiplied with activations as they are ([`floats`]), quantised ones, which are
//! integers with scales, with activations rounded to sixteen bits ([`ints`]).

mod drive;
mod floats;
mod ints;
mod k;
mod pack;
mod q4;
mod q8;
mod rounded;

pub(super) use drive::{Inputs, drive};
pub(super) use floats::{Bf16, F16, F32};
pub(super) use k::{Q4K, Q6K};
pub(super) use pack::{Pack, pack, value};
pub(super) use q4::{Q40, Q41};
pub(super) use q8::Q80;
pub(super) use rounded::Rounded;

use prefetch_index::prefetch_index;

use super::simd::Isa;
use drive::{Sums, Tile};

/// Outputs of half a panel.
pub(super) const HALF: usize = 16;

/// Outputs of a panel.
pub(super) const PANEL: usize = 2 * HALF;

/// Some columns of a panel.
pub(super) type Panel<F> = [F; 2];

/// A block of columns of half a panel.
pub(super) trait Half: Sized + Sync {
    /// Its columns.
    const COLUMNS: usize;
    /// Whether activations are rounded for it.
    const ROUNDED: bool;

    /// `R` rows times a panel.
    fn multiply<const R: usize>(isa: Isa, tile: Tile<'_, Self>) -> Sums<R>;

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
