//! The law of the first tokens, with and without drafts.

use anyhow::{Context, Result};
use eyrie_verifier::{judge::Settings, verdict::Verdict};
use serde_json::{Value, json};

use super::Config;
use crate::{
    cli::{bench::Beside, progress::Busy},
    judge::{Observed, Opening},
    sample::derive_line,
};

/// Probability of failing an honest build, over both sides.
pub(super) const ALPHA: f64 = 1e-6;

/// Both sides, judged.
#[derive(Debug)]
pub(super) struct Law {
    /// Cells of the law.
    pub(super) cells: usize,
    pub(super) samples: usize,
    /// The total variation that each side must exclude to pass.
    tv: f64,
    /// Plain decoding, and the drafter.
    pub(super) sides: Vec<Observed>,
}

impl Law {
    /// As many answers of each side as `config` says, whose seeds are derived from its seed.
    pub(super) fn judge(beside: &Beside, config: &Config) -> Result<Self> {
        let samples = config.samples as usize;
        let busy = Busy::start("judging the law of the first tokens");
        let target = &**beside.target();
        let opening = Opening::new(target, beside.opened().valid(), &beside.prompt()?)?;
        let mut sides = Vec::new();
        for (mut engine, side) in beside.engines()?.into_iter().zip(1..) {
            let settings = Settings {
                alpha: ALPHA / 2.0,
                tv: config.tv,
                seed: derive_line(config.seed, side),
            };
            sides.push(opening.judge(&mut engine, samples, settings)?);
            busy.reached(sides.len(), 2);
        }
        Ok(Self {
            cells: opening.law().len(),
            samples,
            tv: config.tv,
            sides,
        })
    }

    /// FAIL if a side fails, else UNDECIDED if one is.
    pub(super) fn verdict(&self) -> Verdict {
        let any = |verdict| {
            self.sides
                .iter()
                .any(|side| side.judgement.verdict == verdict)
        };
        Verdict::of(any(Verdict::Fail), !any(Verdict::Undecided))
    }

    /// A line for each side.
    pub(super) fn lines(&self, names: [&str; 2]) -> Result<Vec<String>> {
        let line = |(side, name): (&Observed, &str)| {
            let judgement = &side.judgement;
            let pearson = judgement.tests.first().context("no test was made")?;
            let p = judgement.tests.iter().filter_map(|test| test.holm);
            let p = p.fold(1.0, f64::min);
            let tv = judgement.excluded_tv.unwrap_or(1.0);
            Ok(format!(
                "  {name:<10} N = {}, chi-square {:.1} of {} degrees of freedom, p = {p:.2e}; a total variation \
                 of {tv:.3} is excluded: {}",
                self.samples,
                pearson.statistic,
                pearson.dof.unwrap_or_default(),
                judgement.verdict
            ))
        };
        self.sides.iter().zip(names).map(line).collect()
    }

    pub(super) fn json(&self, names: [&str; 2]) -> Value {
        let side = |(side, name): (&Observed, &str)| {
            json!({
                "side": name,
                "verdict": side.judgement.verdict.name(),
                "tests": side.judgement.tests,
                "excluded_tv": side.judgement.excluded_tv,
                "drafted": side.drafted,
                "accepted": side.accepted,
            })
        };
        json!({
            "verdict": self.verdict().name(),
            "samples": self.samples,
            "cells": self.cells,
            "alpha": ALPHA,
            "tv": self.tv,
            "sides": self.sides.iter().zip(names).map(side).collect::<Vec<_>>(),
        })
    }
}
