//! One emitted token a prefix: the randomised probability integral transform, ordered by log p/q.
//!
//! A live model never gives the same prefix twice, so there is nothing to count. Instead each emitted
//! token x is placed on the unit interval by the target's own law p at its prefix: order the vocabulary, and take
//! `u = F(x-) + U p(x)`, with F the running sum of p in that order and U uniform. If x was drawn from
//! p, u is uniform, whatever the earlier tokens were (Rosenblatt 1952), so all the u together are uniform
//! and independent, and [`crate::cramer`] tests that.
//!
//! The order decides what is seen. Broken speculation favours what the drafter favours, so the order is
//! that of p/q, ascending; ordering by p alone sees nothing of a residual that was forgotten. q must be what the
//! drafter would say of the prefix before any noise of its draw, p and q functions of the prefix alone, and
//! whether a row enters must not depend on its token.
//!
//! What it can miss is in the power table: it sees a bias in the mean over prefixes, not one that cancels.

use crate::{chi2::BadInput, cramer, rng::Rng};

/// Where an emitted token lies on the unit interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Probability of all tokens before it in the order of p/q.
    pub below: f64,
    /// Probability of the token.
    pub p: f64,
}

impl Row {
    /// The row of a token by the laws at its prefix, which need to sum to 1 within 1e-4 only
    /// (softmax in f32); p is normalised. Of equal ratios the lower id comes first.
    ///
    /// # Errors
    /// If lengths differ, p or q is no law, or the token is outside.
    pub fn of(p: &[f64], q: &[f64], token: usize) -> Result<Self, BadInput> {
        if p.len() != q.len() {
            return Err(BadInput(format!(
                "p has {} numbers and q {}: must be as many",
                p.len(),
                q.len()
            )));
        }
        let mass = near_law("p", p)?;
        near_law("q", q)?;
        if token >= p.len() {
            return Err(BadInput(format!(
                "token {token}: must be below {}, the length of p",
                p.len()
            )));
        }
        // One key a token, so that the order is the same whatever token came.
        let ratio = |i: usize| if p[i] > 0.0 { p[i] / q[i] } else { 0.0 };
        let here = ratio(token);
        let before = |i: usize| ratio(i) < here || (ratio(i) == here && i < token);
        let below: f64 = (0..p.len()).filter(|&i| before(i)).map(|i| p[i]).sum();
        Ok(Self {
            below: below / mass,
            p: p[token] / mass,
        })
    }

    /// A row given by its place.
    ///
    /// # Errors
    /// If a number is not within 0..=1, or their sum is above 1 by more than 1e-6.
    pub fn at(below: f64, p: f64) -> Result<Self, BadInput> {
        for (name, x) in [("below", below), ("p", p)] {
            if !(0.0..=1.0).contains(&x) {
                return Err(BadInput(format!("{name} = {x}: must lie in 0..=1")));
            }
        }
        if below + p > 1.0 + 1e-6 {
            return Err(BadInput(format!(
                "below + p = {}: must be at most 1",
                below + p
            )));
        }
        Ok(Self { below, p })
    }
}

fn near_law(name: &str, law: &[f64]) -> Result<f64, BadInput> {
    if let Some(i) = law.iter().position(|x| !(x.is_finite() && *x >= 0.0)) {
        let value = law[i];
        return Err(BadInput(format!(
            "{name}[{i}] = {value}: must be a number at least 0"
        )));
    }
    let sum: f64 = law.iter().sum();
    if (sum - 1.0).abs() > 1e-4 {
        return Err(BadInput(format!("{name} sums to {sum}: must be 1")));
    }
    Ok(sum)
}

/// The outcome of the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pit {
    /// Rows.
    pub n: usize,
    /// The Cramer-von Mises statistic; infinite after an impossible token.
    pub statistic: f64,
    /// Probability of a statistic at least as large if every token has the law p.
    pub p_value: f64,
    /// Index of the first row whose token has probability 0.
    pub impossible: Option<usize>,
}

/// Tests whether every row's token was drawn from its p; `seed` is that of the uniform numbers U.
///
/// # Errors
/// Without rows.
pub fn test(rows: &[Row], seed: u64) -> Result<Pit, BadInput> {
    if rows.is_empty() {
        return Err(BadInput("no rows".into()));
    }
    let n = rows.len();
    let impossible = rows.iter().position(|row| row.p <= 0.0);
    if impossible.is_some() {
        return Ok(Pit {
            n,
            statistic: f64::INFINITY,
            p_value: 0.0,
            impossible,
        });
    }
    let mut rng = Rng::new(seed);
    let u: Vec<f64> = rows
        .iter()
        .map(|row| (row.below + rng.unit() * row.p).min(1.0))
        .collect();
    let statistic = cramer::statistic(&u);
    Ok(Pit {
        n,
        statistic,
        p_value: cramer::p_value(statistic, n),
        impossible,
    })
}
