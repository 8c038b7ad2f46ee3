//! The runs: at each place every arm, interleaved.

use anyhow::{Context, Error, Result, bail};

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

/// What was measured.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Places that every arm was run at, with the repeats that every arm has.
    pub(super) cells: Vec<Measured>,
    /// What ended the runs before they were all there.
    pub(super) ended: Option<Error>,
}

impl Outcome {
    /// Repeats that every arm has, of all places.
    pub(super) fn repeats(&self) -> usize {
        self.cells.iter().map(|cell| cell.runs[0].len()).sum()
    }
}

impl Bench<'_> {
    /// Every concurrency at every temperature, or as much as there was until something ended it.
    pub(super) fn cells(&self) -> Outcome {
        let mut all = Outcome {
            cells: Vec::new(),
            ended: None,
        };
        for &concurrency in &self.plan.concurrency {
            for &temperature in &self.plan.temperature {
                let place = Place {
                    concurrency,
                    temperature,
                };
                let (measured, ended) = self.cell(place, all.cells.len());
                all.cells.extend(measured);
                if ended.is_some() {
                    all.ended = ended;
                    return all;
                }
            }
        }
        all
    }

    /// The repeats of all arms at one place, if there is one that every arm has, and what ended them.
    fn cell(&self, place: Place, before: usize) -> (Option<Measured>, Option<Error>) {
        let mut measured = Measured {
            place,
            runs: vec![Vec::new(); self.plan.arms.len()],
            equal_tokens_checked: false,
        };
        let ended = self.repeats(&mut measured, before).err();
        let whole = measured.runs.iter().map(Vec::len).min().unwrap_or(0);
        for runs in &mut measured.runs {
            runs.truncate(whole);
        }
        (Some(measured).filter(|_| whole > 0), ended)
    }

    /// All repeats of all arms at one place: warmed up, then each repeat with every arm, the first
    /// of them another one each time.
    fn repeats(&self, measured: &mut Measured, before: usize) -> Result<()> {
        let (plan, place) = (self.plan, measured.place);
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
        let same_tokens = self.arms.target.row_invariant()
            && (plan.rule == RuleKind::Match || greedy(place.temperature)?);
        measured.equal_tokens_checked = same_tokens;
        for (arm, engine) in engines.iter_mut().enumerate() {
            run(engine, script(warm), &mut || ()).with_context(|| at(arm))?;
        }
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
                let plain = measured.runs[0].first().filter(|_| same_tokens);
                if let Some(words) = plain.and_then(|plain| found.difference(plain)) {
                    bail!(
                        "{}: {words}: the tokens of a seed must be the same",
                        at(arm)
                    );
                }
                measured.runs[arm].push(found);
            }
        }
        Ok(())
    }
}

/// Whether the token at this temperature is the argmax.
pub(super) fn greedy(temperature: f64) -> Result<bool> {
    let params = SamplingParams::new(RawParams {
        temperature,
        ..RawParams::default()
    });
    Ok(params?.is_greedy())
}
