//! How much faster, and how sure.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// What one run did: tokens delivered, and the wall seconds that it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Tokens.
    pub tokens: usize,
    /// Seconds.
    pub seconds: f64,
}

impl Throughput {
    /// Tokens per second; none if no time passed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    pub fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.tokens as f64 / self.seconds)
    }

    /// The sum of runs.
    #[must_use]
    pub fn sum(runs: &[Self]) -> Self {
        Self {
            tokens: runs.iter().map(|run| run.tokens).sum(),
            seconds: runs.iter().map(|run| run.seconds).sum(),
        }
    }
}

/// A ratio of throughputs over paired repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// All tokens over all seconds, divided by plain decoding's: a ratio of sums.
    pub ratio: f64,
    /// A 95 % interval around it, from the spread of the repeats; none of less than two.
    pub interval: Option<[f64; 2]>,
    /// Repeats.
    pub repeats: usize,
}

impl Speedup {
    /// `arm` over `plain`; repeat i of the one ran beside repeat i of the other. The interval is
    /// Student's, on the logarithms of the ratios of the pairs, so that what slowed both down does not
    /// widen it. None unless every pair has two rates above 0.
    #[must_use]
    pub fn of(plain: &[Throughput], arm: &[Throughput]) -> Option<Self> {
        let quotient = |a: &Throughput, b: &Throughput| {
            let ratio = a.rate()? / b.rate()?;
            (ratio.is_finite() && ratio > 0.0).then_some(ratio)
        };
        if plain.len() != arm.len() {
            return None;
        }
        let pairs = arm.iter().zip(plain);
        let logs: Option<Vec<f64>> = pairs.map(|(a, b)| quotient(a, b).map(f64::ln)).collect();
        let ratio = quotient(&Throughput::sum(arm), &Throughput::sum(plain))?;
        Some(Self {
            ratio,
            interval: half_width(&logs?).map(|half| [ratio * (-half).exp(), ratio * half.exp()]),
            repeats: arm.len(),
        })
    }

    /// The interval, if it is known, does not tell it from plain decoding.
    #[must_use]
    pub fn contains_one(&self) -> bool {
        self.interval
            .is_some_and(|[low, high]| low <= 1.0 && 1.0 <= high)
    }
}

/// Half of the 95 % interval of the mean of `values`; none of less than two.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn half_width(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some(student.inverse_cdf(0.975) * (squares / (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(seconds: &[f64]) -> Vec<Throughput> {
        let run = |seconds: &f64| Throughput {
            tokens: 100,
            seconds: *seconds,
        };
        seconds.iter().map(run).collect()
    }

    /// Quantiles from a table of Student's distribution.
    #[test]
    fn the_interval_is_students() {
        for (n, t) in [
            (2, 12.706_205),
            (3, 4.302_653),
            (5, 2.776_445),
            (10, 2.262_157),
        ] {
            let mut values = vec![0.0; n];
            (values[0], values[1]) = (1.0, -1.0);
            let n = f64::from(u32::try_from(n).expect("small"));
            let half = half_width(&values).expect("two or more");
            let expected = t * (2.0 / (n - 1.0) / n).sqrt();
            assert!((half - expected).abs() < 1e-5, "{n}: {half} {expected}");
        }
        assert_eq!(half_width(&[1.0]), None);
        assert_eq!(half_width(&[]), None);
    }

    #[test]
    fn the_ratio_is_of_sums() {
        let found = Speedup::of(&runs(&[2.0, 4.0]), &runs(&[1.0, 4.0])).expect("rates");
        assert!((found.ratio - 6.0 / 5.0).abs() < 1e-12, "{found:?}");
        let [low, high] = found.interval.expect("two repeats");
        assert!(low < found.ratio && found.ratio < high, "{found:?}");
    }

    #[test]
    fn what_slows_both_down_does_not_widen_the_interval() {
        let (plain, arm) = (runs(&[2.0, 4.0, 3.0]), runs(&[1.0, 2.0, 1.5]));
        let paired = Speedup::of(&plain, &arm).expect("rates");
        let [low, high] = paired.interval.expect("three repeats");
        assert!((low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
        assert!(!paired.contains_one());
        let noisy = Speedup::of(&plain, &runs(&[4.0, 2.0, 3.0])).expect("rates");
        assert!(noisy.contains_one(), "{noisy:?}");
    }

    #[test]
    fn without_pairs_or_time_there_is_no_number() {
        assert_eq!(Speedup::of(&runs(&[1.0]), &runs(&[])), None);
        assert_eq!(Speedup::of(&runs(&[1.0]), &runs(&[0.0])), None);
        let one = Speedup::of(&runs(&[2.0]), &runs(&[1.0])).expect("rates");
        assert_eq!((one.ratio, one.interval), (2.0, None));
        assert!(!one.contains_one());
    }
}
