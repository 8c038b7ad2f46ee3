//! Quantised weights: integers times activations that are integers, too.
//!
//! A lane holds two columns of an output, so that one instruction multiplies both with two activations
//! and adds the products. Sums over a block's columns are exact.

use super::{
    HALF, Half,
    drive::{Sums, Tile, cut, fetch, group, sums},
    rounded::BLOCK,
};
use crate::kernels::simd::{Isa, Kernel, Lanes};

/// Two words of each output: two columns by eight, or four.
pub(super) type Words = [[u16; 2]; HALF];

/// Columns of four pairs.
const GROUP: usize = 8;

/// Some columns of half a panel: `SUBS` times `SUB` integers of each output, each sub with its own scale.
pub(super) trait Quantised: Half {
    /// Values that share a scale.
    const SUB: usize;
    /// Whether a sub's values have a common summand, too; a sub is then a block of activations.
    const SHIFTED: bool = false;

    /// Columns `8 * group + 2 * N` and the next of sub `sub`, for `N` of 0 to 3.
    fn pairs<S: Lanes, const N: usize>(&self, simd: S, sub: usize, group: usize) -> S::Pairs;

    /// The scale of sub `sub`.
    fn scale<S: Lanes>(&self, simd: S, sub: usize) -> S::Sixteen;

    /// The summand of sub `sub`, where values have one.
    #[inline(always)]
    fn shift<S: Lanes>(&self, simd: S, _sub: usize) -> S::Sixteen {
        simd.splat(0.0)
    }
}

/// `R` rows times a panel.
pub(super) fn multiply<Q: Quantised, const R: usize>(isa: Isa, tile: Tile<'_, Q>) -> Sums<R> {
    let (inputs, first) = (tile.inputs, tile.row);
    let (pairs, blocks) = (inputs.width / 2, inputs.width / BLOCK);
    isa.run(Ints::<Q, R> {
        x: std::array::from_fn(|r| &inputs.rounded.pairs[(first + r) * pairs..][..pairs]),
        scales: std::array::from_fn(|r| &inputs.rounded.scales[(first + r) * blocks..][..blocks]),
        sums: std::array::from_fn(|r| &inputs.rounded.sums[(first + r) * blocks..][..blocks]),
        tile,
    })
}

struct Ints<'a, Q, const R: usize> {
    tile: Tile<'a, Q>,
    x: [&'a [[i16; 2]]; R],
    scales: [&'a [f32]; R],
    sums: [&'a [f32]; R],
}

impl<Q: Quantised, const R: usize> Kernel for Ints<'_, Q, R> {
    type Output = Sums<R>;

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) -> Sums<R> {
        let mut acc = [[simd.splat(0.0); 2]; R];
        for (b, block) in self.tile.blocks().iter().enumerate() {
            for sub in 0..Q::COLUMNS / Q::SUB {
                for panel in self.tile.ahead(b, 1) {
                    fetch(panel, sub);
                }
                let column = b * Q::COLUMNS + sub * Q::SUB;
                let x = cut(self.x, column / 2, Q::SUB / 2);
                let at = column / BLOCK;
                for h in 0..2 {
                    let part = products(simd, &block[h], sub, x);
                    let scale = block[h].scale(simd, sub);
                    for r in 0..R {
                        let scale = simd.product(scale, simd.splat(self.scales[r][at]));
                        acc[r][h] = simd.fma(scale, simd.floats(part[r]), acc[r][h]);
                    }
                    if Q::SHIFTED {
                        let shift = block[h].shift(simd, sub);
                        for (acc, sums) in acc.iter_mut().zip(&self.sums) {
                            acc[h] = simd.fma(shift, simd.splat(sums[at]), acc[h]);
                        }
                    }
                }
            }
        }
        sums(simd, acc)
    }
}

/// The sums of a sub's products, of as many rows at a time as registers have room for.
#[inline(always)]
fn products<S: Lanes, Q: Quantised, const R: usize>(
    simd: S,
    weights: &Q,
    sub: usize,
    x: [&[[i16; 2]]; R],
) -> [S::Ints; R] {
    if S::WIDE || R <= 6 {
        return products_of(simd, weights, sub, x);
    }
    let mut part = [simd.zero(); R];
    let first: [_; 4] = products_of(simd, weights, sub, group(x, 0));
    part[..4].copy_from_slice(&first);
    if R == 7 {
        let last: [_; 3] = products_of(simd, weights, sub, group(x, 4));
        part[4..].copy_from_slice(&last);
    } else {
        let last: [_; 4] = products_of(simd, weights, sub, group(x, 4));
        part[4..].copy_from_slice(&last);
    }
    part
}

/// The sums of a sub's products.
#[inline(always)]
fn products_of<S: Lanes, Q: Quantised, const R: usize>(
    simd: S,
    weights: &Q,
    sub: usize,
    x: [&[[i16; 2]]; R],
) -> [S::Ints; R] {
    let mut part = [simd.zero(); R];
    for group in 0..Q::SUB / GROUP {
        let x = cut(x, group * GROUP / 2, GROUP / 2);
        add(
            simd,
            weights.pairs::<S, 0>(simd, sub, group),
            x,
            0,
            &mut part,
        );
        add(
            simd,
            weights.pairs::<S, 1>(simd, sub, group),
            x,
            1,
            &mut part,
        );
        add(
            simd,
            weights.pairs::<S, 2>(simd, sub, group),
            x,
            2,
            &mut part,
        );
        add(
            simd,
            weights.pairs::<S, 3>(simd, sub, group),
            x,
            3,
            &mut part,
        );
    }
    part
}

/// Adds the products of pair `j` of every row.
#[inline(always)]
fn add<S: Lanes, const R: usize>(
    simd: S,
    weights: S::Pairs,
    x: [&[[i16; 2]]; R],
    j: usize,
    part: &mut [S::Ints; R],
) {
    for r in 0..R {
        part[r] = simd.dot(weights, simd.pair(x[r][j]), part[r]);
    }
}

/// Gives a quantised half the products of this file.
macro_rules! half {
    ($name:ident, $columns:literal, |$self:ident, $sub:pat_param| $fetch:block) => {
        impl Half for $name {
            const COLUMNS: usize = $columns;
            const ROUNDED: bool = true;

            fn multiply<const R: usize>(isa: Isa, tile: Tile<'_, Self>) -> Sums<R> {
                ints::multiply(isa, tile)
            }

            #[inline(always)]
            fn fetch(&$self, $sub: usize) $fetch
        }
    };
}
pub(super) use half;
