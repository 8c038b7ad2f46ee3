//! What the tests would have seen: bounds, and the PIT's power table.

use statrs::function::beta::beta_reg;

/// The PIT's power at alpha = 1e-6 by broken engine and number of rows: how often of 200 runs it
/// rejected. Every row has random laws of its own over 64 tokens, with an acceptance of about two thirds;
/// measured once, with the function `power` of `tests/broken.rs`, whose test measures a column again.
pub const PIT: [PitPower; 7] = [
    PitPower {
        broken: "every draft accepted",
        rejected: [1.0, 1.0, 1.0, 1.0],
    },
    PitPower {
        broken: "resampled from p, not the residual",
        rejected: [0.95, 1.0, 1.0, 1.0],
    },
    PitPower {
        broken: "residual: p without the draft",
        rejected: [0.875, 1.0, 1.0, 1.0],
    },
    PitPower {
        broken: "q of the row before",
        rejected: [1.0, 1.0, 1.0, 1.0],
    },
    PitPower {
        broken: "noise shared by draft and residual",
        rejected: [0.0, 0.0, 0.025, 0.985],
    },
    PitPower {
        broken: "acceptance 5 % too lenient",
        rejected: [0.0, 0.0, 0.03, 0.885],
    },
    PitPower {
        broken: "uniform reused for the residual",
        rejected: [0.0, 0.0, 0.0, 0.0],
    },
];

/// Numbers of rows in [`PIT`].
pub const PIT_ROWS: [usize; 4] = [500, 2_000, 8_000, 32_000];

/// The first of [`PIT`], the gross ones, that a test must be able to see before it may pass an engine.
pub const PIT_GROSS: usize = 4;

/// Alpha of [`PIT`]; a test at a larger alpha has at least that power.
pub const PIT_ALPHA: f64 = 1e-6;

/// A row of the table [`PIT`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PitPower {
    /// What is broken in the engine.
    pub broken: &'static str,
    /// Share of runs rejected, by [`PIT_ROWS`].
    pub rejected: [f64; 4],
}

/// Rows with which the PIT sees every gross mutant with a power of at least .99; `None` if the table says
/// nothing about this alpha.
///
/// ```
/// use eyrie_verifier::power::rows_needed;
///
/// assert!(rows_needed(1e-6).is_some());
/// assert_eq!(rows_needed(1e-7), None);
/// ```
#[must_use]
pub fn rows_needed(alpha: f64) -> Option<usize> {
    let seen = |at: usize| PIT[..PIT_GROSS].iter().all(|m| m.rejected[at] >= 0.99);
    let at = (0..PIT_ROWS.len()).find(|&at| alpha >= PIT_ALPHA && seen(at))?;
    Some(PIT_ROWS[at])
}

/// The largest share of which `seen` of `n` samples or fewer is not less likely than `1 - confidence`
/// (Clopper and Pearson 1934).
#[must_use]
pub fn upper_share(seen: f64, n: f64, confidence: f64) -> f64 {
    if seen >= n {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while high - low > 1e-12 {
        let share = f64::midpoint(low, high);
        // P(Binomial(n, share) <= seen)
        if beta_reg(n - seen, seen + 1.0, 1.0 - share) > 1.0 - confidence {
            low = share;
        } else {
            high = share;
        }
    }
    high
}
