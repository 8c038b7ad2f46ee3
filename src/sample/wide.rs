//! Loops over a whole vocabulary, compiled for the widest registers of the machine.
//!
//! Plain arithmetic in one fixed order: every machine gives the same bits.

#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};

use super::philox::Blocks;

/// Pairs of tokens that are looked at together.
const PAIRS: usize = 128;

/// Values that are computed together.
const BLOCK: usize = 2 * PAIRS;

/// Sums side by side.
const LANES: usize = 16;

/// Runs `loops`, which are inlined, compiled for the best instruction set of this machine.
#[inline]
fn widest<R>(loops: impl FnOnce() -> R) -> R {
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

/// The sum of `e^(z - peak)`: value `i` is added to sum `i % 16`, then the sums in order.
pub(super) fn sum_of_exponentials(z: &[f64], peak: f64) -> f64 {
    widest(
        #[inline(always)]
        || {
            let mut sums = [0.0; LANES];
            for z in z.chunks(BLOCK) {
                let mut values = [0.0; BLOCK];
                exponentials(z, peak, &mut values[..z.len()]);
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

/// Places of `ln_p` whose noise may lift them to `best` or above, ascending: all that do and few others.
/// Place 0 is an even token id; the other two are Philox's counter and key for it and its neighbour.
///
/// `G <= -ln(1 - u)`, and the 31 leading bits of `1 - u` are a number `y` with `1 - u >= y / 2^31`. So
/// what has `y / 2^31 > e^(ln p - best)` stays below `best`. The margin is far above the rounding.
pub(super) fn may_reach(
    ln_p: &[f64],
    best: f64,
    [first, second, third, fourth]: [u32; 4],
    key: [u32; 2],
) -> Vec<usize> {
    const SCALE: f64 = 1.0 + 1e-9;
    const MARGIN: f64 = 1e-9;
    let mut reach = Vec::new();
    widest(
        #[inline(always)]
        || {
            for (block, ln_p) in ln_p.chunks(BLOCK).enumerate() {
                let pairs = u32::try_from(block * PAIRS).expect("half of the ids of a vocabulary");
                let counter = [first + pairs, second, third, fourth];
                let mut least = [0.0; BLOCK];
                exponentials(ln_p, best, &mut least[..ln_p.len()]);
                let blocks = Blocks::<PAIRS>::new(counter, key);
                let mut over = [0.0; BLOCK];
                let words = blocks.word(1).iter().zip(blocks.word(3));
                for (over, (even, odd)) in over.as_chunks_mut().0.iter_mut().zip(words) {
                    *over = [leading(*even), leading(*odd)];
                }
                for (over, least) in over.iter_mut().zip(&least) {
                    *over -= least * SCALE + MARGIN;
                }
                let mut lowest = [f64::INFINITY; LANES];
                for over in over.as_chunks::<LANES>().0 {
                    for (lowest, over) in lowest.iter_mut().zip(over) {
                        *lowest = if *over < *lowest { *over } else { *lowest };
                    }
                }
                if lowest.iter().any(|over| *over <= 0.0) {
                    let places = (0..ln_p.len()).filter(|i| over[*i] <= 0.0);
                    reach.extend(places.map(|i| block * BLOCK + i));
                }
            }
        },
    );
    reach
}

/// The 31 leading bits of `1 - u` for the upper word of the bits behind `u`.
#[inline(always)]
fn leading(word: u64) -> f64 {
    // The bits of a number in 1..2, less 1.
    let y = (!word & 0xFFFF_FFFF) >> 1;
    f64::from_bits(y << 21 | 1.0f64.to_bits()) - 1.0
}

/// `out = e^(z - less)`.
#[inline(always)]
fn exponentials(z: &[f64], less: f64, out: &mut [f64]) {
    for (out, z) in out.iter_mut().zip(z) {
        *out = exp(z - less);
    }
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
            let z: Vec<f64> = (0..count)
                .map(|i| f64::from(i * 7919 % 1000) / 40.0)
                .collect();
            let mut sums = [0.0; LANES];
            for (i, z) in z.iter().enumerate() {
                sums[i % LANES] += exp(z - 25.0);
            }
            let plain: f64 = sums.iter().sum();
            assert_eq!(sum_of_exponentials(&z, 25.0).to_bits(), plain.to_bits());
        }
    }

    #[test]
    fn what_cannot_be_ruled_out_is_what_may_reach() {
        let (counter, key) = ([6, 1, 2, 3], [4, 5]);
        let ln_p: Vec<f64> = (0..1001).map(|i| -f64::from(i % 37)).collect();
        for best in [-30.0, -3.0, 2.0] {
            let found = may_reach(&ln_p, best, counter, key);
            let bound = |i: usize| {
                let [a, b, c] = [counter[1], counter[2], counter[3]];
                let first = counter[0] + u32::try_from(i / 2).expect("few");
                let words = crate::sample::philox::philox([first, a, b, c], key);
                let y = f64::from(!words[1 + i % 2 * 2] >> 1) / f64::from(1u32 << 31);
                ln_p[i] - y.ln()
            };
            let must = (0..ln_p.len()).filter(|i| bound(*i) >= best);
            assert!(must.clone().all(|i| found.contains(&i)), "{best}");
            assert!(found.iter().all(|i| bound(*i) >= best - 1e-3), "{best}");
            assert!(
                found.is_sorted() && (best < 0.0 || found.len() < 500),
                "{best}"
            );
        }
    }
}
