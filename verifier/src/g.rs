//! The G test (likelihood ratio): Pearson's rival, on the same pooled cells and with the same law.
//!
//! It weighs a surplus in a light cell less and a lack in a heavy one more than Pearson's does, so each sees
//! some deviations first. `G = 2 sum c ln(c / expected)`; a cell without counts adds nothing.
//!
//! Its expectation is above the degrees of freedom, by about `1 / (6 expected)` a cell. Over thousands of
//! cells that alone would reject honest samples, so G is divided by Williams' factor (1976), which takes the
//! first order of it away, and cells stand alone from 20 expected counts on, where the next order is small.

use crate::{
    chi2::{BadInput, Fit, fit},
    number,
    pool::{self, Cell, Pools},
};

/// Expected counts a cell must have to stand alone.
const ENOUGH: f64 = 20.0;

/// Tests whether `counts` are draws of the law `p`, cell by cell.
///
/// ```
/// let fit = eyrie_verifier::g::goodness_of_fit(&[60, 40], &[0.5, 0.5])?;
/// let williams = 1.0 + (2.0 + 2.0 - 1.0) / (6.0 * 100.0);
/// let g = 2.0 * (60.0 * 1.2f64.ln() + 40.0 * 0.8f64.ln());
/// assert!((fit.statistic - g / williams).abs() < 1e-9);
/// # Ok::<(), eyrie_verifier::chi2::BadInput>(())
/// ```
///
/// # Errors
/// As [`crate::chi2::goodness_of_fit`].
pub fn goodness_of_fit(counts: &[u64], p: &[f64]) -> Result<Fit, BadInput> {
    let pools = pool::of_law(counts, p, ENOUGH)?;
    let [n, _] = pools.total;
    let factor = williams(&pools, |c| n / c.weight, 1.0);
    Ok(fit(&pools, |c| term(c.seen[0], c.weight) / factor))
}

/// Tests whether two samples over the same cells have one law.
///
/// # Errors
/// As [`crate::chi2::two_sample`].
pub fn two_sample(a: &[u64], b: &[u64]) -> Result<Fit, BadInput> {
    let pools = pool::of_two(a, b, ENOUGH)?;
    let [n, m] = pools.total;
    let of_row = |c: &Cell| (n + m) / (c.seen[0] + c.seen[1]);
    let factor = williams(&pools, of_row, (n + m) / n + (n + m) / m - 1.0);
    Ok(fit(&pools, |c| {
        let [a, b] = c.seen;
        let share = (a + b) / (n + m);
        (term(a, n * share) + term(b, m * share)) / factor
    }))
}

/// Williams' factor from the sum of `1 / p` over the cells; `columns` is 1 less than the same sum over samples,
/// or 1 for one sample.
fn williams(pools: &Pools, inverse: impl Fn(&Cell) -> f64, columns: f64) -> f64 {
    let n = pools.total[0] + pools.total[1];
    let dof = number::float(pools.standing.len() as u64) - 1.0;
    if dof < 1.0 {
        return 1.0;
    }
    let sum: f64 = pools.standing.iter().map(inverse).sum();
    1.0 + (sum - 1.0) * columns / (6.0 * n * dof)
}

fn term(seen: f64, expected: f64) -> f64 {
    if seen == 0.0 {
        0.0
    } else {
        2.0 * seen * (seen / expected).ln()
    }
}
