//! Who wins by noise, without the noise of those who cannot.
//!
//! # The bound
//!
//! Token `i` has the value `s + G`, with `s <= 0` its score seen from the largest. It can reach `best`
//! only if `G >= best - s`. Now `G <= -ln(1 - u)`, and the 31 leading bits of `1 - u` are a number `y`
//! with `1 - u >= y / 2^31`. So what reaches `best` has
//!
//! `log2 y <= 31 + (s - best) / ln 2`.
//!
//! No logarithm is needed for the left side. The bits of a positive float `2^e * (1 + m)`, read as a
//! whole number of `2^-23`, are `e + 127 + m`, which is never above `log2 y + 127` and at most 0.087
//! below. What the bound lets through beyond those who may win is 6 % of them.
//!
//! The right side is in f32 too, and its rounding is far below [`MARGIN`]: only scores within 45 of
//! `best` matter, and there every summand is below `2^31` units.

use super::{
    philox::{Keys, keys, odd_words, split},
    score::{Score, Scores, narrow},
    wide::widest,
};
use crate::TokenId;

/// Pairs of tokens that are looked at together, the fastest of 16, 32 and 64: shorter loops are unrolled
/// before they are vectorised.
const PAIRS: usize = 64;

/// Tokens that are looked at together.
const BLOCK: usize = 2 * PAIRS;
const TOKENS: TokenId = 128;

/// One doubling.
const UNIT: f32 = 8_388_608.0;

/// `31 + 127` doublings, the logarithm of `2^31` in the bits of a float.
const HIGHEST: f32 = 158.0 * UNIT;

/// `1 - u` is at least `2^-53`, so whose noise would have to be above that need not be asked.
const LEAST: f32 = HIGHEST - 53.0 * UNIT;

/// Above all rounding: half a unit in the last place of numbers below `2^31` is 64.
const MARGIN: f32 = 4096.0;

/// Rounding of a score that was divided by a temperature, for each of it.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// At higher temperatures a distance of scores that no `f32` holds may be a small one, so distances are
/// taken after the division. Below, whoever is so far away is out of reach.
const HOT: f64 = 1e30;

/// Shows `look` the tokens whose noise may lift their score, seen from the largest, to `best` or above,
/// ascending: all that do, and few others. `look` says what is to be reached from there on.
///
/// Scores are those of the tokens from 0 on; `counter` is Philox's for tokens 0 and 1.
pub(super) fn contenders<S: Score>(
    scores: Scores<'_, S>,
    counter: [u32; 4],
    key: [u32; 2],
    best: f64,
    mut look: impl FnMut(TokenId) -> f64,
) {
    let keys = keys(key);
    let doublings = |x: f64| narrow(x * std::f64::consts::LOG2_E) * UNIT;
    let margin = MARGIN + doublings(scores.over(scores.peak()).abs() * ROUNDING);
    let (peak, slope) = (scores.peak(), doublings(1.0 / scores.temperature));
    let hot = scores.temperature > HOT;
    let over_peak = scores.over(peak);
    let mut top = HIGHEST + margin - doublings(best);
    widest(
        #[inline(always)]
        || {
            for (block, values) in (0..).zip(scores.values.chunks(BLOCK)) {
                let mut reach = [f32::NEG_INFINITY; BLOCK];
                if hot {
                    for (reach, z) in reach.iter_mut().zip(values) {
                        *reach = doublings(scores.over(*z) - over_peak) + top;
                    }
                } else {
                    for (reach, z) in reach.iter_mut().zip(values) {
                        *reach = z.above(peak) * slope + top;
                    }
                }
                if !reach
                    .iter()
                    .fold(false, |any, reach| any | (*reach >= LEAST))
                {
                    continue;
                }
                let [first, rest @ ..] = counter;
                let [a, b, c] = rest;
                let counter = [first + block * (TOKENS / 2), a, b, c];
                let logarithms = least_logarithms(counter, &keys);
                let mut passes = 0;
                for (reach, logarithm) in reach.iter().zip(&logarithms) {
                    passes |= u32::from(logarithm <= reach);
                }
                if passes == 0 {
                    continue;
                }
                for (i, (logarithm, reach)) in (0..).zip(logarithms.iter().zip(&reach)) {
                    if logarithm <= reach {
                        let best = look(block * TOKENS + i);
                        top = HIGHEST + margin - doublings(best);
                    }
                }
            }
        },
    );
}

