//! A small laboratory: tiny targets, drafters that misbehave, and runs of the whole engine.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use eyrie::{
    Matrix, SeqId, TokenId,
    accept::{Match, Rule},
    cache::{KvCache, Txn},
    draft::{Anchor, Drafter, ModelDrafter, Ngram, NoDrafter, Pick, Seen},
    error::{ErrorKind, Result},
    kernels::Format,
    model::{Dtype, Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
    report::{ChoiceReport, Logprob, RoundTrace},
    request::Request,
    sample::{RawParams, SamplingParams},
    schedule::{Engine, EngineOptions, Event, Parts, RequestHandle},
    text::Tokenizer,
    tree::DraftTree,
};
use eyrie_fixtures::{Fixture, table, td, tt};
use tempfile::TempDir;

pub(crate) use xtask::grid::{prompts, random_script};

/// Prints a line past the test harness's capture.
pub(crate) fn say(line: &str) {
    let written = writeln!(std::io::stdout(), "{line}");
    written.expect("standard output is open");
}

/// The real model of some tests; without it they are skipped, and say so.
pub(crate) fn smollm2() -> Option<PathBuf> {
    let name = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if path.exists() {
        return Some(path);
    }
    say(&format!(
        "skipped: {name} is missing; run scripts/fetch-models.sh"
    ));
    None
}

/// Loads the checkpoint at `path`.
pub(crate) fn load(path: &Path, dtype: Dtype, threads: usize) -> Arc<dyn Target> {
    let checkpoint = Checkpoint::open(path).expect("the checkpoint opens");
    let options = LoadOptions {
        dtype,
        threads: Some(threads),
        ..LoadOptions::default()
    };
    Arc::new(Llama::load(&checkpoint, &options).expect("the checkpoint loads"))
}

/// Writes `fixture` and loads it.
pub(crate) fn target_of(fixture: &Fixture, dtype: Dtype, threads: usize) -> Arc<dyn Target> {
    let dir = TempDir::new().expect("a temporary folder");
    fixture
        .write_dir(dir.path())
        .expect("the fixture is written");
    load(dir.path(), dtype, threads)
}

/// The random seven-layer target of most tests.
pub(crate) fn tt_target() -> Arc<dyn Target> {
    target_of(&tt(), Dtype::AsStored, 1)
}

/// The random two-layer draft model.
pub(crate) fn td_target() -> Arc<dyn Target> {
    target_of(&td(), Dtype::AsStored, 1)
}

/// A target whose next-token logits are row `m[last token]`.
pub(crate) fn table_target(m: &[Vec<f32>]) -> Arc<dyn Target> {
    target_of(&table(m), Dtype::AsStored, 1)
}

/// A target that says the same law after every token.
pub(crate) fn constant_target(p: &[f64]) -> Arc<dyn Target> {
    table_target(&vec![logs(p); p.len()])
}

/// Logarithms, with a large negative number for zero.
pub(crate) fn logs(p: &[f64]) -> Vec<f32> {
    p.iter()
        .map(|p| if *p > 0.0 { logf(*p) } else { -60.0 })
        .collect()
}

#[expect(clippy::cast_possible_truncation, reason = "logits are f32")]
fn logf(p: f64) -> f32 {
    p.ln() as f32
}

/// A small number as a token id.
pub(crate) fn at(i: usize) -> TokenId {
    TokenId::try_from(i).expect("a small number")
}

/// A greedy request of 24 tokens, to be changed by struct update.
pub(crate) fn request(prompt: &[TokenId]) -> Request {
    Request {
        id: "r".to_owned(),
        prompt: prompt.to_vec(),
        params: params(|_| ()),
        max_tokens: 24,
        stop: Vec::new(),
        stop_ids: Vec::new(),
        ignore_eos: false,
        seed: 1,
        n: 1,
        logprobs: None,
        drafter_off: false,
        processors: Vec::new(),
    }
}

/// Valid parameters, changed from the neutral ones.
pub(crate) fn params(change: impl FnOnce(&mut RawParams)) -> SamplingParams {
    let mut raw = RawParams::default();
    change(&mut raw);
    SamplingParams::new(raw).expect("valid parameters")
}

