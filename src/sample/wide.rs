//! Loops over a whole vocabulary, compiled for the widest registers of the machine.
//!
//! Plain arithmetic in one fixed order: every machine gives the same bits.

#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};

use super::score::{Score, Scores};

/// Values that are computed together.
const BLOCK: usize = 256;

/// Sums side by side.
const LANES: usize = 16;

/// Maxima side by side, and values that are looked at together.
const SPAN: usize = 64;

/// Runs `loops`, which are inlined, compiled for the best instruction set of this machine.
#[inline]
pub(super) fn widest<R>(loops: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(avx512) = V4::try_new() {
            return avx512.vectorize(loops);
        }
        if let Some(avx2) = V3::try_new() {
            return avx2.vectorize(loops);
        }
    }
    loops()
}

/// Index of the first of the largest values; `None` if there is none, or all are masked.
pub(super) fn first_max<S: Score>(values: &[S]) -> Option<usize> {
    survey(values).1
}

/// Whether all values are finite, and [`first_max`], which means nothing if one is NaN.
///
/// A pass without branches, at the speed of memory, and one that ends at the first of the largest.
pub(super) fn survey<S: Score>(values: &[S]) -> (bool, Option<usize>) {
    widest(
        #[inline(always)]
        || {
            let (mut best, mut zero) = ([S::MASKED; SPAN], [S::ZERO; SPAN]);
            let (chunks, rest) = values.as_chunks::<SPAN>();
            for chunk in chunks {
                for i in 0..SPAN {
                    best[i] = larger(best[i], chunk[i]);
                    // An infinity or NaN times zero is NaN, and stays.
                    zero[i] = zero[i] + chunk[i] * S::ZERO;
                }
            }
            let best = best
                .iter()
                .chain(rest)
                .fold(S::MASKED, |a, b| larger(a, *b));
            let zeros = zero
                .iter()
                .copied()
                .chain(rest.iter().map(|x| *x * S::ZERO));
            let finite = zeros.fold(true, |all, x| all & (x == S::ZERO));
            if best == S::MASKED {
                return (finite, None);
            }
            let holds = |chunk: &[S]| chunk.iter().fold(false, |any, x| any | (*x == best));
            let place = values.chunks(SPAN).position(holds).and_then(|chunk| {
                let place = values[chunk * SPAN..].iter().position(|x| *x == best)?;
                Some(chunk * SPAN + place)
            });
            (finite, place)
        },
    )
}

#[inline(always)]
fn larger<S: Score>(a: S, b: S) -> S {
    if b > a { b } else { a }
}

/// A value that at least `k` of the values reach, and few more; masked if there are not `k`.
///
/// The values are dealt to groups, of whose maxima the `k` largest are `k` values.
pub(super) fn reached_by<S: Score>(values: &[S], k: usize) -> S {
    const GROUPS: usize = 1024;
    if k == 0 || k > values.len() {
        return S::MASKED;
    }
    let groups = k.saturating_mul(4).max(GROUPS).min(values.len());
    let mut maxima = vec![S::MASKED; groups];
    widest(
        #[inline(always)]
        || {
            for chunk in values.chunks(groups) {
                for (max, x) in maxima.iter_mut().zip(chunk) {
                    *max = larger(*max, *x);
                }
            }
        },
    );
    *maxima.select_nth_unstable_by(k - 1, |a, b| b.order(*a)).1
}

/// Places of the scores that are not masked and not further than `least` below the largest,
/// ascending.
pub(super) fn within<S: Score>(scores: Scores<'_, S>, least: f32) -> Vec<usize> {
    let peak = scores.peak();
    let mut places = Vec::new();
    widest(
        #[inline(always)]
        || {
            for (span, values) in scores.values.chunks(SPAN).enumerate() {
                let mut inside = [false; SPAN];
                for (inside, x) in inside.iter_mut().zip(values) {
                    *inside = (*x > S::MASKED) & (x.above(peak) >= least);
                }
                if inside.iter().fold(false, |any, inside| any | inside) {
                    let some = (0..values.len()).filter(|i| inside[*i]);
                    places.extend(some.map(|i| span * SPAN + i));
                }
            }
        },
    );
    places
}

