//! Float weights: column by column, in runs.

use super::{
    HALF, Half, Panel,
    drive::{Sums, Tile, cut, fetch as fetch_panel, group, sums},
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
        sums(simd, acc)
    }
}

/// Adds the products of some columns, added up by themselves: of as many halves and rows at a time as
/// registers have room for.
#[inline(always)]
fn add_run<S: Lanes, F: Column, const R: usize>(
    simd: S,
    acc: &mut [[S::Sixteen; 2]; R],
    panel: &[Panel<F>],
    x: [&[f32]; R],
    ahead: &[Panel<F>],
) {
    let run = Run { panel, ahead };
    if S::WIDE || R <= 2 {
        return run.add::<S, 2, R>(simd, acc, x, 0);
    }
    for h in 0..2 {
        let run = Run {
            ahead: if h == 0 { ahead } else { &[] },
            ..run
        };
        if R <= 6 {
            run.add::<S, 1, R>(simd, acc, x, h);
            continue;
        }
        let (first, last) = acc.split_at_mut(4);
        run.add::<S, 1, 4>(simd, first, group(x, 0), h);
        let run = Run { ahead: &[], ..run };
        if R == 7 {
            run.add::<S, 1, 3>(simd, last, group(x, 4), h);
        } else {
            run.add::<S, 1, 4>(simd, last, group(x, 4), h);
        }
    }
}

/// Some columns of a panel, and those that memory is asked for meanwhile.
#[derive(Clone, Copy)]
struct Run<'a, F> {
    panel: &'a [Panel<F>],
    ahead: &'a [Panel<F>],
}

impl<F: Column> Run<'_, F> {
    /// Of `H` halves from `first`, and `R` rows.
    #[inline(always)]
    fn add<S: Lanes, const H: usize, const R: usize>(
        &self,
        simd: S,
        acc: &mut [[S::Sixteen; 2]],
        x: [&[f32]; R],
        first: usize,
    ) {
        let x = cut(x, 0, self.panel.len());
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
        for (acc, part) in acc.iter_mut().zip(part) {
            for (h, part) in part.into_iter().enumerate() {
                acc[first + h] = simd.plus(acc[first + h], part);
            }
        }
    }
}
