//! The loop: admit, prefill, round, report.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    event::{Event, RequestHandle},
    group::{Ends, Group, first_token},
    prefill::{Task, fed, prefill},
};
use crate::{
    SeqId, TokenId,
    accept::Rule,
    cache::KvCache,
    commit::Outcome,
    draft::{Drafter, Plan},
    ending::end_ids,
    error::{ErrorKind, Result},
    model::Target,
    request::{Limits, Request},
    round::{Players, round},
    sample::Chain,
    sequence::{Delivered, Sequence, Shared},
    text::Tokenizer,
};

/// Most tokens of a cache, whose slots are numbered in 32 bits.
const MOST_SLOTS: usize = 1 << 31;

/// What an engine is made of.
#[derive(Debug)]
pub struct Parts {
    /// Whose law is reproduced.
    pub target: Arc<dyn Target>,
    /// Its tokenizer; without one there is no text.
    pub text: Option<Tokenizer>,
    /// Its end tokens.
    pub eos: Vec<TokenId>,
    /// Ids from here on are never generated: the vocabulary is padded beyond the tokenizer.
    pub valid: usize,
    /// Who guesses.
    pub drafter: Box<dyn Drafter>,
    /// Which guesses survive.
    pub rule: Box<dyn Rule>,
}

/// The engine's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Most levels of drafts a round, 1..=64.
    pub depth: usize,
    /// Most nodes of a tree, 1..=1024, for drafters that grow one; `None`: chains.
    pub nodes: Option<usize>,
    /// Most choices and prompts in work at once.
    pub max_batch: usize,
    /// Tokens that the target's cache holds, for all sequences together.
    pub kv_tokens: usize,
    /// Prompt tokens fed at a time, by sequence.
    pub prefill_chunk: usize,
}

impl EngineOptions {
    fn plan(&self) -> Plan {
        let nodes = self.nodes.unwrap_or(self.depth);
        Plan {
            depth: self.depth,
            nodes,
        }
    }
}

/// Many requests, one target, one drafter.
#[derive(Debug)]
pub struct Engine {
    target: Arc<dyn Target>,
    drafter: Box<dyn Drafter>,
    rule: Box<dyn Rule>,
    ends: Ends,
    valid: usize,
    options: EngineOptions,
    cache: KvCache,
    waiting: VecDeque<Task>,
    prefilling: Vec<Task>,
    groups: Vec<Group>,
    running: Vec<Sequence>,
    names: u64,
    tickets: u64,
    events: Vec<Event>,
}

