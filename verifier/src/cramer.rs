//! The Cramer-von Mises test of uniformity.
//!
//! `W = 1 / 12n + sum (u_(i) - (2i - 1) / 2n)^2` over the sorted numbers is n times the integrated square of
//! the distance between their distribution and the uniform one. Its limiting law is that of
//! `sum z_j^2 / (j pi)^2`; the tail is Smirnov's integral (1937),
//! `2 / pi sum_k (-1)^(k+1) int_((2k-1) pi)^(2k pi) exp(-x t^2 / 2) / sqrt(-t sin t) dt`, which
//! keeps its relative accuracy far out. Small n are brought to the limit by Stephens' correction (1970), made for the upper tail.

use std::f64::consts::PI;

use crate::number::float;

/// The statistic of numbers in 0..=1.
#[must_use]
pub fn statistic(u: &[f64]) -> f64 {
    let mut sorted = u.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = float(sorted.len() as u64);
    let mut middle = -1.0;
    let term = |&u: &f64| {
        middle += 2.0;
        (u - middle / (2.0 * n)).powi(2)
    };
    1.0 / (12.0 * n) + sorted.iter().map(term).sum::<f64>()
}

/// Probability of a statistic of `n` uniform numbers at least as large.
#[must_use]
pub fn p_value(statistic: f64, n: usize) -> f64 {
    let n = float(n as u64);
    tail((statistic - 0.4 / n + 0.6 / (n * n)) * (1.0 + 1.0 / n))
}

/// The tail of the limiting law.
///
/// ```
/// use eyrie_verifier::cramer::tail;
///
/// assert!((tail(0.46136) - 0.05).abs() < 1e-5);
/// ```
#[must_use]
pub fn tail(x: f64) -> f64 {
    // Below, the law has a probability under 1e-5, and the series needs more terms than it is worth.
    if x < 0.012 {
        return 1.0;
    }
    if x.is_infinite() {
        return 0.0;
    }
    let (mut sum, mut sign, mut begin) = (0.0, 1.0, PI);
    loop {
        let part = stretch(x, begin);
        sum += sign * part;
        if part <= 1e-17 * sum.abs() || part == 0.0 {
            return (2.0 / PI * sum).clamp(0.0, 1.0);
        }
        sign = -sign;
        begin += 2.0 * PI;
    }
}

/// One integral of the series. With `t = begin + pi (1 - cos a) / 2` the integrand is smooth and even in
/// a, so that the midpoint rule converges faster than any power.
fn stretch(x: f64, begin: f64) -> f64 {
    const STEPS: u32 = 128;
    let at = |step: u32| {
        let a = PI * (f64::from(step) + 0.5) / f64::from(STEPS);
        let s = (1.0 - a.cos()) / 2.0;
        let t = begin + PI * s;
        // -sin t = sin(pi s), accurately at both ends.
        let sine = (PI * s.min(1.0 - s)).sin();
        (-x * t * t / 2.0).exp() / (t * sine).sqrt() * a.sin()
    };
    (0..STEPS).map(at).sum::<f64>() * PI / f64::from(STEPS) * PI / 2.0
}
