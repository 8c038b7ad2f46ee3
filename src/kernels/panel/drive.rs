//! Rows times panels, tile by tile.

use super::{Panel, WIDE};
use crate::kernels::simd::Lanes;

/// Rows of activations, with the sums of each sub where the format needs them.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernels) struct Inputs<'a> {
    /// `[rows, width]`.
    pub(in crate::kernels) x: &'a [f32],
    /// `[rows, width / SUB]`; empty if no value is shifted.
    pub(in crate::kernels) sums: &'a [f32],
    pub(in crate::kernels) width: usize,
}

impl Inputs<'_> {
    fn rows(&self) -> usize {
        self.x.len() / self.width
    }
}

/// All rows times the panels of `weights`; `y[r]` takes row `r`'s outputs, the last panel's cut off.
#[inline(always)]
pub(in crate::kernels) fn drive<S: Lanes, F: Panel>(
    simd: S,
    weights: &[F],
    inputs: Inputs<'_>,
    y: &mut [&mut [f32]],
) {
    let blocks = inputs.width / (F::SUB * F::SUBS);
    let panels = weights.len() / blocks;
    let rows = inputs.rows();
    let mut first = 0;
    while first < panels {
        let left = panels - first;
        let mut task = Task {
            weights: &weights[first * blocks..],
            blocks,
            inputs,
            first: first * WIDE,
        };
        if rows == 1 {
            let taken = left.min(4);
            task.tile::<S, 1, 4>(simd, 0, taken, y);
            first += taken;
            continue;
        }
        let taken = left.min(2);
        let mut row = 0;
        while row < rows {
            row += task.rows(simd, row, rows - row, taken, y);
        }
        first += taken;
    }
}

struct Task<'a, F> {
    weights: &'a [F],
    blocks: usize,
    inputs: Inputs<'a>,
    first: usize,
}

impl<F: Panel> Task<'_, F> {
    /// A tile of as many of `left` rows as registers hold, and how many those are.
    #[inline(always)]
    fn rows<S: Lanes>(
        &mut self,
        simd: S,
        row: usize,
        left: usize,
        taken: usize,
        y: &mut [&mut [f32]],
    ) -> usize {
        let most = if S::WIDE { 8 } else { 3 };
        let now = left.min(most);
        match now {
            1 => self.tile::<S, 1, 2>(simd, row, taken, y),
            2 => self.tile::<S, 2, 2>(simd, row, taken, y),
            3 => self.tile::<S, 3, 2>(simd, row, taken, y),
            4 => self.tile::<S, 4, 2>(simd, row, taken, y),
            5 => self.tile::<S, 5, 2>(simd, row, taken, y),
            6 => self.tile::<S, 6, 2>(simd, row, taken, y),
            7 => self.tile::<S, 7, 2>(simd, row, taken, y),
            _ => self.tile::<S, 8, 2>(simd, row, taken, y),
        }
        now
    }

    /// `R` rows from `row` times `taken` of `P` panels; a panel that is not there is another's twin.
    #[inline(always)]
    fn tile<S: Lanes, const R: usize, const P: usize>(
        &mut self,
        simd: S,
        row: usize,
        taken: usize,
        y: &mut [&mut [f32]],
    ) {
        let Inputs { x, sums, width } = self.inputs;
        let panels: [&[F]; P] =
            std::array::from_fn(|p| &self.weights[p.min(taken - 1) * self.blocks..][..self.blocks]);
        let x: [&[f32]; R] = std::array::from_fn(|r| &x[(row + r) * width..][..width]);
        let subs = width / F::SUB;
        let sums: [&[f32]; R] = std::array::from_fn(|r| {
            if F::SHIFTED {
                &sums[(row + r) * subs..][..subs]
            } else {
                &[]
            }
        });
        let all = if F::SCALED {
            scaled(simd, panels, x, sums)
        } else {
            floats(simd, panels, x)
        };
        for (r, all) in all.into_iter().enumerate() {
            for (p, sums) in all.into_iter().take(taken).enumerate() {
                let to = &mut y[row + r][self.first + p * WIDE..];
                let outputs = to.len().min(WIDE);
                to[..outputs].copy_from_slice(&simd.lanes(sums)[..outputs]);
            }
        }
    }
}

/// Columns whose products are added up before they are added to the sum: rounding errors grow with these
/// and with their number, not with the width.
const RUN: usize = 8;

/// Column by column, run by run.
#[inline(always)]
fn floats<S: Lanes, F: Panel, const R: usize, const P: usize>(
    simd: S,
    panels: [&[F]; P],
    x: [&[f32]; R],
) -> [[S::Sixteen; P]; R] {
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    let mut acc = [[zero; P]; R];
    let width = x[0].len();
    for from in (0..width).step_by(RUN) {
        let columns = RUN.min(width - from);
        let panels = panels.map(|panel| &panel[from..][..columns]);
        let x = x.map(|x| &x[from..][..columns]);
        let mut part = [[zero; P]; R];
        for k in 0..columns {
            for p in 0..P {
                let [w, _] = panels[p][k].weights(simd, 0, 0);
                for r in 0..R {
                    part[r][p] = simd.fma(w, simd.splat(x[r][k]), part[r][p]);
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                acc[r][p] = simd.fma(part[r][p], one, acc[r][p]);
            }
        }
    }
    acc
}

/// Sub by sub: the sum over a sub's columns, times its scale, plus its summand times the sum of the
/// activations.
#[inline(always)]
fn scaled<S: Lanes, F: Panel, const R: usize, const P: usize>(
    simd: S,
    panels: [&[F]; P],
    x: [&[f32]; R],
    sums: [&[f32]; R],
) -> [[S::Sixteen; P]; R] {
    let zero = simd.splat(0.0);
    let mut acc = [[zero; P]; R];
    for b in 0..panels[0].len() {
        let block: [&F; P] = panels.map(|panel| &panel[b]);
        for sub in 0..F::SUBS {
            let at = b * F::SUBS + sub;
            let x: [&[f32]; R] = x.map(|x| &x[at * F::SUB..][..F::SUB]);
            let mut part = [[zero; P]; R];
            let half = if F::PAIRS { F::SUB / 2 } else { F::SUB };
            for j in 0..half {
                for p in 0..P {
                    let [low, high] = block[p].weights(simd, sub, j);
                    for r in 0..R {
                        part[r][p] = simd.fma(low, simd.splat(x[r][j]), part[r][p]);
                        if F::PAIRS {
                            part[r][p] = simd.fma(high, simd.splat(x[r][j + half]), part[r][p]);
                        }
                    }
                }
            }
            for p in 0..P {
                let scale = block[p].scale(simd, sub);
                for r in 0..R {
                    acc[r][p] = simd.fma(scale, part[r][p], acc[r][p]);
                }
                if F::SHIFTED {
                    let shift = block[p].shift(simd, sub);
                    for r in 0..R {
                        acc[r][p] = simd.fma(shift, simd.splat(sums[r][at]), acc[r][p]);
                    }
                }
            }
        }
    }
    acc
}
