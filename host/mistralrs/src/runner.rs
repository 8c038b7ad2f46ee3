//! One engine of Eyrie behind many pipelines of the host.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use eyrie::{
    TokenId,
    report::{FinishReason, Logprob, RoundTrace},
    request::Request,
    schedule::{Engine, Event, RequestHandle},
};
use mistralrs_core::speculative_host::Sampler;

use crate::metrics::Metrics;

/// A token for the host, with its log-probabilities if they were asked for.
pub(crate) type Token = (TokenId, Option<Logprob>);

/// What one pass gave a sequence.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Its tokens.
    pub(crate) tokens: VecDeque<Token>,
    /// The round they came from; none for the prompt's.
    pub(crate) round: Option<RoundTrace>,
    /// Tokens of the round that the host has taken.
    pub(crate) taken: usize,
}

/// What a sequence has been given and the host has not taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) batches: VecDeque<Batch>,
    /// Set once no token follows: why it failed, or that it ended by itself.
    pub(crate) end: Option<Result<FinishReason, String>>,
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.end.is_none()
    }
}

/// What an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Requests that have not ended, and those whose tokens the host has not taken.
    pub requests: usize,
    /// Tokens in the target's cache.
    pub tokens: usize,
}

/// A request's outbox, and the sampler of the sequence that it belongs to: a sequence can vanish
/// without a last step.
struct Entry {
    owner: Weak<Sampler>,
    outbox: Outbox,
    /// Since when its client has had no room for what is in the outbox.
    held: Option<Instant>,
}

/// The engine with the outboxes of its requests.
pub(crate) struct Runner {
    engine: Engine,
    entries: HashMap<RequestHandle, Entry>,
    metrics: Arc<Metrics>,
}

/// A runner that pipelines share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Runner>>);

impl Shared {
    pub(crate) fn new(engine: Engine, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Mutex::new(Runner {
            engine,
            entries: HashMap::new(),
            metrics,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Runner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// Takes a request, for as long as its owner lives.
    ///
    /// # Errors
    /// Why the engine cannot serve it.
    pub(crate) fn submit(
        &mut self,
        request: Request,
        owner: Weak<Sampler>,
    ) -> Result<RequestHandle, String> {
        let handle = self
            .engine
            .submit(request)
            .map_err(|error| error.to_string())?;
        let outbox = Outbox::default();
        let held = None;
        self.entries.insert(
            handle,
            Entry {
                owner,
                outbox,
                held,
            },
        );
        Ok(handle)
    }

    /// Drops a request and what it has been given.
    pub(crate) fn cancel(&mut self, handle: RequestHandle) {
        self.entries.remove(&handle);
        self.engine.cancel(handle);
    }

    /// Drops the requests whose owner is gone.
    pub(crate) fn forget_gone(&mut self) {
        let gone = |(handle, entry): (&RequestHandle, &Entry)| {
            (entry.owner.strong_count() == 0).then_some(*handle)
        };
        let gone: Vec<_> = self.entries.iter().filter_map(gone).collect();
        for handle in gone {
            self.cancel(handle);
        }
    }

    pub(crate) fn held(&self) -> Held {
        let cache = self.engine.cache();
        Held {
            requests: self.entries.len(),
            tokens: cache.capacity() - cache.free(),
        }
    }

    /// What a request has been given; it is empty then, until the next pass.
    pub(crate) fn take(&mut self, handle: RequestHandle) -> Outbox {
        self.entries
            .get_mut(&handle)
            .map(|entry| std::mem::take(&mut entry.outbox))
            .unwrap_or_default()
    }

    /// Puts back, before what has come since, what the client has no room for; for how long it has had
    /// none.
    pub(crate) fn put_back(&mut self, handle: RequestHandle, mut rest: Outbox) -> Duration {
        let Some(entry) = self.entries.get_mut(&handle) else {
            return Duration::ZERO;
        };
        rest.batches.append(&mut entry.outbox.batches);
        rest.end = rest.end.or(entry.outbox.end.take());
        entry.outbox = rest;
        entry.held.get_or_insert_with(Instant::now).elapsed()
    }

    /// Notes that the client takes what it is given.
    pub(crate) fn flows(&mut self, handle: RequestHandle) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.held = None;
        }
    }

    /// True if there is nothing for the host to take yet.
    pub(crate) fn lacks(&self, handle: RequestHandle) -> bool {
        let entry = self.entries.get(&handle);
        entry.is_some_and(|entry| entry.outbox.is_empty())
    }

    /// Takes every request one pass further.
    pub(crate) fn step(&mut self) {
        let clock = Instant::now();
        let mut stages = None;
        let mut open: HashMap<RequestHandle, VecDeque<Token>> = HashMap::new();
        for event in self.engine.step() {
            match event {
                Event::Piece {
                    request,
                    token,
                    logprob,
                    ..
                } => {
                    if let Some(token) = token {
                        open.entry(request).or_default().push_back((token, logprob));
                    }
                }
                Event::Round { request, trace } => {
                    stages = Some(trace.ms);
                    let tokens = open.remove(&request).unwrap_or_default();
                    self.put(
                        request,
                        Batch {
                            tokens,
                            round: Some(trace),
                            taken: 0,
                        },
                    );
                }
                Event::Finished { request, report } => {
                    let tokens = open.remove(&request).unwrap_or_default();
                    self.put(
                        request,
                        Batch {
                            tokens,
                            round: None,
                            taken: 0,
                        },
                    );
                    let end = match (report.finish_reason, report.error) {
                        (FinishReason::Error, error) => Err(error.unwrap_or_default()),
                        (reason, _) => Ok(reason),
                    };
                    if let Some(entry) = self.entries.get_mut(&request) {
                        entry.outbox.end = Some(end);
                    }
                }
            }
        }
        for (request, tokens) in open {
            self.put(
                request,
                Batch {
                    tokens,
                    round: None,
                    taken: 0,
                },
            );
        }
        self.metrics.pass(clock.elapsed(), stages);
    }

    fn put(&mut self, request: RequestHandle, batch: Batch) {
        if let (false, Some(entry)) = (
            batch.tokens.is_empty() && batch.round.is_none(),
            self.entries.get_mut(&request),
        ) {
            entry.outbox.batches.push_back(batch);
        }
    }
}
