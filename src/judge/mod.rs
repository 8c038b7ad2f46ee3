//! The judge of this build: is what it emits the target's law?
//!
//! Four kinds of evidence, from the sharpest to the most realistic, because none replaces another.
//!
//! 1. *Exact.* Every branch of drafting and deciding is walked, so the output law is known to rounding
//!    ([`exact`]); the rule `match` follows every function there is ([`trajectory`]). There is no noise in it,
//!    and nothing of the keys: whether two draws of a real request are independent is invisible here.
//! 2. *Accept.* The production rules with the production draws, over tables made to be hard: the drafter's
//!    logits are minus the target's, so most drafts are rejected and every token goes through a
//!    residual. Hundreds of thousands of samples against the enumerated joint law of three tokens, under
//!    every processing of logits ([`tables`]).
//! 3. *Engine.* Everything that runs, batched, over a target that reads its logits off the cache
//!    ([`memory`]), so that a row kept by mistake changes the law.
//! 4. *Live.* The model and the drafter that were given: the transform of every round's first token
//!    ([`eyrie_verifier::pit`]), and two identities, plain decoding at temperature 0 and, under `match`, the
//!    tokens of a seed.
//!
//! The p-values of all tests of all findings go through one Holm correction, so that `alpha` is the chance of
//! failing an honest build, over the whole table. A finding passes only if its test would have seen a
//! deviation of the size asked for; otherwise it is undecided. An emitted token that the target gives no mass
//! is no matter of statistics and fails at once.
//!
//! What is judged goes through one seam, [`Subject`], so that a build that is broken on purpose can be judged by the very
//! same code, and be seen to fail.

mod accept;
mod conclude;
mod engine;
pub mod exact;
mod laws;
mod live;
pub mod memory;
mod opening;
mod rows;
pub mod settings;
mod subject;
mod sweep;
pub mod tables;
pub mod trajectory;
mod witness;

pub use conclude::{Finding, Judgement, Section};
pub use live::Live;
pub use opening::{Observed, Opening};
pub use rows::Rows;
pub use subject::{Honest, Kind, Subject};

use crate::error::Result;
use conclude::{Evidence, conclude};

/// Samples of a finding of the section accept, by default.
pub const SAMPLES: usize = 200_000;

/// Rows that the transform of a finding needs to pass, at most: twice as many as see every gross fault at
/// alpha 1e-6, because Holm leaves each of some two hundred tests a level whose logarithm is 1.4 times as large.
pub const ROWS: usize = 4_000;

/// What is asked of a judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Probability of failing an honest build, over the whole table.
    pub alpha: f64,
    /// The total variation that a finding must exclude to pass.
    pub tv: f64,
    /// What all seeds are derived from.
    pub seed: u64,
    /// Samples of a finding of the section accept; the others take their shares, see [`Settings::engine`]
    /// and [`Settings::live`].
    pub samples: usize,
    /// The rules to judge.
    pub rules: Vec<Kind>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            alpha: 1e-6,
            tv: 0.05,
            seed: 0,
            samples: SAMPLES,
            rules: Kind::ALL.to_vec(),
        }
    }
}

impl Settings {
    /// Choices of a finding of the section engine: a tenth, which excludes 0.05 over 64 cells.
    #[must_use]
    pub fn engine(&self) -> usize {
        (self.samples / 10).max(1)
    }

    /// Rows of a finding of the section live: a tenth too, but no more than [`ROWS`].
    #[must_use]
    pub fn live(&self) -> usize {
        self.engine().min(ROWS)
    }

    /// Statistical findings.
    fn tests(&self) -> usize {
        let accept: usize = self.rules.iter().map(|kind| accept::count(*kind)).sum();
        accept + self.rules.len() * (engine::DRAFTERS + 1)
    }

    /// The level at which the tests of one finding are made together, so that Holm over all of them rejects
    /// at least what each rejects alone: a finding has three or four tests.
    fn level(&self) -> f64 {
        let all = u32::try_from(4 * self.tests()).map_or(f64::MAX, f64::from);
        self.alpha * 3.0 / all
    }
}

/// Judges `subject`, with `live` as the model given; `progress` is called with the number of findings made, and
/// of all.
///
/// # Errors
/// If the engine refuses the settings of `live`, or its target fails.
pub fn judge(
    subject: &dyn Subject,
    live: &Live<'_>,
    settings: &Settings,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Judgement> {
    let rules = settings.rules.iter().copied();
    let shapes: usize = rules.clone().map(Kind::shapes).sum();
    let identities = live.identities(&settings.rules);
    let all = shapes + settings.tests() + identities;
    let mut evidence: Vec<Evidence> = Vec::with_capacity(all);
    let mut take = |new: Evidence| {
        evidence.push(new);
        progress(evidence.len(), all);
    };
    for kind in rules.clone() {
        sweep::sweep(subject, kind, &mut take);
    }
    for kind in rules.clone() {
        accept::accept(subject, kind, settings, &mut take)?;
    }
    for kind in rules.clone() {
        engine::engine(subject, kind, settings, &mut take)?;
    }
    for kind in rules {
        live.judge(subject, kind, settings, &mut take)?;
    }
    Ok(conclude(evidence, settings))
}
