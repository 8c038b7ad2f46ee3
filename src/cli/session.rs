//! Runs requests through the engine, so many at once, and hands out what comes.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{BufWriter, Write},
    time::Instant,
};

use anyhow::{Context, Result};

use super::{jobs::Job, output::Output, plan::Plan, progress::Busy, say};
use crate::{
    report::{ChoiceReport, FinishReason, RoundTrace},
    request::{RequestSpec, Resolver},
    schedule::{Engine, Event, RequestHandle},
};

/// A request that the engine has.
#[derive(Debug)]
struct Running {
    index: usize,
    open: usize,
    prompt: usize,
    config: Plan,
}

/// What a run did, for its summary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) failed: usize,
    pub(super) tokens: usize,
    pub(super) rounds: usize,
    pub(super) emitted: usize,
    pub(super) drafted: usize,
    pub(super) accepted: usize,
    pub(super) seconds: f64,
}

/// One run over a list of requests.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) engine: Engine,
    pub(super) resolver: Resolver,
    pub(super) plan: &'a Plan,
    pub(super) output: Output,
    pub(super) trace: Option<BufWriter<File>>,
}

impl Session<'_> {
    /// Runs `jobs` to their ends, at most `plan.concurrency` at once.
    ///
    /// # Errors
    /// Only where output cannot be written; a request that fails is a result.
    pub(super) fn run(mut self, jobs: Vec<Job>) -> Result<Totals> {
        let begin = Instant::now();
        let mut queue: VecDeque<(usize, Job)> = jobs.into_iter().enumerate().collect();
        let mut running: BTreeMap<RequestHandle, Running> = BTreeMap::new();
        let mut totals = Totals::default();
        let mut busy = Some(Busy::start("reading prompts"));
        let (mut read, mut prompts) = (0, 0);
        loop {
            while running.len() < self.plan.concurrency
                && let Some((index, job)) = queue.pop_front()
            {
                match self.submit(index, &job) {
                    Ok((handle, request)) => {
                        prompts += request.prompt;
                        running.insert(handle, request);
                    }
                    Err(error) => {
                        busy = None;
                        self.refuse(index, job, error, &mut totals)?;
                    }
                }
            }
            if running.is_empty() {
                break;
            }
            if let Some(busy) = &busy {
                busy.reached(read.min(prompts), prompts);
                read += self.plan.setup.prefill_chunk * running.len();
            }
            for event in self.engine.step() {
                match event {
                    Event::Piece { token, text, .. } => {
                        busy = None;
                        let text = self.resolver.tokenizer.is_some().then_some(text.as_str());
                        self.output.piece(token, text)?;
                    }
                    Event::Round { trace, .. } => self.write(&trace)?,
                    Event::Finished { request, report } => {
                        busy = None;
                        let Some(entry) = running.get_mut(&request) else {
                            continue;
                        };
                        totals.count(&report);
                        self.output.finished(entry.index, &report, &entry.config)?;
                        entry.open -= 1;
                        if entry.open == 0 {
                            running.remove(&request);
                        }
                    }
                }
            }
        }
        drop(busy);
        if let Some(mut trace) = self.trace.take() {
            trace.flush().with_context(|| self.plan.trace_name())?;
        }
        totals.seconds = begin.elapsed().as_secs_f64();
        Ok(totals)
    }

    fn submit(&mut self, index: usize, job: &Job) -> Result<(RequestHandle, Running), String> {
        let spec = job.spec.as_ref().map_err(ToString::to_string)?;
        let seed = spec.seed.unwrap_or_default();
        let request = self.resolver.resolve(spec, &job.id, seed);
        let request = request.map_err(|error| error.to_string())?;
        let (open, prompt) = (request.n, request.prompt.len());
        let handle = self
            .engine
            .submit(request)
            .map_err(|error| error.to_string())?;
        let config = self.config(&job.id, Some(spec));
        Ok((
            handle,
            Running {
                index,
                open,
                prompt,
                config,
            },
        ))
    }

    fn config(&self, id: &str, spec: Option<&RequestSpec>) -> Plan {
        self.plan.of(spec.map(|spec| RequestSpec {
            id: Some(id.to_owned()),
            ..spec.clone()
        }))
    }

    fn refuse(&mut self, index: usize, job: Job, error: String, totals: &mut Totals) -> Result<()> {
        let config = self.config(&job.id, job.spec.as_ref().ok());
        let report = ChoiceReport::refused(job.id, error);
        totals.count(&report);
        self.output.refused(index);
        self.output.finished(index, &report, &config)
    }

    fn write(&mut self, round: &RoundTrace) -> Result<()> {
        let Some(trace) = &mut self.trace else {
            return Ok(());
        };
        let line = serde_json::to_string(round)?;
        writeln!(trace, "{line}").with_context(|| self.plan.trace_name())
    }
}

impl Totals {
    /// Adds a result; says on stderr why it failed, if it did.
    fn count(&mut self, report: &ChoiceReport) {
        if report.finish_reason == FinishReason::Error {
            self.failed += 1;
            let reason = report.error.as_deref().unwrap_or("unknown");
            say("error", &format!("request {}: {reason}", report.id));
        }
        self.tokens += report.tokens.len();
        self.rounds += report.rounds.len();
        for round in &report.rounds {
            self.emitted += round.emitted;
            self.drafted += round.drafted;
            self.accepted += round.accepted;
        }
    }
}
