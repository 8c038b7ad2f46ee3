//! The G test (likelihood ratio): Pearson's rival, on the same pooled cells and with the same law.
//!
//! It weighs a surplus in a light cell less and a lack in a heavy one more than Pearson's does, so each sees
//! some deviations first. `G = 2 sum c ln(c / expected)`; a cell without counts adds nothing.

use crate::{
    chi2::{BadInput, Fit, fit},
    pool,
};

/// Tests whether `counts` are draws of the law `p`, cell by cell.
///
/// ```
/// let fit = eyrie_verifier::g::goodness_of_fit(&[60, 40], &[0.5, 0.5])?;
/// assert!((fit.statistic - 2.0 * (60.0 * 1.2f64.ln() + 40.0 * 0.8f64.ln())).abs() < 1e-9);
/// # Ok::<(), eyrie_verifier::chi2::BadInput>(())
/// ```
///
/// # Errors
/// As [`crate::chi2::goodness_of_fit`].
pub fn goodness_of_fit(counts: &[u64], p: &[f64]) -> Result<Fit, BadInput> {
    let pools = pool::of_law(counts, p)?;
    Ok(fit(&pools, |c| term(c.seen[0], c.weight)))
}

/// Tests whether two samples over the same cells have one law.
///
/// # Errors
/// As [`crate::chi2::two_sample`].
pub fn two_sample(a: &[u64], b: &[u64]) -> Result<Fit, BadInput> {
    let pools = pool::of_two(a, b)?;
    let [n, m] = pools.total;
    Ok(fit(&pools, |c| {
        let [a, b] = c.seen;
        let share = (a + b) / (n + m);
        term(a, n * share) + term(b, m * share)
    }))
}

fn term(seen: f64, expected: f64) -> f64 {
    if seen == 0.0 {
        0.0
    } else {
        2.0 * seen * (seen / expected).ln()
    }
}