/// The sum of `e^score`, scores seen from the largest: value `i` is added to sum `i % 16`, then the
/// sums in order.
pub(super) fn sum_of_exponentials<S: Score>(scores: Scores<'_, S>) -> f64 {
    let peak = scores.over(scores.peak());
    widest(
        #[inline(always)]
        || {
            let mut sums = [0.0; LANES];
            for block in scores.values.chunks(BLOCK) {
                let mut values = [0.0; BLOCK];
                for (value, z) in values.iter_mut().zip(block) {
                    *value = exp(scores.over(*z) - peak);
                }
                for values in values.as_chunks::<LANES>().0 {
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += value;
                    }
                }
            }
            sums.iter().sum()
        },
    )
}

/// `e^x` to about 2 units in the last place in plain arithmetic; 0 below -708, at most e^709.
#[inline(always)]
fn exp(x: f64) -> f64 {
    const LOW: f64 = -708.0;
    const HIGH: f64 = 709.0;
    // Adding it leaves the nearest integer in the low bits of the sum.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // ln 2 in two parts; multiples of the first by small integers are exact.
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const SERIES: [f64; 13] = [
        479_001_600.0,
        39_916_800.0,
        3_628_800.0,
        362_880.0,
        40_320.0,
        5_040.0,
        720.0,
        120.0,
        24.0,
        6.0,
        2.0,
        1.0,
        1.0,
    ];

    let inside = x.clamp(LOW, HIGH);
    let rounded = inside * std::f64::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = inside - n * LN2_HIGH - n * LN2_LOW;
    let mut series = 1.0 / 6_227_020_800.0;
    for factorial in SERIES {
        series = series * r + 1.0 / factorial;
    }
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let scale = f64::from_bits(exponent.wrapping_add(1023) << 52);
    if x < LOW { 0.0 } else { series * scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_accurate_and_total() {
        for i in -70_000..70_000 {
            let x = f64::from(i) * 0.01;
            let (found, exact) = (exp(x), x.exp());
            assert!((found - exact).abs() <= 4.0 * f64::EPSILON * exact, "{x}");
        }
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert!(exp(f64::INFINITY).is_normal() && exp(f64::NAN).is_nan());
    }

    #[test]
    fn the_widest_registers_change_no_bit() {
        for count in [1, 15, 16, 255, 256, 257, 5000] {
            let values: Vec<f64> = (0..count)
                .map(|i| f64::from(i * 7919 % 1000) / 40.0)
                .collect();
            let scores = Scores {
                values: &values,
                at: first_max(&values).expect("finite scores"),
                temperature: 1.0,
            };
            let mut sums = [0.0; LANES];
            for (i, z) in values.iter().enumerate() {
                sums[i % LANES] += exp(z - scores.peak());
            }
            let plain: f64 = sums.iter().sum();
            assert_eq!(sum_of_exponentials(scores).to_bits(), plain.to_bits());
        }
    }

    #[test]
    fn maxima_and_places_are_those_of_plain_loops() {
        for count in [1u16, 2, 63, 64, 65, 129, 1000, 1700] {
            let masked = f32::NEG_INFINITY;
            let value = |i| f32::from(i * 37 % 211);
            let values: Vec<f32> = (0..count)
                .map(|i| if i % 5 == 3 { masked } else { value(i) })
                .collect();
            let mut sorted = values.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let at = first_max(&values).expect("some are not masked");
            let first = values.iter().position(|x| *x == sorted[0]);
            assert_eq!(Some(at), first, "{count}");
            for k in [1, 2, 40, 300, usize::from(count), 6000] {
                let bound = reached_by(&values, k);
                let exact = sorted.get(k - 1).copied().unwrap_or(masked);
                assert!(bound <= exact, "{count} {k}");
            }
            let scores = Scores {
                values: &values,
                at,
                temperature: 1.0,
            };
            for least in [0.0, -50.0, masked] {
                let inside = |i: &usize| values[*i] > masked && values[*i] - sorted[0] >= least;
                let plain: Vec<_> = (0..values.len()).filter(inside).collect();
                assert_eq!(within(scores, least), plain, "{count} {least}");
            }
        }
        assert_eq!(first_max::<f64>(&[]), None);
        assert_eq!(first_max(&[f64::NEG_INFINITY; 70]), None);
        assert_eq!(first_max(&[-0.0f32, 0.0]), Some(0));
    }
}