/// `request` at temperature `t` with seed `seed`.
pub(crate) fn drawn(prompt: &[TokenId], t: f64, seed: u64) -> Request {
    Request {
        params: params(|raw| raw.temperature = t),
        seed,
        ..request(prompt)
    }
}

/// An engine to be: a target, a way to make its drafter, and settings.
pub(crate) struct Lab {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) text: Option<Tokenizer>,
    pub(crate) eos: Vec<TokenId>,
    pub(crate) valid: Option<usize>,
    pub(crate) options: EngineOptions,
    pub(crate) rule: fn() -> Box<dyn Rule>,
}

/// What a run gave.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// In the order of requests and choices.
    pub(crate) choices: Vec<ChoiceReport>,
    /// By request and choice, the joined pieces of text.
    pub(crate) streams: BTreeMap<(RequestHandle, usize), String>,
    /// By request and choice, the tokens of the pieces.
    pub(crate) streamed: BTreeMap<(RequestHandle, usize), Vec<TokenId>>,
    /// By request and choice, the log-probabilities of the pieces.
    pub(crate) logprobs: BTreeMap<(RequestHandle, usize), Vec<Logprob>>,
    /// All rounds.
    pub(crate) traces: Vec<RoundTrace>,
}

impl Run {
    /// The tokens of every choice.
    pub(crate) fn tokens(&self) -> Vec<Vec<TokenId>> {
        self.choices
            .iter()
            .map(|choice| choice.tokens.clone())
            .collect()
    }

    /// Drafted and accepted tokens of all rounds.
    pub(crate) fn drafted_accepted(&self) -> (usize, usize) {
        let rounds = self.choices.iter().flat_map(|choice| &choice.rounds);
        rounds.fold((0, 0), |(d, a), round| {
            (d + round.drafted, a + round.accepted)
        })
    }
}

