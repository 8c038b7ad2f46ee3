//! Pearson's chi-square, for goodness of fit and for two samples, with its power.
//!
//! Cells with little expectation are pooled, because the chi-square law is an approximation
//! that needs about five expected counts a cell. A count in a cell that cannot occur is not a matter
//! of statistics: it fails outright with p = 0.
//!
//! A test that does not reject says little until one knows what it would have rejected. That is
//! [`Fit::excluded_tv`]: the smallest total variation between the sampled and the expected law which
//! the test rejects with the given power. For a deviation `d` with total variation `e`, Cauchy's
//! inequality gives `(2 e)^2 = (sum |d|)^2 <= sum d^2 / p`, so the noncentrality is at least
//! `4 n e^2` whatever the direction of the deviation, and the bound holds for the worst of them. (Pooling
//! can hide a deviation inside a pool; the bound is about the pooled law.)

use std::fmt;

use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::{
    number::float,
    pool::{self, Cell, Pools},
};

/// The outcome of a chi-square test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Pearson's statistic over the pooled cells; infinite after an impossible count.
    pub statistic: f64,
    /// Degrees of freedom: pooled cells minus one.
    pub dof: usize,
    /// Probability of a statistic at least as large if the laws are equal. 1 without freedom.
    pub p_value: f64,
    /// The sample size that power depends on: n, or `n m / (n + m)` for two samples.
    pub effective: f64,
    /// Share of the (expected) samples whose cells are not told apart, being pooled.
    pub pooled: f64,
}

impl Fit {
    /// Whether the test rejects at `alpha`.
    #[must_use]
    pub fn rejects(&self, alpha: f64) -> bool {
        self.p_value < alpha
    }

    /// The smallest total variation (1 if there is none) that a test at `alpha` rejects with
    /// probability `power`, in whatever direction it points.
    #[must_use]
    pub fn excluded_tv(&self, alpha: f64, power: f64) -> f64 {
        if self.dof == 0 || self.effective <= 0.0 {
            return 1.0;
        }
        let lambda = noncentrality(self.dof, alpha, power);
        (lambda / (4.0 * self.effective)).sqrt().min(1.0)
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "chi2({}) = {:.2}, p = {:.3e}",
            self.dof, self.statistic, self.p_value
        )
    }
}

/// Counts that a test cannot be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadInput(pub(crate) String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Tests whether `counts` are draws of the law `p`, cell by cell.
///
/// ```
/// use eyrie_verifier::chi2::goodness_of_fit;
///
/// let fair = goodness_of_fit(&[16, 18, 16, 14, 12, 12], &[1.0 / 6.0; 6])?;
/// assert!((fair.statistic - 2.0).abs() < 1e-9 && fair.dof == 5);
/// assert!(!fair.rejects(0.05));
/// # Ok::<(), eyrie_verifier::chi2::BadInput>(())
/// ```
///
/// # Errors
/// If the lengths differ, `p` is not a law (a NaN, a negative number, a sum further than 1e-6
/// from 1), or there are no counts.
pub fn goodness_of_fit(counts: &[u64], p: &[f64]) -> Result<Fit, BadInput> {
    let seen = pool::of_law(counts, p, pool::ENOUGH)?;
    let term = |c: &Cell| (c.seen[0] - c.weight).powi(2) / c.weight;
    Ok(fit(&seen, term))
}

/// Tests whether two samples over the same cells have one law.
///
/// # Errors
/// If the lengths differ or a sample is empty.
pub fn two_sample(a: &[u64], b: &[u64]) -> Result<Fit, BadInput> {
    let seen = pool::of_two(a, b, pool::ENOUGH)?;
    let [n, m] = seen.total;
    let (over, under) = ((m / n).sqrt(), (n / m).sqrt());
    let term = |c: &Cell| {
        let [a, b] = c.seen;
        (over * a - under * b).powi(2) / (a + b)
    };
    Ok(fit(&seen, term))
}

/// The outcome of a statistic that is a sum over standing cells, with the law of chi-square.
pub(crate) fn fit(pools: &Pools, term: impl Fn(&Cell) -> f64) -> Fit {
    let dof = pools.standing.len() - 1;
    let statistic = if pools.impossible {
        f64::INFINITY
    } else {
        pools.standing.iter().map(term).sum()
    };
    let p_value = match (statistic.is_finite(), chi_squared(dof)) {
        (false, _) => 0.0,
        (true, Some(law)) => law.sf(statistic),
        (true, None) => 1.0,
    };
    Fit {
        statistic,
        dof,
        p_value,
        effective: pools.effective(),
        pooled: pools.mass(),
    }
}

/// Samples for which a chi-square test over `cells` cells rejects a total variation of `tv`,
/// pointing anywhere, at `alpha` with probability `power`.
#[must_use]
pub fn sample_size(cells: usize, tv: f64, alpha: f64, power: f64) -> f64 {
    noncentrality(cells.saturating_sub(1).max(1), alpha, power) / (4.0 * tv * tv)
}

/// The noncentrality at which a test with `dof` degrees of freedom at `alpha` has the power.
fn noncentrality(dof: usize, alpha: f64, power: f64) -> f64 {
    let null = match chi_squared(dof) {
        Some(null) if alpha > 0.0 && power < 1.0 => null,
        _ => return f64::INFINITY,
    };
    let critical = least(|x| null.sf(x) <= alpha);
    least(|lambda| rejection(dof, lambda, critical) >= power)
}

/// The least `x >= 0` that is enough, for a condition that stays true once it is.
///
/// Bisection down to neighbouring precision. (The quantile of statrs 0.18 stops early: at
/// 255 degrees of freedom and alpha 1e-6 it would cost a sample size 0.1 %.)
fn least(enough: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while !enough(high) {
        (low, high) = (high, high * 2.0);
    }
    while high - low > 1e-12 * high {
        let middle = f64::midpoint(low, high);
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// P(noncentral chi-square > critical): a Poisson(lambda / 2) mixture of central ones with two more
/// degrees of freedom a step, summed over all terms that matter.
fn rejection(dof: usize, lambda: f64, critical: f64) -> f64 {
    let mean = lambda / 2.0;
    let reach = 12.0 * mean.sqrt() + 30.0;
    let (mut j, mut sum) = ((mean - reach).floor().max(0.0), 0.0);
    let mut ln_weight = j * mean.max(f64::MIN_POSITIVE).ln() - mean - ln_factorial(j);
    while j <= mean + reach {
        if let Ok(law) = ChiSquared::new(float(dof as u64) + 2.0 * j) {
            sum += ln_weight.exp() * law.sf(critical);
        }
        j += 1.0;
        ln_weight += mean.max(f64::MIN_POSITIVE).ln() - j.ln();
    }
    sum
}

fn ln_factorial(n: f64) -> f64 {
    statrs::function::gamma::ln_gamma(n + 1.0)
}

fn chi_squared(dof: usize) -> Option<ChiSquared> {
    ChiSquared::new(float(dof as u64)).ok()
}
