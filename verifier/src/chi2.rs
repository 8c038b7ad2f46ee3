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

/// Expected counts a cell must have to stand alone.
const ENOUGH: f64 = 5.0;

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
pub struct BadInput(String);

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
    let bad = |message: String| Err(BadInput(message));
    if counts.len() != p.len() {
        return bad(format!(
            "{} counts for a law of {} cells",
            counts.len(),
            p.len()
        ));
    }
    if let Some(i) = p.iter().position(|x| !(x.is_finite() && *x >= 0.0)) {
        return bad(format!("p[{i}] = {}: must be a number at least 0", p[i]));
    }
    let sum: f64 = p.iter().sum();
    if (sum - 1.0).abs() > 1e-6 {
        return bad(format!("the law sums to {sum}: must be 1"));
    }
    let n = total(counts);
    if n == 0.0 {
        return bad("no samples".into());
    }
    let impossible = counts.iter().zip(p).any(|(&c, &p)| c > 0 && p == 0.0);
    let cells = counts.iter().zip(p).map(|(&c, &p)| Cell {
        weight: n * p,
        seen: [float(c), 0.0],
    });
    let pooled = pool(cells.filter(|c| c.weight > 0.0).collect());
    let statistic = pooled
        .iter()
        .map(|c| (c.seen[0] - c.weight).powi(2) / c.weight)
        .sum();
    Ok(verdict(
        if impossible { f64::INFINITY } else { statistic },
        pooled.len() - 1,
        n,
    ))
}

/// Tests whether two samples over the same cells have one law.
///
/// # Errors
/// If the lengths differ or a sample is empty.
pub fn two_sample(a: &[u64], b: &[u64]) -> Result<Fit, BadInput> {
    if a.len() != b.len() {
        return Err(BadInput(format!(
            "samples over {} and {} cells",
            a.len(),
            b.len()
        )));
    }
    let (n, m) = (total(a), total(b));
    if n == 0.0 || m == 0.0 {
        return Err(BadInput("a sample is empty".into()));
    }
    // A cell stands alone if the smaller sample expects enough of it.
    let share = n.min(m) / (n + m);
    let cells = a.iter().zip(b).map(|(&a, &b)| Cell {
        weight: (float(a) + float(b)) * share,
        seen: [float(a), float(b)],
    });
    let pooled = pool(cells.filter(|c| c.weight > 0.0).collect());
    let (over, under) = ((m / n).sqrt(), (n / m).sqrt());
    let term = |c: &Cell| {
        let [a, b] = c.seen;
        (over * a - under * b).powi(2) / (a + b)
    };
    Ok(verdict(
        pooled.iter().map(term).sum(),
        pooled.len() - 1,
        n * m / (n + m),
    ))
}

fn verdict(statistic: f64, dof: usize, effective: f64) -> Fit {
    let p_value = match (statistic.is_finite(), chi_squared(dof)) {
        (false, _) => 0.0,
        (true, Some(law)) => law.sf(statistic),
        (true, None) => 1.0,
    };
    Fit {
        statistic,
        dof,
        p_value,
        effective,
    }
}

/// One cell: what decides whether it stands alone, and what was seen.
#[derive(Clone, Copy, Debug)]
struct Cell {
    weight: f64,
    seen: [f64; 2],
}

/// Cells of weight [`ENOUGH`] as they are, the others in pools of that weight, lightest first; what is
/// left over joins the lightest that stands.
fn pool(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.sort_by(|a, b| a.weight.total_cmp(&b.weight));
    let mut out: Vec<Cell> = Vec::with_capacity(cells.len());
    let mut open: Option<Cell> = None;
    for cell in cells {
        let sum = open.take().map_or(cell, |o| merge(o, cell));
        if sum.weight >= ENOUGH {
            out.push(sum);
        } else {
            open = Some(sum);
        }
    }
    match (open, out.first_mut()) {
        (Some(rest), Some(first)) => *first = merge(*first, rest),
        (Some(rest), None) => out.push(rest),
        (None, _) => {}
    }
    out
}

fn merge(a: Cell, b: Cell) -> Cell {
    Cell {
        weight: a.weight + b.weight,
        seen: [a.seen[0] + b.seen[0], a.seen[1] + b.seen[1]],
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

fn total(counts: &[u64]) -> f64 {
    counts.iter().map(|&c| float(c)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