impl Engine {
    /// An engine without requests.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn new(parts: Parts, options: EngineOptions) -> Result<Self> {
        let at_least_one = "at least 1";
        check("depth", options.depth, 1..=64, "1..=64")?;
        check("nodes", options.nodes.unwrap_or(1), 1..=1024, "1..=1024")?;
        check("max-batch", options.max_batch, 1..=usize::MAX, at_least_one)?;
        check("kv-tokens", options.kv_tokens, 1..=MOST_SLOTS, "1 to 2^31")?;
        check(
            "prefill-chunk",
            options.prefill_chunk,
            1..=usize::MAX,
            at_least_one,
        )?;
        Ok(Self {
            cache: parts.target.new_cache(options.kv_tokens),
            ends: Ends {
                eos: parts.eos,
                text: parts.text,
                context: parts.target.context(),
            },
            valid: parts.valid,
            target: parts.target,
            drafter: parts.drafter,
            rule: parts.rule,
            options,
            waiting: VecDeque::new(),
            prefilling: Vec::new(),
            groups: Vec::new(),
            running: Vec::new(),
            names: 0,
            tickets: 0,
            events: Vec::new(),
        })
    }

    /// Queues a request.
    ///
    /// # Errors
    /// If the target cannot serve it: nothing was queued.
    pub fn submit(&mut self, request: Request) -> Result<RequestHandle> {
        request.check(&Limits {
            vocab: self.target.vocab(),
            context: self.ends.context,
            kv_tokens: self.cache.capacity(),
            text: self.ends.text.is_some(),
        })?;
        let handle = RequestHandle(self.tickets);
        self.tickets += 1;
        let ends = end_ids(&request, &self.ends.eos);
        let group = Group {
            parent: self.name(),
            shared: Arc::new(Shared {
                ticket: handle.0,
                chain: Chain::new(
                    request.params.clone(),
                    self.target.vocab(),
                    self.valid,
                    ends,
                )?
                .with_processors(request.processors.clone()),
                request,
                admitted: Instant::now(),
            }),
            logits: Vec::new(),
            prefill: Duration::ZERO,
            started: 0,
        };
        self.waiting.push_back(Task::Fresh(group));
        Ok(handle)
    }

    /// Drops a request, wherever it is: no event of it follows.
    pub fn cancel(&mut self, handle: RequestHandle) {
        let of = |shared: &Shared| shared.ticket == handle.0;
        self.waiting.retain(|task| !of(task.shared()));
        let tasks = self.prefilling.extract_if(.., |task| of(task.shared()));
        let mut gone: Vec<SeqId> = tasks.map(|task| task.seq()).collect();
        let groups = self.groups.extract_if(.., |group| of(&group.shared));
        gone.extend(groups.map(|group| group.parent));
        let running = self.running.extract_if(.., |seq| of(seq.shared()));
        gone.extend(running.map(|seq| seq.id));
        for seq in gone {
            self.release(seq);
        }
    }

    /// Takes a request's rows away; it starts again from its tokens when there is room. For hosts
    /// that need the memory; the tokens do not change.
    pub fn preempt(&mut self, handle: RequestHandle) {
        while let Some(at) = self
            .running
            .iter()
            .rposition(|seq| seq.ticket() == handle.0)
        {
            self.suspend(at);
        }
    }

    /// True if nothing is left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.prefilling.is_empty()
            && self.groups.is_empty()
            && self.running.is_empty()
    }

    /// The target's cache, to look at.
    #[must_use]
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// Lets requests join, feeds prompts, takes every running choice through one round, and lets
    /// finished ones leave. A request that fails ends alone.
    pub fn step(&mut self) -> Vec<Event> {
        self.start_choices();
        self.admit();
        self.feed_prompts();
        self.start_choices();
        self.run_round();
        std::mem::take(&mut self.events)
    }

    /// Runs until nothing is left; all events in order.
    pub fn run(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while !self.is_idle() {
            events.extend(self.step());
        }
        events
    }

    fn name(&mut self) -> SeqId {
        self.names += 1;
        SeqId(self.names)
    }

    fn active(&self) -> usize {
        self.running.len() + self.prefilling.len()
    }

    /// Starts choices of prompts that have been fed while there is a place. One that lost its rows goes
    /// before those that never had any: else all choices of a request would be begun and suspended.
    fn start_choices(&mut self) {
        let suspended = |task: &Task| matches!(task, Task::Resumed(_));
        let most = if self.waiting.iter().any(suspended) {
            1
        } else {
            self.options.max_batch
        };
        while self.active() < most && !self.groups.is_empty() {
            let id = self.name();
            let group = &mut self.groups[0];
            let (parent, len) = (group.parent, group.shared.request.prompt.len());
            let mut seq = group.next(id, &self.ends);
            let first = first_token(&mut seq, &group.logits);
            let spent = group.spent();
            if let Err(error) = self.cache.fork(parent, id, len) {
                unreachable!("the prompt is in the cache: {error}");
            }
            self.drafter.fork(parent, id);
            self.tell(&seq, first);
            self.running.push(seq);
            if spent {
                self.groups.remove(0);
                self.release(parent);
            }
            self.retire();
        }
    }

    /// Moves waiting tasks to the prefill while there is a place and, beside a row for each running
    /// choice, room for their tokens. With nothing in work the first is always let in.
    fn admit(&mut self) {
        let mut promised = self.running.len();
        for task in &self.prefilling {
            promised += task.tokens().len() + 1 - self.cache.committed(task.seq());
        }
        while self.active() < self.options.max_batch
            && let Some(task) = self.waiting.front()
        {
            promised += task.tokens().len() + 1;
            let alone = self.active() == 0 && self.groups.is_empty();
            if promised > self.cache.free() && !alone {
                return;
            }
            self.prefilling.extend(self.waiting.pop_front());
        }
    }

    fn feed_prompts(&mut self) {
        while !self.prefilling.is_empty() {
            let done = prefill(
                &*self.target,
                &mut *self.drafter,
                &mut self.cache,
                &mut self.prefilling,
                self.options.prefill_chunk,
            );
            match done {
                Ok(Some(())) => break,
                Ok(None) => self.make_room(),
                Err(error) => {
                    for task in std::mem::take(&mut self.prefilling) {
                        self.fail_task(task, &error.to_string());
                    }
                }
            }
        }
        for task in self
            .prefilling
            .extract_if(.., |task| fed(task, &self.cache))
        {
            match task {
                Task::Fresh(group) => self.groups.push(group),
                Task::Resumed(seq) => self.running.push(*seq),
            }
        }
        self.running.sort_by_key(|seq| seq.id);
    }

    fn run_round(&mut self) {
        while !self.running.is_empty() {
            let mut players = Players {
                target: &*self.target,
                drafter: &mut *self.drafter,
                rule: &*self.rule,
            };
            let done = round(
                &mut players,
                &mut self.cache,
                &mut self.running,
                self.options.plan(),
            );
            match done {
                Ok(Some(outcomes)) => {
                    self.tell_round(outcomes);
                    break;
                }
                Ok(None) => self.make_room(),
                Err(error) => {
                    for seq in &mut self.running {
                        seq.fail(error.to_string());
                    }
                    break;
                }
            }
        }
        self.retire();
    }

    /// Takes the rows of the youngest sequence away. One that is alone, or has but the prompt it
    /// shares with its request's other choices beside it, cannot be helped: it fails.
    fn make_room(&mut self) {
        let mut owners = self.running.iter().map(Sequence::ticket);
        let owner = owners
            .next()
            .or_else(|| self.prefilling.first().map(|task| task.shared().ticket));
        let own = |group: &Group| Some(group.shared.ticket) == owner;
        let alone = self.active() == 1 && self.groups.iter().all(own);
        let running = self.running.iter().map(|seq| seq.id);
        let groups = self.groups.iter().map(|group| group.parent);
        let prefilling = self.prefilling.iter().map(Task::seq);
        let Some(youngest) = running.chain(groups).chain(prefilling).max() else {
            return;
        };
        self.release(youngest);
        let running = self.running.extract_if(.., |seq| seq.id == youngest);
        let groups = self.groups.extract_if(.., |group| group.parent == youngest);
        let prefilling = self
            .prefilling
            .extract_if(.., |task| task.seq() == youngest);
        let tasks = running
            .map(|seq| Task::Resumed(Box::new(seq)))
            .chain(groups.map(Task::Fresh));
        let found: Vec<Task> = tasks.chain(prefilling).collect();
        for task in found {
            if alone {
                let error = self.no_room(task.tokens().len());
                self.fail_task(task, &error);
            } else {
                self.waiting.push_front(task);
            }
        }
    }

    fn no_room(&self, tokens: usize) -> String {
        let capacity = self.cache.capacity();
        format!("kv-tokens {capacity}: too few to go on after {tokens} tokens")
    }

    /// Sends a running choice back to wait, without its rows.
    fn suspend(&mut self, at: usize) {
        let seq = self.running.remove(at);
        self.release(seq.id);
        self.waiting.push_front(Task::Resumed(Box::new(seq)));
    }

    /// Ends what a task was to become: every choice that has not ended fails.
    fn fail_task(&mut self, task: Task, error: &str) {
        self.release(task.seq());
        match task {
            Task::Resumed(mut seq) => {
                seq.fail(error.to_owned());
                self.finish(*seq);
            }
            Task::Fresh(mut group) => {
                while !group.spent() {
                    let id = self.name();
                    let mut seq = group.next(id, &self.ends);
                    seq.fail(error.to_owned());
                    self.finish(seq);
                }
            }
        }
    }

    /// Lets the ended choices leave.
    fn retire(&mut self) {
        let ended: Vec<_> = self.running.extract_if(.., |seq| seq.ended()).collect();
        for seq in ended {
            self.release(seq.id);
            self.finish(seq);
        }
    }

    fn finish(&mut self, seq: Sequence) {
        let (request, choice) = (RequestHandle(seq.ticket()), seq.choice());
        let (text, report) = seq.finish();
        if !text.is_empty() {
            self.events.push(Event::Piece {
                request,
                choice,
                token: None,
                text,
                logprob: None,
            });
        }
        self.events.push(Event::Finished { request, report });
    }

    fn release(&mut self, seq: SeqId) {
        self.cache.release(seq);
        self.drafter.forget(seq);
    }

    fn tell_round(&mut self, outcomes: Vec<Outcome>) {
        for (seq, outcome) in self.running.iter().zip(outcomes) {
            for delivered in outcome.delivered {
                self.events.push(piece(seq, delivered));
            }
            let request = RequestHandle(seq.ticket());
            self.events.push(Event::Round {
                request,
                trace: outcome.trace,
            });
        }
    }

    fn tell(&mut self, seq: &Sequence, delivered: Option<Delivered>) {
        self.events
            .extend(delivered.map(|delivered| piece(seq, delivered)));
    }
}

fn piece(seq: &Sequence, delivered: Delivered) -> Event {
    Event::Piece {
        request: RequestHandle(seq.ticket()),
        choice: seq.choice(),
        token: Some(delivered.token),
        text: delivered.text,
        logprob: delivered.logprob,
    }
}

fn check(
    name: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
    accepted: &str,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ErrorKind::Setting {
        name,
        value: value.to_string(),
        accepted: accepted.to_owned(),
    }
    .into())
}