impl Lab {
    pub(crate) fn new(target: Arc<dyn Target>) -> Self {
        Self {
            target,
            text: None,
            eos: Vec::new(),
            valid: None,
            options: EngineOptions {
                depth: 4,
                nodes: None,
                max_batch: 16,
                kv_tokens: 4096,
                prefill_chunk: 64,
            },
            rule: || Box::new(Match),
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn engine(&self, drafter: Box<dyn Drafter>) -> Engine {
        let parts = Parts {
            target: Arc::clone(&self.target),
            text: self.text.clone(),
            eos: self.eos.clone(),
            valid: self.valid.unwrap_or(self.target.vocab()),
            drafter,
            rule: (self.rule)(),
        };
        Engine::new(parts, self.options).expect("valid settings")
    }

    /// Runs all requests, submitted together.
    pub(crate) fn run(&self, drafter: Box<dyn Drafter>, requests: &[Request]) -> Run {
        let mut engine = self.engine(drafter);
        for request in requests {
            engine.submit(request.clone()).expect("a valid request");
        }
        let run = finish(&mut engine);
        assert_eq!(
            engine.cache().free(),
            engine.cache().capacity(),
            "slots leak"
        );
        run
    }

    /// Plain decoding of the same build, one request at a time.
    pub(crate) fn base(&self, requests: &[Request]) -> Vec<Vec<TokenId>> {
        let alone =
            |request: &Request| self.run(Box::new(NoDrafter), std::slice::from_ref(request));
        requests
            .iter()
            .flat_map(|request| alone(request).tokens())
            .collect()
    }

    /// Drafts with `model` for this target.
    pub(crate) fn model_drafter(&self, model: Arc<dyn Target>, pick: Pick) -> Box<dyn Drafter> {
        Box::new(ModelDrafter::new(
            model,
            pick,
            self.options.kv_tokens,
            self.options.prefill_chunk,
        ))
    }

    /// Drafts trees with `model`, of so many children a row.
    pub(crate) fn tree_drafter(
        &self,
        model: Arc<dyn Target>,
        pick: Pick,
        topk: usize,
    ) -> Box<dyn Drafter> {
        let EngineOptions {
            kv_tokens,
            prefill_chunk,
            ..
        } = self.options;
        let drafter = ModelDrafter::new(model, pick, kv_tokens, prefill_chunk);
        Box::new(drafter.branching(topk))
    }

    /// The target as its own drafter.
    pub(crate) fn self_drafter(&self) -> Box<dyn Drafter> {
        self.model_drafter(Arc::clone(&self.target), Pick::Coupled)
    }
}

/// Steps until nothing is left.
pub(crate) fn finish(engine: &mut Engine) -> Run {
    let mut run = Run::default();
    let mut done = Vec::new();
    while !engine.is_idle() {
        for event in engine.step() {
            take(&mut run, &mut done, event);
        }
    }
    done.sort_by_key(
        |(handle, choice, _): &(RequestHandle, usize, ChoiceReport)| (*handle, *choice),
    );
    run.choices = done.into_iter().map(|(_, _, report)| report).collect();
    run
}

/// Sorts an event into `run` and the finished choices `done`.
pub(crate) fn take(
    run: &mut Run,
    done: &mut Vec<(RequestHandle, usize, ChoiceReport)>,
    event: Event,
) {
    match event {
        Event::Piece {
            request,
            choice,
            token,
            text,
            logprob,
        } => {
            run.streams
                .entry((request, choice))
                .or_default()
                .push_str(&text);
            run.streamed
                .entry((request, choice))
                .or_default()
                .extend(token);
            run.logprobs
                .entry((request, choice))
                .or_default()
                .extend(logprob);
        }
        Event::Round { trace, .. } => run.traces.push(trace),
        Event::Finished { request, report } => {
            let streamed = run
                .streamed
                .get(&(request, report.choice))
                .cloned()
                .unwrap_or_default();
            assert_eq!(
                streamed, report.tokens,
                "the stream's tokens are the result's"
            );
            let logprobs = run.logprobs.get(&(request, report.choice));
            assert_eq!(
                logprobs.cloned().unwrap_or_default(),
                report.logprobs.clone().unwrap_or_default(),
                "the pieces' log-probabilities are the result's"
            );
            let text = run
                .streams
                .get(&(request, report.choice))
                .cloned()
                .unwrap_or_default();
            assert_eq!(
                report.text.clone().unwrap_or_default(),
                text,
                "the stream's text is the result's"
            );
            consistent(&report);
            done.push((request, report.choice, report));
        }
    }
}

/// What holds for every result, whatever was asked.
fn consistent(report: &ChoiceReport) {
    assert_eq!(report.usage.completion_tokens, report.tokens.len());
    if let Some(logprobs) = &report.logprobs {
        let ids: Vec<_> = logprobs.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, report.tokens);
    }
    let emitted: usize = report.rounds.iter().map(|round| round.emitted).sum();
    if !report.tokens.is_empty() {
        assert_eq!(emitted + 1, report.tokens.len());
    }
    for round in &report.rounds {
        assert!(round.accepted <= round.drafted, "{round:?}");
        assert!(
            round.accepted <= round.emitted && round.emitted <= round.accepted + 1,
            "{round:?}"
        );
    }
}

/// Proposes the same tokens in every round.
#[derive(Debug)]
pub(crate) struct Always(pub(crate) Vec<TokenId>);

impl Drafter for Always {
    fn name(&self) -> &'static str {
        "always"
    }

    fn propose(&mut self, _: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        trees.fill(DraftTree::chain(&self.0));
        Ok(())
    }
}

/// Asks another drafter and counts.
#[derive(Debug)]
pub(crate) struct Spy {
    pub(crate) inner: Box<dyn Drafter>,
    pub(crate) seen: Arc<Seens>,
}

/// What a [`Spy`] saw.
#[derive(Debug, Default)]
pub(crate) struct Seens {
    pub(crate) calls: AtomicUsize,
    pub(crate) observed: AtomicUsize,
    pub(crate) forgotten: AtomicUsize,
    pub(crate) prompts: Mutex<Vec<TokenId>>,
    pub(crate) depths: Mutex<Vec<usize>>,
}

impl Drafter for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }

    fn taps(&self) -> &[usize] {
        self.inner.taps()
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        self.seen.observed.fetch_add(seen.len(), Ordering::Relaxed);
        self.inner.observe(seen)
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        self.seen.calls.fetch_add(1, Ordering::Relaxed);
        for anchor in anchors.iter() {
            self.seen.prompts.lock().unwrap().push(anchor.tokens[0]);
            self.seen.depths.lock().unwrap().push(anchor.depth);
        }
        self.inner.propose(anchors, trees)
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        self.inner.fork(from, to);
    }

    fn forget(&mut self, seq: SeqId) {
        self.seen.forgotten.fetch_add(1, Ordering::Relaxed);
        self.inner.forget(seq);
    }
}

