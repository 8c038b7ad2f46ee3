//! Rows times panels, tile by tile.

use super::{HALF, Half, LINE, PANEL, Panel};
use crate::kernels::simd::{Isa, Kernel, Lanes};

/// Rows of activations, with the sums of each sub where the format needs them.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Inputs<'a> {
    /// `[rows, width]`.
    pub(in crate::kernels) x: &'a [f32],
    /// `[rows, width / SUB]`; empty if no value is shifted.
    pub(in crate::kernels) sums: &'a [f32],
    pub(in crate::kernels) width: usize,
}

/// All rows times the first panels of `weights`, as many as `y` has room for; `y[r]` takes row `r`'s
/// outputs, the last panel's cut off.
///
/// The rows of a panel are shared out to as few tiles as registers allow.
pub(in crate::kernels) fn drive<F: Half>(
    isa: Isa,
    weights: &[Panel<F>],
    inputs: Inputs<'_>,
    y: &mut [&mut [f32]],
) {
    let rows = inputs.x.len() / inputs.width;
    let blocks = inputs.width / (F::SUB * F::SUBS);
    let tiles = rows.div_ceil(if isa.is_wide() { 8 } else { 3 });
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
        let Inputs { x, sums, width } = self.inputs;
        let subs = if F::SHIFTED { width / F::SUB } else { 0 };
        let all = self.isa.run(Tile::<F, R> {
            weights: self.weights,
            blocks: self.blocks,
            x: std::array::from_fn(|r| &x[(row + r) * width..][..width]),
            sums: std::array::from_fn(|r| &sums[(row + r) * subs..][..subs]),
            ahead,
        });
        for (sums, y) in all.iter().zip(&mut self.y[row..]) {
            for (sums, y) in sums.iter().zip(y[self.first..].chunks_mut(HALF)) {
                y.copy_from_slice(&sums[..y.len()]);
            }
        }
    }
}

/// `R` rows times a panel.
struct Tile<'a, F, const R: usize> {
    /// The panel and what follows it in memory.
    weights: &'a [Panel<F>],
    /// Blocks of the panel.
    blocks: usize,
    x: [&'a [f32]; R],
    sums: [&'a [f32]; R],
    ahead: Ahead,
}

/// A value for each half of a panel and each of `R` rows.
type Halves<S, const R: usize> = [[<S as Lanes>::Sixteen; 2]; R];

impl<F: Half, const R: usize> Kernel for Tile<'_, F, R> {
    type Output = [[[f32; HALF]; 2]; R];

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> Self::Output {
        let all = if F::SCALED {
            self.scaled(simd)
        } else {
            self.floats(simd)
        };
        let mut out = [[[0.0; HALF]; 2]; R];
        for r in 0..R {
            for h in 0..2 {
                out[r][h] = simd.lanes(all[r][h]);
            }
        }
        out
    }
}

/// Columns whose products are added up before they are added to the sum: rounding errors grow with these
/// and with their number, not with the width.
const RUN: usize = 16;

impl<F: Half, const R: usize> Tile<'_, F, R> {
    /// What memory is asked for while `count` blocks from `b` on are computed.
    #[inline(always)]
    fn ahead(&self, b: usize, count: usize) -> &[Panel<F>] {
        let Ahead { from, pace } = self.ahead;
        let (from, to) = (from + b / pace, from + (b + count) / pace);
        self.weights.get(from..to).unwrap_or_default()
    }

    /// Column by column, run by run.
    #[inline(always)]
    fn floats<S: Lanes>(&self, simd: S) -> Halves<S, R> {
        let mut acc = [[simd.splat(0.0); 2]; R];
        let runs = self.blocks / RUN;
        let panel = &self.weights.as_chunks::<RUN>().0[..runs];
        for (run, panel) in panel.iter().enumerate() {
            let x = cut(self.x, run * RUN, RUN);
            let ahead = self.ahead(run * RUN, RUN);
            add_run(simd, &mut acc, panel, x, ahead);
        }
        let rest = runs * RUN..self.blocks;
        if !rest.is_empty() {
            let x = cut(self.x, rest.start, rest.len());
            add_run(simd, &mut acc, &self.weights[rest], x, &[]);
        }
        acc
    }

    /// Sub by sub: the sum over a sub's columns, times its scale, plus its summand times the sum of the
    /// activations.
    #[inline(always)]
    fn scaled<S: Lanes>(&self, simd: S) -> Halves<S, R> {
        let zero = simd.splat(0.0);
        let mut acc = [[zero; 2]; R];
        let columns = if F::PAIRS { F::SUB / 2 } else { F::SUB };
        for (b, block) in self.weights[..self.blocks].iter().enumerate() {
            for sub in 0..F::SUBS {
                for panel in self.ahead(b, 1) {
                    fetch(panel, sub);
                }
                let at = b * F::SUBS + sub;
                let x = cut(self.x, at * F::SUB, F::SUB);
                let mut part = [[zero; 2]; R];
                for j in 0..columns {
                    for h in 0..2 {
                        let [low, high] = block[h].weights(simd, sub, j);
                        for r in 0..R {
                            part[r][h] = simd.fma(low, simd.splat(x[r][j]), part[r][h]);
                            if F::PAIRS {
                                let x = simd.splat(x[r][j + columns]);
                                part[r][h] = simd.fma(high, x, part[r][h]);
                            }
                        }
                    }
                }
                for h in 0..2 {
                    let scale = block[h].scale(simd, sub);
                    for r in 0..R {
                        acc[r][h] = simd.fma(scale, part[r][h], acc[r][h]);
                    }
                    if F::SHIFTED {
                        let shift = block[h].shift(simd, sub);
                        for (acc, sums) in acc.iter_mut().zip(&self.sums) {
                            acc[h] = simd.fma(shift, simd.splat(sums[at]), acc[h]);
                        }
                    }
                }
            }
        }
        acc
    }
}

/// `count` columns of every row. A loop, because `map` is not always inlined.
#[inline(always)]
fn cut<const R: usize>(mut x: [&[f32]; R], from: usize, count: usize) -> [&[f32]; R] {
    for x in &mut x {
        *x = &x[from..][..count];
    }
    x
}

/// Asks memory for sub `sub` of a block.
#[inline(always)]
fn fetch<F: Half>(panel: &Panel<F>, sub: usize) {
    panel[0].fetch(sub);
    // Two narrow ones share a line.
    if size_of::<F>() >= LINE {
        panel[1].fetch(sub);
    }
}

/// Adds the products of some columns, added up by themselves.
#[inline(always)]
fn add_run<S: Lanes, F: Half, const R: usize>(
    simd: S,
    acc: &mut Halves<S, R>,
    panel: &[Panel<F>],
    x: [&[f32]; R],
    ahead: &[Panel<F>],
) {
    let columns = panel.len();
    let x = cut(x, 0, columns);
    let mut part = [[simd.splat(0.0); 2]; R];
    for k in 0..columns {
        if let Some(panel) = ahead.get(k) {
            fetch(panel, 0);
        }
        for h in 0..2 {
            let [w, _] = panel[k][h].weights(simd, 0, 0);
            for r in 0..R {
                part[r][h] = simd.fma(w, simd.splat(x[r][k]), part[r][h]);
            }
        }
    }
    for r in 0..R {
        for h in 0..2 {
            acc[r][h] = simd.plus(acc[r][h], part[r][h]);
        }
    }
}
