//! The tests of one question put together: Holm over them, what they could have missed, a verdict.
//!
//! *The smallest total variation excluded* is that of Pearson's test at `alpha / tests`, the level at which
//! Holm rejects whatever the other tests say, plus the share of samples inside pools: the test cannot
//! see how a pool's probability is shared out, and a deviation there moves at most that much. (The tests
//! that do see inside pools, by simulation and by evidence, may find it all the same; no power is claimed for
//! them.) For two samples the share inside pools is estimated, and its upper bound at .99 is taken.

use serde::Serialize;

use crate::{
    chi2::{self, BadInput, Fit},
    e_process::EProcess,
    g,
    holm::holm,
    monte_carlo::{self, Effort, Simulated},
    number::{float, total},
    pit::{self, Row},
    power,
    verdict::Verdict,
};

/// The power that is meant where none is named.
pub const POWER: f64 = 0.99;

/// Simulated samples that one test may cost.
const BUDGET: f64 = 4e8;

/// Statistics as large as the one seen after which a simulation stops.
const ENOUGH: u64 = 50;

/// What is asked of a judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Probability of rejecting an honest engine, over all tests together.
    pub alpha: f64,
    /// The total variation that must be excluded to pass.
    pub tv: f64,
    /// Seed of simulations and of the PIT's uniform numbers.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            alpha: 1e-6,
            tv: 0.05,
            seed: 0,
        }
    }
}

/// One test's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The test's name.
    pub test: &'static str,
    /// Its statistic; for the e-process ln of the largest evidence.
    pub statistic: f64,
    /// Degrees of freedom, where the law has some.
    pub dof: Option<usize>,
    /// The test's own p-value.
    pub p_value: f64,
    /// The p-value adjusted for the number of tests. `None`: the test cannot reach alpha, and does not count.
    pub holm: Option<f64>,
    /// Draws that a simulation made.
    pub draws: Option<u64>,
    /// The least p-value that a simulation could have given.
    pub resolution: Option<f64>,
}

/// A judgement: tests, power, verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// PASS, FAIL or UNDECIDED.
    pub verdict: Verdict,
    /// The tests in the order of the table.
    pub tests: Vec<Outcome>,
    /// The smallest total variation excluded at power [`POWER`]. `None` for the PIT.
    pub excluded_tv: Option<f64>,
    /// Share of the samples inside pools that is part of it. `None` for the PIT.
    pub pooled: Option<f64>,
}

/// Judges whether samples, given as cells in the order they came in, have the law `p`.
///
/// # Errors
/// If `p` is no law, a cell is outside of it, or there are no samples.
pub fn gof(p: &[f64], cells: &[usize], settings: Settings) -> Result<Judgement, BadInput> {
    let mut e = EProcess::new(p)?;
    let mut counts = vec![0; p.len()];
    for &cell in cells {
        let Some(count) = counts.get_mut(cell) else {
            let message = format!("cell {cell}: must be below {}", p.len());
            return Err(BadInput(message));
        };
        *count += 1;
        e.push(cell);
    }
    let pearson = chi2::goodness_of_fit(&counts, p)?;
    let mut tests = vec![
        of_fit("chi-square", pearson),
        of_fit("G", g::goodness_of_fit(&counts, p)?),
        Outcome {
            test: "e-process",
            statistic: e.peak(),
            dof: None,
            p_value: e.p_value(),
            holm: None,
            draws: None,
            resolution: None,
        },
    ];
    let effort = effort(pearson.pooled * total(&counts), settings);
    let inside = monte_carlo::goodness_of_fit(&counts, p, effort)?;
    tests.extend(inside.map(of_simulated));
    Ok(conclude(tests, pearson, pearson.pooled, settings))
}

/// Judges whether two samples, as counts over the same cells, have one law.
///
/// # Errors
/// If the lengths differ or a sample is empty.
pub fn two_sample(a: &[u64], b: &[u64], settings: Settings) -> Result<Judgement, BadInput> {
    let pearson = chi2::two_sample(a, b)?;
    let mut tests = vec![
        of_fit("chi-square", pearson),
        of_fit("G", g::two_sample(a, b)?),
    ];
    let all = total(a) + total(b);
    let effort = effort(pearson.pooled * all, settings);
    tests.extend(monte_carlo::two_sample(a, b, effort)?.map(of_simulated));
    let pooled = power::upper_share(pearson.pooled * all, all, POWER);
    Ok(conclude(tests, pearson, pooled, settings))
}

/// Judges whether every row's token was drawn from its p. Passes if not rejected with as many rows as
/// [`power::rows_needed`] says; `settings.tv` has no part in it.
///
/// # Errors
/// Without rows.
pub fn pit(rows: &[Row], settings: Settings) -> Result<Judgement, BadInput> {
    let seen = pit::test(rows, settings.seed)?;
    let rejected = seen.p_value < settings.alpha;
    let powerful = power::rows_needed(settings.alpha).is_some_and(|needed| seen.n >= needed);
    Ok(Judgement {
        verdict: Verdict::of(rejected, powerful),
        tests: vec![Outcome {
            test: "Cramer-von Mises",
            statistic: seen.statistic,
            dof: None,
            p_value: seen.p_value,
            holm: Some(seen.p_value),
            draws: None,
            resolution: None,
        }],
        excluded_tv: None,
        pooled: None,
    })
}

/// Enough draws to reject with four tests, if the samples inside pools are few enough for it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped"
)]
fn effort(samples: f64, settings: Settings) -> Effort {
    let wanted = 8.0 / settings.alpha;
    let most = wanted.min(BUDGET / samples.max(1.0)).clamp(1e3, 1e9);
    Effort {
        most: most as u64,
        enough: ENOUGH,
        seed: settings.seed,
    }
}

fn of_fit(test: &'static str, fit: Fit) -> Outcome {
    Outcome {
        test,
        statistic: fit.statistic,
        dof: Some(fit.dof),
        p_value: fit.p_value,
        holm: None,
        draws: None,
        resolution: None,
    }
}

fn of_simulated(seen: Simulated) -> Outcome {
    Outcome {
        test: "inside pools",
        statistic: seen.statistic,
        dof: None,
        p_value: seen.p_value,
        holm: None,
        draws: Some(seen.draws),
        resolution: Some(seen.resolution),
    }
}

/// Holm over the tests that can reach alpha at all, which does not depend on what they saw.
fn conclude(mut tests: Vec<Outcome>, pearson: Fit, pooled: f64, settings: Settings) -> Judgement {
    let all = float(tests.len() as u64);
    let able = |t: &Outcome| {
        t.resolution
            .is_none_or(|least| least * all < settings.alpha)
    };
    let counted: Vec<usize> = (0..tests.len()).filter(|&i| able(&tests[i])).collect();
    let p_values: Vec<f64> = counted.iter().map(|&i| tests[i].p_value).collect();
    let mut rejected = false;
    for (&i, adjusted) in counted.iter().zip(holm(&p_values)) {
        tests[i].holm = Some(adjusted);
        rejected |= adjusted < settings.alpha;
    }
    let level = settings.alpha / float(counted.len() as u64);
    let excluded = (pearson.excluded_tv(level, POWER) + pooled).min(1.0);
    Judgement {
        verdict: Verdict::of(rejected, excluded <= settings.tv),
        tests,
        excluded_tv: Some(excluded),
        pooled: Some(pooled),
    }
}