/// A lower bound of `log2 (1 - u) + 158` in units, for the tokens of a block.
#[inline(always)]
fn least_logarithms(counter: [u32; 4], keys: &Keys) -> [f32; BLOCK] {
    let words = halves(odd_words(counter, keys));
    let mut logarithms = [0.0; BLOCK];
    for (logarithm, word) in logarithms.iter_mut().zip(words) {
        // Below 2^31, so the conversions are those of signed numbers, which every machine has.
        let y = (!word >> 1).cast_signed();
        *logarithm = nearest(nearest(y).to_bits().cast_signed());
    }
    logarithms
}

/// The lower and upper halves of each number, in turn.
#[inline(always)]
fn halves(words: [u64; PAIRS]) -> [u32; BLOCK] {
    let mut halves = [0; BLOCK];
    for (pair, word) in halves.as_chunks_mut().0.iter_mut().zip(words) {
        let (high, low) = split(word);
        *pair = [low, high];
    }
    halves
}

/// The nearest `f32`.
#[inline(always)]
#[expect(
    clippy::cast_precision_loss,
    reason = "a unit in the last place is far below the margin"
)]
fn nearest(x: i32) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{philox::philox, wide::first_max};

    /// At any size, temperature and level: all that may reach it are shown, ascending, and few others.
    #[test]
    fn who_may_reach_the_level_is_looked_at() {
        let (counter, key) = ([0, 1, 2, 3], [4, 5]);
        for count in [1u16, 2, 127, 128, 129, 1001] {
            let values: Vec<f32> = (0..count).map(|i| f32::from(i % 37) - 400.0).collect();
            for (temperature, best) in [
                (1.0, -30.0),
                (1.0, 1.5),
                (0.7, 5.0),
                (3.0, 0.1),
                (1e-5, -4.0),
            ] {
                let scores = Scores {
                    values: &values,
                    at: first_max(&values).expect("finite scores"),
                    temperature,
                };
                let bound = |id: TokenId| {
                    let words = philox([id / 2, 1, 2, 3], key);
                    let y = f64::from(!words[1 + id as usize % 2 * 2] >> 1) / f64::from(1u32 << 31);
                    let z = f64::from(values[id as usize] - scores.peak());
                    z / temperature - y.ln()
                };
                let mut found = Vec::new();
                contenders(scores, counter, key, best, |id| {
                    found.push(id);
                    best
                });
                let must = (0..u32::from(count)).filter(|id| bound(*id) >= best);
                let case = format!("{count} {temperature} {best}");
                assert!(must.clone().all(|id| found.contains(&id)), "{case}");
                assert!(found.iter().all(|id| bound(*id) >= best - 0.062), "{case}");
                assert!(found.is_sorted_by(|a, b| a < b), "{case}");
            }
        }
    }

    /// What is looked at may raise the level, and then fewer are.
    #[test]
    fn a_raised_level_counts_from_there_on() {
        let values = [0.0f32; 4096];
        let scores = Scores {
            values: &values,
            at: 0,
            temperature: 1.0,
        };
        let looks = |step: f64| {
            let (mut best, mut looks) = (0.0, 0);
            contenders(scores, [0; 4], [0; 2], best, |_| {
                looks += 1;
                best += step;
                best
            });
            looks
        };
        // Noise is above 0 in the bound of all of them; a new level holds from the next block on.
        assert_eq!((looks(0.0), looks(1.0)), (values.len(), BLOCK));
    }
}
