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

impl Inputs<'_> {
    fn rows(&self) -> usize {
        self.x.len() / self.width
    }
}

/// All rows times the panels of `weights`; `y[r]` takes row `r`'s outputs, the last panel's cut off.
pub(in crate::kernels) fn drive<F: Half>(
    isa: Isa,
    weights: &[Panel<F>],
    inputs: Inputs<'_>,
    y: &mut [&mut [f32]],
) {
    let blocks = inputs.width / (F::SUB * F::SUBS);
    let panels = weights.len() / blocks;
    let mut task = Task {
        isa,
        weights,
        blocks,
        inputs,
        y,
    };
    let mut panel = 0;
    while panel < panels {
        let mut row = 0;
        while row < inputs.rows() {
            row += task.rows(row, panel);
        }
        panel += 1;
    }
}

struct Task<'a, 'y, F> {
    isa: Isa,
    weights: &'a [Panel<F>],
    blocks: usize,
    inputs: Inputs<'a>,
    y: &'a mut [&'y mut [f32]],
}

impl<F: Half> Task<'_, '_, F> {
    /// A tile of as many rows from `row` on as registers hold, and how many those are.
    fn rows(&mut self, row: usize, panel: usize) -> usize {
        let left = self.inputs.rows() - row;
        let most = match (self.isa.is_wide(), F::SCALED) {
            (true, true) => 8,
            // The run of a float has sums of its own.
            (true, false) => 8,
            (false, _) => 3,
        };
        let now = left.div_ceil(left.div_ceil(most));
        match now {
            1 => self.tile::<1, 1>(row, panel),
            2 => self.tile::<2, 1>(row, panel),
            3 => self.tile::<3, 1>(row, panel),
            4 => self.tile::<4, 1>(row, panel),
            5 => self.tile::<5, 1>(row, panel),
            6 => self.tile::<6, 1>(row, panel),
            7 => self.tile::<7, 1>(row, panel),
            _ => self.tile::<8, 1>(row, panel),
        }
        now
    }

    /// `R` rows from `row` times `P` panels from `panel`.
    fn tile<const R: usize, const P: usize>(&mut self, row: usize, panel: usize) {
        let Inputs { x, sums, width } = self.inputs;
        let subs = width / F::SUB;
        let sums = |r| {
            if F::SHIFTED {
                &sums[(row + r) * subs..][..subs]
            } else {
                &[]
            }
        };
        let all = self.isa.run(Tile::<F, R, P> {
            panels: std::array::from_fn(|p| &self.weights[(panel + p) * self.blocks..]),
            blocks: self.blocks,
            x: std::array::from_fn(|r| &x[(row + r) * width..][..width]),
            sums: std::array::from_fn(sums),
            fetches: row == 0,
        });
        for (r, all) in all.iter().enumerate() {
            let y = &mut self.y[row + r][panel * PANEL..];
            for (sums, y) in all.as_flattened().iter().zip(y.chunks_mut(HALF)) {
                y.copy_from_slice(&sums[..y.len()]);
            }
        }
    }
}

