//! Float weights: column by column, in runs.

use super::{
    HALF, Half, Panel,
    drive::{Sums, Tile, cut, fetch as fetch_panel},
    fetch,
};
use crate::kernels::simd::{Isa, Kernel, Lanes};

/// One column.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(in crate::kernels) struct F32(pub(super) [f32; HALF]);

/// One column of IEEE halves.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct F16(pub(super) [u16; HALF]);

/// One column of upper halves of `f32`.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(in crate::kernels) struct Bf16(pub(super) [u16; HALF]);

impl F32 {
    /// Sets the weight of output `lane`.
    #[inline(always)]
    pub(in crate::kernels) fn put(&mut self, lane: usize, value: f32) {
        self.0[lane] = value;
    }
}

/// One column of half a panel.
trait Column: Half {
    fn weights<S: Lanes>(&self, simd: S) -> S::Sixteen;
}

macro_rules! float {
    ($name:ident, $read:ident) => {
        impl Half for $name {
            const COLUMNS: usize = 1;
            const ROUNDED: bool = false;

            fn rows(isa: Isa) -> usize {
                if isa.is_wide() { 8 } else { 6 }
            }

            fn multiply<const R: usize>(isa: Isa, tile: Tile<'_, Self>) -> Sums<R> {
                isa.run(Floats::<Self, R>::new(tile))
            }

            #[inline(always)]
            fn fetch(&self, _: usize) {
                fetch(&self.0);
            }
        }

        impl Column for $name {
            #[inline(always)]
            fn weights<S: Lanes>(&self, simd: S) -> S::Sixteen {
                simd.$read(&self.0)
            }
        }
    };
}

float!(F32, sixteen);
float!(F16, halves);
float!(Bf16, uppers);

/// `R` rows times a panel.
struct Floats<'a, F, const R: usize> {
    tile: Tile<'a, F>,
    x: [&'a [f32]; R],
}

/// Columns whose products are added up before they are added to the sum: rounding errors grow with these
/// and with their number, not with the width.
const RUN: usize = 16;

impl<'a, F, const R: usize> Floats<'a, F, R> {
    fn new(tile: Tile<'a, F>) -> Self {
        let (x, width) = (tile.inputs.x, tile.inputs.width);
        let first = tile.row;
        Self {
            tile,
            x: std::array::from_fn(|r| &x[(first + r) * width..][..width]),
        }
    }
}

impl<F: Column, const R: usize> Kernel for Floats<'_, F, R> {
    type Output = Sums<R>;

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> Sums<R> {
        let mut acc = [[simd.splat(0.0); 2]; R];
        let (runs, rest) = self.tile.blocks().as_chunks::<RUN>();
        for (run, panel) in runs.iter().enumerate() {
            let x = cut(self.x, run * RUN, RUN);
            let ahead = self.tile.ahead(run * RUN, RUN);
            add_run(simd, &mut acc, panel, x, ahead);
        }
        if !rest.is_empty() {
            let x = cut(self.x, runs.len() * RUN, rest.len());
            add_run(simd, &mut acc, rest, x, &[]);
        }
        let mut out = [[[0.0; HALF]; 2]; R];
        for r in 0..R {
            for h in 0..2 {
                out[r][h] = simd.lanes(acc[r][h]);
            }
        }
        out
    }
}

/// Adds the products of some columns, added up by themselves: of both halves together where there are
/// registers for that.
#[inline(always)]
fn add_run<S: Lanes, F: Column, const R: usize>(
    simd: S,
    acc: &mut [[S::Sixteen; 2]; R],
    panel: &[Panel<F>],
    x: [&[f32]; R],
    ahead: &[Panel<F>],
) {
    let run = Run { panel, x, ahead };
    if S::WIDE || R <= 2 {
        run.add::<S, 2>(simd, acc, 0);
    } else {
        run.add::<S, 1>(simd, acc, 0);
        Run { ahead: &[], ..run }.add::<S, 1>(simd, acc, 1);
    }
}

/// Some columns of a panel and of `R` rows.
struct Run<'a, F, const R: usize> {
    panel: &'a [Panel<F>],
    x: [&'a [f32]; R],
    ahead: &'a [Panel<F>],
}

impl<F: Column, const R: usize> Run<'_, F, R> {
    /// Of `H` halves from `first`.
    #[inline(always)]
    fn add<S: Lanes, const H: usize>(&self, simd: S, acc: &mut [[S::Sixteen; 2]; R], first: usize) {
        let columns = self.panel.len();
        let x = cut(self.x, 0, columns);
        let mut part = [[simd.splat(0.0); H]; R];
        for (k, panel) in self.panel.iter().enumerate() {
            if let Some(panel) = self.ahead.get(k) {
                fetch_panel(panel, 0);
            }
            for (h, half) in panel[first..][..H].iter().enumerate() {
                let w = half.weights(simd);
                for r in 0..R {
                    part[r][h] = simd.fma(w, simd.splat(x[r][k]), part[r][h]);
                }
            }
        }
        for r in 0..R {
            for h in 0..H {
                acc[r][first + h] = simd.plus(acc[r][first + h], part[r][h]);
            }
        }
    }
}
