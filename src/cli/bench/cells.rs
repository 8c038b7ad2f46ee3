//! The runs: at each place every arm, interleaved.

use anyhow::{Context, Result, bail};

use super::{
    arms::Arms,
    plan::Plan,
    prompts::{Asker, Conversation},
    record::RunRecord,
    run::{Script, run},
    summary::Place,
};
use crate::{
    cli::{args::RuleKind, progress::Busy},
    sample::{RawParams, SamplingParams},
};

/// What runs.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) arms: &'a Arms,
    pub(super) asker: &'a Asker,
    pub(super) conversations: &'a [Conversation],
    pub(super) busy: Busy,
}

/// All runs at one place.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) place: Place,
    /// By arm, its repeats.
    pub(super) runs: Vec<Vec<RunRecord>>,
    /// Every arm's tokens had to be plain decoding's, and were.
    pub(super) equal_tokens_checked: bool,
}

impl Bench<'_> {
    /// Every concurrency at every temperature.
    pub(super) fn cells(&self) -> Result<Vec<Measured>> {
        let mut cells = Vec::new();
        for &concurrency in &self.plan.concurrency {
            for &temperature in &self.plan.temperature {
                let place = Place {
                    concurrency,
                    temperature,
                };
                cells.push(self.cell(place, cells.len())?);
            }
        }
        Ok(cells)
    }

    /// All repeats of all arms at one place: warmed up, then each repeat with every arm, the first
    /// of them another one each time.
    fn cell(&self, place: Place, before: usize) -> Result<Measured> {
        let plan = self.plan;
        let mut engines = self.arms.engines(plan.rule)?;
        let script = |conversations| Script {
            asker: self.asker,
            conversations,
            concurrency: place.concurrency,
            temperature: place.temperature,
        };
        let warm = &self.conversations[..plan.warm_up.min(self.conversations.len())];
        let each = plan.repeats * self.conversations.len() * engines.len();
        let all = each * plan.concurrency.len() * plan.temperature.len();
        let mut done = each * before;
        let at = |arm: usize| {
            let name = &plan.arms[arm].name;
            let Place {
                concurrency,
                temperature,
            } = place;
            format!("{name} at concurrency {concurrency}, temperature {temperature}")
        };
        for (arm, engine) in engines.iter_mut().enumerate() {
            run(engine, script(warm), &mut || ()).with_context(|| at(arm))?;
        }
        let greedy = greedy(place.temperature)?;
        let same_tokens =
            self.arms.target.row_invariant() && (plan.rule == RuleKind::Match || greedy);
        let mut runs: Vec<Vec<RunRecord>> = vec![Vec::new(); engines.len()];
        for repeat in 0..plan.repeats {
            for turn in 0..engines.len() {
                let arm = (turn + repeat) % engines.len();
                let mut progress = || {
                    done += 1;
                    self.busy.reached(done, all);
                };
                let found = run(&mut engines[arm], script(self.conversations), &mut progress);
                let mut found = found.with_context(|| at(arm))?;
                found.order = repeat * engines.len() + turn;
                let plain = runs[0].first().filter(|_| same_tokens);
                if let Some(words) = plain.and_then(|plain| found.difference(plain)) {
                    bail!(
                        "{}: {words}: the tokens of a seed must be the same",
                        at(arm)
                    );
                }
                runs[arm].push(found);
            }
        }
        Ok(Measured {
            place,
            runs,
            equal_tokens_checked: same_tokens,
        })
    }
}

/// Whether the token at this temperature is the argmax.
fn greedy(temperature: f64) -> Result<bool> {
    let params = SamplingParams::new(RawParams {
        temperature,
        ..RawParams::default()
    });
    Ok(params?.is_greedy())
}