/// `R` rows times `P` panels.
struct Tile<'a, F, const R: usize, const P: usize> {
    /// Each from its first block to the last of the task: what follows a panel is read next.
    panels: [&'a [Panel<F>]; P],
    /// Blocks of a panel.
    blocks: usize,
    x: [&'a [f32]; R],
    sums: [&'a [f32]; R],
    /// Whether memory is asked for what comes next; other rows may have done so.
    fetches: bool,
}

impl<F: Half, const R: usize, const P: usize> Kernel for Tile<'_, F, R, P> {
    type Output = [[[[f32; HALF]; 2]; P]; R];

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> Self::Output {
        let all = if F::SCALED {
            self.scaled(simd)
        } else {
            self.floats(simd)
        };
        let mut out = [[[[0.0; HALF]; 2]; P]; R];
        for r in 0..R {
            for p in 0..P {
                for h in 0..2 {
                    out[r][p][h] = simd.lanes(all[r][p][h]);
                }
            }
        }
        out
    }
}

/// Sums of `R` rows and `P` panels.
type Sums<S, const R: usize, const P: usize> = [[[<S as Lanes>::Sixteen; 2]; P]; R];

/// Columns whose products are added up before they are added to the sum: rounding errors grow with these
/// and with their number, not with the width.
const RUN: usize = 32;

/// Bytes between what is computed and what is fetched: what memory delivers while it is waited for.
const AHEAD: usize = 4096;

impl<F: Half, const R: usize, const P: usize> Tile<'_, F, R, P> {
    /// Blocks to fetch ahead.
    const BLOCKS: usize = AHEAD.div_ceil(size_of::<Panel<F>>());

    /// Asks for a sub of the block that is due some time after block `b` of panel `p`.
    #[inline(always)]
    fn fetch(&self, p: usize, b: usize, sub: usize) {
        if let Some(panel) = self.panels[p].get(b + Self::BLOCKS) {
            panel[0].fetch(sub);
            // Two narrow ones share a line.
            if size_of::<F>() >= LINE {
                panel[1].fetch(sub);
            }
        }
    }

    /// Column by column, run by run.
    #[inline(always)]
    fn floats<S: Lanes>(&self, simd: S) -> Sums<S, R, P> {
        let mut acc = [[[simd.splat(0.0); 2]; P]; R];
        let runs = self.blocks / RUN;
        let whole = self.panels.map(|panel| &panel.as_chunks::<RUN>().0[..runs]);
        let x_whole = self.x.map(|x| &x.as_chunks::<RUN>().0[..runs]);
        for run in 0..runs {
            if self.fetches {
                for p in 0..P {
                    for k in 0..RUN {
                        self.fetch(p, run * RUN + k, 0);
                    }
                }
            }
            let panels: [&[Panel<F>]; P] = std::array::from_fn(|p| &whole[p][run][..]);
            let x: [&[f32]; R] = std::array::from_fn(|r| &x_whole[r][run][..]);
            add_run(simd, &mut acc, panels, x);
        }
        let rest = runs * RUN..self.blocks;
        if !rest.is_empty() {
            let panels = self.panels.map(|panel| &panel[rest.clone()]);
            add_run(simd, &mut acc, panels, self.x.map(|x| &x[rest.clone()]));
        }
        acc
    }

    /// Sub by sub: the sum over a sub's columns, times its scale, plus its summand times the sum of the
    /// activations.
    #[inline(always)]
    fn scaled<S: Lanes>(&self, simd: S) -> Sums<S, R, P> {
        let zero = simd.splat(0.0);
        let mut acc = [[[zero; 2]; P]; R];
        for b in 0..self.blocks {
            let block: [&Panel<F>; P] = self.panels.map(|panel| &panel[b]);
            for sub in 0..F::SUBS {
                let at = b * F::SUBS + sub;
                let x: [&[f32]; R] = self.x.map(|x| &x[at * F::SUB..][..F::SUB]);
                let mut part = [[[zero; 2]; P]; R];
                let columns = if F::PAIRS { F::SUB / 2 } else { F::SUB };
                if self.fetches {
                    for p in 0..P {
                        self.fetch(p, b, sub);
                    }
                }
                for j in 0..columns {
                    for p in 0..P {
                        for h in 0..2 {
                            let [low, high] = block[p][h].weights(simd, sub, j);
                            for r in 0..R {
                                part[r][p][h] = simd.fma(low, simd.splat(x[r][j]), part[r][p][h]);
                                if F::PAIRS {
                                    let x = simd.splat(x[r][j + columns]);
                                    part[r][p][h] = simd.fma(high, x, part[r][p][h]);
                                }
                            }
                        }
                    }
                }
                for p in 0..P {
                    for h in 0..2 {
                        let scale = block[p][h].scale(simd, sub);
                        for r in 0..R {
                            acc[r][p][h] = simd.fma(scale, part[r][p][h], acc[r][p][h]);
                        }
                        if F::SHIFTED {
                            let shift = block[p][h].shift(simd, sub);
                            for r in 0..R {
                                let sum = simd.splat(self.sums[r][at]);
                                acc[r][p][h] = simd.fma(shift, sum, acc[r][p][h]);
                            }
                        }
                    }
                }
            }
        }
        acc
    }
}

/// Adds the products of some columns, added up by themselves.
#[inline(always)]
fn add_run<S: Lanes, F: Half, const R: usize, const P: usize>(
    simd: S,
    acc: &mut Sums<S, R, P>,
    panels: [&[Panel<F>]; P],
    x: [&[f32]; R],
) {
    let columns = x[0].len();
    let panels = panels.map(|panel| &panel[..columns]);
    let x = x.map(|x| &x[..columns]);
    let mut part = [[[simd.splat(0.0); 2]; P]; R];
    for k in 0..columns {
        for p in 0..P {
            for h in 0..2 {
                let [w, _] = panels[p][k][h].weights(simd, 0, 0);
                for r in 0..R {
                    part[r][p][h] = simd.fma(w, simd.splat(x[r][k]), part[r][p][h]);
                }
            }
        }
    }
    for r in 0..R {
        for p in 0..P {
            for h in 0..2 {
                acc[r][p][h] = simd.plus(acc[r][p][h], part[r][p][h]);
            }
        }
    }
}