/// Knows what each prompt goes on with, and hides it among decoys: at every level the right token
/// is not the first child, and the decoys have children too.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) known: Vec<Vec<TokenId>>,
    pub(crate) topk: u32,
    pub(crate) vocab: u32,
}

impl Drafter for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        for (anchor, tree) in anchors.iter().zip(trees) {
            let known = self
                .known
                .iter()
                .find(|known| known.starts_with(anchor.tokens));
            let future = known.map_or(&[][..], |known| &known[anchor.tokens.len()..]);
            let mut above = None;
            for (level, right) in future.iter().take(anchor.depth).enumerate() {
                let place = (at(level) + 1) % self.topk;
                let mut next = above;
                for i in 0..self.topk {
                    let offset = (i + self.topk - place) % self.topk;
                    let node = tree.point(above, (right + offset) % self.vocab)?;
                    if i == place {
                        next = Some(node);
                    } else {
                        tree.point(Some(node), (right + i) % self.vocab)?;
                    }
                }
                above = next;
            }
        }
        Ok(())
    }
}

/// Fails in every second call, in one way or another.
#[derive(Debug, Default)]
pub(crate) struct Broken(pub(crate) usize);

impl Drafter for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn propose(&mut self, _: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        self.0 += 1;
        if !self.0.is_multiple_of(4) {
            trees.fill(DraftTree::chain(&[1, 2, 3]));
        }
        match self.0.is_multiple_of(2) {
            true => Err(ErrorKind::Draft("lost its mind".to_owned()).into()),
            false => Ok(()),
        }
    }
}

/// The drafters of the project over the tiny target, by name.
pub(crate) fn drafter(lab: &Lab, name: &str) -> Box<dyn Drafter> {
    match name {
        "none" => Box::new(NoDrafter),
        "ngram" => Box::new(Ngram),
        "self" => lab.self_drafter(),
        "self-greedy" => lab.model_drafter(Arc::clone(&lab.target), Pick::Greedy),
        "td" => lab.model_drafter(td_target(), Pick::Coupled),
        "self-drawn" => lab.model_drafter(Arc::clone(&lab.target), Pick::Drawn),
        "td-drawn" => lab.model_drafter(td_target(), Pick::Drawn),
        "script" => Box::new(random_script(64, 64, 5)),
        "broken" => Box::new(Broken::default()),
        other => panic!("no drafter {other}"),
    }
}

/// The tokenizer of the fixtures.
pub(crate) fn tiny_tokenizer() -> Tokenizer {
    let dir = TempDir::new().expect("a temporary folder");
    let fixture = Fixture {
        tokenizer: true,
        ..tt()
    };
    fixture
        .write_dir(dir.path())
        .expect("the fixture is written");
    Tokenizer::from_json(&dir.path().join("tokenizer.json")).expect("it loads")
}

/// Logits after every token of `tokens`, fed in chunks of the given sizes.
pub(crate) fn logits_in_chunks(
    target: &dyn Target,
    tokens: &[TokenId],
    chunks: &[usize],
) -> Matrix {
    let mut cache: KvCache = target.new_cache(tokens.len());
    let (seq, mut all, mut rest) = (SeqId(1), Vec::new(), tokens);
    for chunk in chunks {
        let (now, later) = rest.split_at(*chunk);
        let mut rows = Rows::new();
        rows.chain(seq, cache.committed(seq), now, Wanted::All)
            .expect("a chain");
        let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
        let out = target.forward(&rows, &mut txn, &[]).expect("a pass");
        txn.commit(seq, &(0..*chunk).collect::<Vec<_>>())
            .expect("its rows");
        all.extend_from_slice(out.logits.as_slice());
        rest = later;
    }
    Matrix::new(target.vocab(), all)
}

/// Logits after every token of `tokens`, from one pass.
pub(crate) fn all_logits(target: &dyn Target, tokens: &[TokenId]) -> Matrix {
    logits_in_chunks(target, tokens, &[tokens.len()])
}

/// Matrices converted to `format`.
pub(crate) fn to(format: Format) -> Dtype {
    Dtype::To(format)
}
