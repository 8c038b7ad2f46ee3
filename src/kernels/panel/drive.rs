//! Rows times panels, tile by tile.

use super::{HALF, Half, LINE, PANEL, Panel, Rounded};
use crate::kernels::simd::{Isa, Lanes};

/// Rows of activations.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Inputs<'a> {
    /// `[rows, width]`.
    pub(in crate::kernels) x: &'a [f32],
    /// The same, for quantised weights; empty if there are none.
    pub(in crate::kernels) rounded: &'a Rounded,
    pub(in crate::kernels) width: usize,
}

/// The most rows of a tile.
const MOST: usize = 8;

/// All rows times the first panels of `weights`, as many as `y` has room for; `y[r]` takes row `r`'s
/// outputs, the last panel's cut off.
///
/// The rows of a panel are shared out to as few tiles as can be.
pub(in crate::kernels) fn drive<F: Half>(
    isa: Isa,
    weights: &[Panel<F>],
    inputs: Inputs<'_>,
    y: &mut [&mut [f32]],
) {
    let rows = inputs.x.len() / inputs.width;
    let blocks = inputs.width / F::COLUMNS;
    let tiles = rows.div_ceil(MOST);
    for panel in 0..y[0].len().div_ceil(PANEL) {
        let mut task = Task {
            isa,
            weights: &weights[panel * blocks..],
            blocks,
            inputs,
            first: panel * PANEL,
            y,
        };
        for tile in 0..tiles {
            let row = tile * rows / tiles;
            let ahead = Ahead::of::<F>((tile, tiles), blocks);
            match (tile + 1) * rows / tiles - row {
                1 => task.tile::<1>(row, ahead),
                2 => task.tile::<2>(row, ahead),
                3 => task.tile::<3>(row, ahead),
                4 => task.tile::<4>(row, ahead),
                5 => task.tile::<5>(row, ahead),
                6 => task.tile::<6>(row, ahead),
                7 => task.tile::<7>(row, ahead),
                _ => task.tile::<8>(row, ahead),
            }
        }
    }
}

/// Which blocks memory is asked for while others are computed: those in so many bytes where a panel is
/// read once, else the next panel's, by each tile as many.
#[derive(Clone, Copy)]
struct Ahead {
    /// The first block that is asked for.
    from: usize,
    /// Blocks that are computed for each that is asked for.
    pace: usize,
}

impl Ahead {
    /// What memory delivers while it is waited for, and as much again.
    const BYTES: usize = 4096;

    fn of<F: Half>((tile, tiles): (usize, usize), blocks: usize) -> Self {
        let (from, pace) = if tiles == 1 {
            (Self::BYTES.div_ceil(size_of::<Panel<F>>()), 1)
        } else {
            (blocks + tile * blocks / tiles, tiles)
        };
        Self { from, pace }
    }
}

struct Task<'a, 'y, F> {
    isa: Isa,
    /// From the panel on.
    weights: &'a [Panel<F>],
    /// Blocks of a panel.
    blocks: usize,
    inputs: Inputs<'a>,
    /// Place of the panel's outputs.
    first: usize,
    y: &'a mut [&'y mut [f32]],
}

impl<F: Half> Task<'_, '_, F> {
    /// `R` rows from `row`.
    fn tile<const R: usize>(&mut self, row: usize, ahead: Ahead) {
        let tile = Tile {
            weights: self.weights,
            blocks: self.blocks,
            inputs: self.inputs,
            row,
            ahead,
        };
        let all = F::multiply::<R>(self.isa, tile);
        for (sums, y) in all.iter().zip(&mut self.y[row..]) {
            for (sums, y) in sums.iter().zip(y[self.first..].chunks_mut(HALF)) {
                y.copy_from_slice(&sums[..y.len()]);
            }
        }
    }
}

/// The outputs of a panel, for each of `R` rows.
pub(in crate::kernels) type Sums<const R: usize> = [[[f32; HALF]; 2]; R];

/// What registers hold, written out.
#[inline(always)]
pub(super) fn sums<S: Lanes, const R: usize>(simd: S, acc: [[S::Sixteen; 2]; R]) -> Sums<R> {
    let mut out = [[[0.0; HALF]; 2]; R];
    for r in 0..R {
        for h in 0..2 {
            out[r][h] = simd.lanes(acc[r][h]);
        }
    }
    out
}

/// Some rows and a panel.
pub(in crate::kernels) struct Tile<'a, F> {
    /// The panel and what follows it in memory.
    weights: &'a [Panel<F>],
    /// Blocks of the panel.
    blocks: usize,
    pub(super) inputs: Inputs<'a>,
    /// The first row.
    pub(super) row: usize,
    ahead: Ahead,
}

impl<'a, F> Tile<'a, F> {
    /// The panel's blocks.
    #[inline(always)]
    pub(super) fn blocks(&self) -> &'a [Panel<F>] {
        &self.weights[..self.blocks]
    }

    /// What memory is asked for while `count` blocks from `b` on are computed.
    #[inline(always)]
    pub(super) fn ahead(&self, b: usize, count: usize) -> &'a [Panel<F>] {
        let Ahead { from, pace } = self.ahead;
        let (from, to) = (from + b / pace, from + (b + count) / pace);
        self.weights.get(from..to).unwrap_or_default()
    }
}

/// `count` values of every row. A loop, because `map` is not always inlined.
#[inline(always)]
pub(super) fn cut<T, const R: usize>(mut x: [&[T]; R], from: usize, count: usize) -> [&[T]; R] {
    for x in &mut x {
        *x = &x[from..][..count];
    }
    x
}

/// `G` rows of `R` from `first` on.
#[inline(always)]
pub(super) fn group<T: Copy, const R: usize, const G: usize>(rows: [T; R], first: usize) -> [T; G] {
    let mut group = [rows[first]; G];
    for (i, row) in group.iter_mut().enumerate() {
        *row = rows[first + i];
    }
    group
}

/// Asks memory for sub `sub` of a block.
#[inline(always)]
pub(super) fn fetch<F: Half>(panel: &Panel<F>, sub: usize) {
    panel[0].fetch(sub);
    // Two narrow ones share a line.
    if size_of::<F>() >= LINE {
        panel[1].fetch(sub);
    }
}
