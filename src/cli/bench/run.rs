//! One run: all conversations through one engine, so many at once, and what happened when.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use anyhow::{Result, bail};

use super::{
    prompts::{Asker, Conversation},
    record::{Answer, RunRecord, Step},
};
use crate::{
    cli::interrupt,
    report::{ChoiceReport, Deliveries, FinishReason, RoundTrace, StageMillis},
    request::Request,
    schedule::{Engine, Event, RequestHandle},
};

/// What is asked, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script<'a> {
    pub(super) asker: &'a Asker,
    pub(super) conversations: &'a [Conversation],
    pub(super) concurrency: usize,
    pub(super) temperature: f64,
}

/// A turn that the engine has.
#[derive(Debug)]
struct Live {
    place: usize,
    answers: Vec<String>,
    submitted: f64,
    deliveries: Deliveries,
    /// Deepest drafts of each round.
    levels: Vec<usize>,
}

/// The user asked for the end.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub(super) struct Stopped;

/// Has all conversations, each next as soon as there is a place; `progress` is called with each that
/// is over.
///
/// # Errors
/// A request that fails, by its name; [`Stopped`].
pub(super) fn run(
    engine: &mut Engine,
    script: Script<'_>,
    progress: &mut dyn FnMut(),
) -> Result<RunRecord> {
    let mut driver = Driver {
        engine,
        script,
        begin: Instant::now(),
        live: BTreeMap::new(),
        record: RunRecord::default(),
    };
    let mut queue: VecDeque<usize> = (0..script.conversations.len()).collect();
    loop {
        while driver.live.len() < script.concurrency
            && let Some(place) = queue.pop_front()
        {
            driver.submit(place, Vec::new())?;
        }
        if driver.live.is_empty() {
            break;
        }
        if interrupt::asked() {
            return Err(Stopped.into());
        }
        for _ in 0..driver.step()? {
            progress();
        }
    }
    driver.record.seconds = driver.now();
    Ok(driver.record)
}

#[derive(Debug)]
struct Driver<'a> {
    engine: &'a mut Engine,
    script: Script<'a>,
    begin: Instant,
    live: BTreeMap<RequestHandle, Live>,
    record: RunRecord,
}

impl Driver<'_> {
    fn now(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn name(&self, place: usize, turn: usize) -> String {
        self.script.conversations[place].name(turn)
    }

    /// Asks the next turn of a conversation.
    fn submit(&mut self, place: usize, answers: Vec<String>) -> Result<()> {
        let script = &self.script;
        let conversation = &script.conversations[place];
        let asked = script
            .asker
            .ask(conversation, place, &answers, script.temperature);
        let submitted = self.now();
        let handle = match asked {
            Ok(request) => self.hand_over(request),
            Err(error) => Err(error.into()),
        };
        match handle {
            Ok(handle) => {
                let live = Live {
                    place,
                    answers,
                    submitted,
                    deliveries: Deliveries::default(),
                    levels: Vec::new(),
                };
                self.live.insert(handle, live);
                Ok(())
            }
            Err(error) => bail!("request {}: {error}", self.name(place, answers.len())),
        }
    }

    fn hand_over(&mut self, request: Request) -> Result<RequestHandle> {
        Ok(self.engine.submit(request)?)
    }

    /// Takes the engine one step further; the number of conversations that are over.
    fn step(&mut self) -> Result<usize> {
        let feeding = |live: &Live| live.deliveries.chunks().is_empty();
        let feeding = self.live.values().any(feeding);
        let start = self.now();
        let events = self.engine.step();
        let end = self.now();
        let mut step = Step {
            start,
            seconds: end - start,
            feeding,
            ..Step::default()
        };
        let mut arrived: BTreeMap<RequestHandle, usize> = BTreeMap::new();
        let mut finished = Vec::new();
        for event in events {
            match event {
                Event::Piece { request, token, .. } => {
                    *arrived.entry(request).or_default() += usize::from(token.is_some());
                }
                Event::Round { request, trace } => {
                    step.count(&trace);
                    if let Some(live) = self.live.get_mut(&request) {
                        live.levels.push(levels(&trace));
                    }
                }
                Event::Finished { request, report } => finished.push((request, report)),
            }
        }
        for (request, tokens) in arrived {
            if let Some(live) = self.live.get_mut(&request) {
                live.deliveries.push(end - live.submitted, tokens);
            }
        }
        self.record.push(step);
        let mut over = 0;
        for (request, report) in finished {
            if let Some(live) = self.live.remove(&request) {
                over += usize::from(self.finish(live, report)?);
            }
        }
        Ok(over)
    }

    /// Writes an answer down and asks the next turn; whether there is none.
    fn finish(&mut self, live: Live, report: ChoiceReport) -> Result<bool> {
        let turn = live.answers.len();
        let name = self.name(live.place, turn);
        if report.finish_reason == FinishReason::Error {
            let reason = report.error.as_deref().unwrap_or("unknown");
            bail!("request {name}: {reason}");
        }
        let conversation = &self.script.conversations[live.place];
        let last = turn + 1 == conversation.turns();
        let mut answers = live.answers;
        answers.extend(report.text.clone());
        self.record.answers.push(Answer {
            place: live.place,
            turn,
            name,
            domain: conversation.domain.clone(),
            submitted: live.submitted,
            prompt_tokens: report.usage.prompt_tokens,
            tokens: report.tokens,
            finish_reason: report.finish_reason,
            deliveries: live.deliveries,
            rounds: report.rounds.into_iter().zip(live.levels).collect(),
        });
        if !last {
            self.submit(live.place, answers)?;
        }
        Ok(last)
    }
}

impl Step {
    fn count(&mut self, trace: &RoundTrace) {
        self.sequences += 1;
        self.rows += 1 + trace.drafted.len();
        self.kv_tokens += trace.position;
        // One pass for all: every sequence's trace has its times.
        let StageMillis {
            draft,
            verify,
            accept,
            commit,
        } = trace.ms;
        self.stages = [draft, verify, accept, commit].map(|ms| ms / 1e3);
    }
}

/// Levels of a drafted tree; of a chain its length.
fn levels(trace: &RoundTrace) -> usize {
    let mut levels: Vec<usize> = Vec::with_capacity(trace.parents.len());
    for parent in &trace.parents {
        let parent = usize::try_from(*parent).ok();
        let above = parent.and_then(|parent| levels.get(parent).copied());
        levels.push(1 + above.unwrap_or(0));
    }
    levels.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_counted_along_parents() {
        for (parents, expected) in [
            (&[][..], 0),
            (&[-1][..], 1),
            (&[-1, 0, 1], 3),
            (&[-1, -1, 0, 1, 3], 3),
        ] {
            let trace = RoundTrace {
                request: String::new(),
                choice: 0,
                round: 0,
                position: 0,
                drafted: vec![0; parents.len()],
                parents: parents.to_vec(),
                accepted: 0,
                next: None,
                ms: StageMillis::default(),
            };
            assert_eq!(levels(&trace), expected, "{parents:?}");
        }
    }
}
