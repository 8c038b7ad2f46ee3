//! The grid: every configuration must give the tokens that it promises.
//!
//! Under the rule `match`, and at temperature 0 under every rule, those are the tokens of plain
//! decoding. Under `rejection` and `block` at a temperature above 0 only the law is that of plain
//! decoding, which a grid cannot see; but the tokens of a request may depend on nothing beside its
//! seed and its rounds, so they must be those of the same drafter and depth without neighbours, on
//! one thread, with another prefill chunk.

use std::{collections::BTreeMap, io::Write, sync::Arc, time::Instant};

use eyrie::{
    TokenId,
    accept::{Block, Match, Rejection, Rule},
    draft::{
        Drafter, FirstOf, ModelDrafter, Ngram, NoDrafter, Pick, Script, Shape,
        eagle::{EagleDrafter, Head, HeadCheckpoint, HeadOptions, TargetFacts},
    },
    kernels::Format,
    model::{Dtype, Llama, LoadOptions, Target, load::Checkpoint},
    request::Request,
    sample::{RawParams, SamplingParams},
    schedule::{Engine, EngineOptions, Event, Parts},
};
use eyrie_fixtures::{
    Fixture,
    head::{tt_e1, tt_e3},
    td, tt,
};

/// Drafters of the grid: `self` is the target, `td` a random model of two layers, both with the
/// pick that the rule is for (`coupled` or `drawn`), `td-greedy` the same with the pick `greedy`,
/// `td-tree` the same with trees of three children a row, where the rule is not for chains only;
/// `eagle1` and `eagle3` random heads, the latter with half of the vocabulary, `eagle3-tree` as `td-tree`;
/// `ngram-eagle3` asks the head where `ngram` has no guess, `ngram-eagle3-tree` as `td-tree`.
pub const DRAFTERS: [&str; 12] = [
    "none",
    "ngram",
    "self",
    "td",
    "td-greedy",
    "td-tree",
    "script",
    "eagle1",
    "eagle3",
    "eagle3-tree",
    "ngram-eagle3",
    "ngram-eagle3-tree",
];
/// Most levels of drafts a round.
pub const DEPTHS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Temperatures.
pub const TEMPERATURES: [f64; 3] = [0.0, 0.7, 1.3];
/// Other parameters.
pub const FILTERS: [&str; 3] = ["open", "filtered", "penalised"];
/// Seeds.
pub const SEEDS: [u64; 2] = [3, 1 << 40];
/// Requests at once.
pub const BATCHES: [usize; 3] = [1, 5, 16];
/// Prompt tokens at a time.
pub const CHUNKS: [usize; 3] = [1, 7, 64];
/// Threads.
pub const THREADS: [usize; 2] = [1, 2];
/// Weights.
pub const FORMATS: [Format; 2] = [Format::F32, Format::Q8_0];
/// Rules.
pub const RULES: [&str; 3] = ["match", "rejection", "block"];

/// Ids of the tiny models.
const VOCAB: u32 = 64;

/// Levels of each factor, in the order of [`Config::at`].
pub const LEVELS: [usize; 10] = [
    DRAFTERS.len(),
    DEPTHS.len(),
    TEMPERATURES.len(),
    FILTERS.len(),
    SEEDS.len(),
    BATCHES.len(),
    CHUNKS.len(),
    THREADS.len(),
    FORMATS.len(),
    RULES.len(),
];

/// One configuration, by the level of each factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// See [`DRAFTERS`].
    pub drafter: &'static str,
    /// See [`DEPTHS`].
    pub depth: usize,
    /// See [`TEMPERATURES`].
    pub temperature: f64,
    /// See [`FILTERS`].
    pub filter: &'static str,
    /// See [`SEEDS`].
    pub seed: u64,
    /// See [`BATCHES`].
    pub batch: usize,
    /// See [`CHUNKS`].
    pub chunk: usize,
    /// See [`THREADS`].
    pub threads: usize,
    /// See [`FORMATS`].
    pub format: Format,
    /// See [`RULES`].
    pub rule: &'static str,
    /// The levels.
    row: [usize; LEVELS.len()],
}

impl Config {
    /// The configuration of one level a factor.
    ///
    /// # Panics
    /// If `row` is not a row of [`LEVELS`].
    #[must_use]
    pub fn at(row: &[usize; LEVELS.len()]) -> Self {
        Self {
            drafter: DRAFTERS[row[0]],
            depth: DEPTHS[row[1]],
            temperature: TEMPERATURES[row[2]],
            filter: FILTERS[row[3]],
            seed: SEEDS[row[4]],
            batch: BATCHES[row[5]],
            chunk: CHUNKS[row[6]],
            threads: THREADS[row[7]],
            format: FORMATS[row[8]],
            rule: RULES[row[9]],
            row: *row,
        }
    }

    /// Whether the tokens of plain decoding are promised.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.rule == "match" || self.temperature <= 0.0
    }

    /// Whether its drafts are trees.
    fn grows_trees(&self) -> bool {
        self.drafter.ends_with("-tree") && self.rule != "block"
    }

    /// Plain decoding of one request at a time, on one thread, with the largest chunk.
    #[must_use]
    pub fn plain(&self) -> Self {
        let [_, _, temperature, filter, seed, _, _, _, format, _] = self.row;
        let chunk = CHUNKS.len() - 1;
        Self::at(&[0, 0, temperature, filter, seed, 0, chunk, 0, format, 0])
    }

    /// The configuration that must give the same tokens.
    #[must_use]
    pub fn reference(&self) -> Self {
        let plain = self.plain();
        if self.is_plain() {
            return plain;
        }
        let mut row = plain.row;
        (row[0], row[1], row[9]) = (self.row[0], self.row[1], self.row[9]);
        Self::at(&row)
    }

    fn params(&self) -> anyhow::Result<SamplingParams> {
        let mut raw = RawParams {
            temperature: self.temperature,
            ..RawParams::default()
        };
        match self.filter {
            "filtered" => (raw.top_k, raw.top_p, raw.min_p) = (20, 0.9, 0.02),
            "penalised" => {
                raw.repetition_penalty = 1.2;
                raw.presence_penalty = 0.4;
                raw.frequency_penalty = -0.3;
                raw.logit_bias.insert(5, 1.5);
                raw.min_tokens = 3;
            }
            _ => (),
        }
        Ok(SamplingParams::new(raw)?)
    }
}

/// What a configuration did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Tokens by prompt.
    pub tokens: Vec<Vec<TokenId>>,
    /// Drafted tokens.
    pub drafted: usize,
    /// Accepted tokens.
    pub accepted: usize,
}

/// Loaded models and the tokens of references, made once.
#[derive(Debug)]
pub struct Runner {
    folder: tempfile::TempDir,
    prompts: Vec<Vec<TokenId>>,
    length: usize,
    models: BTreeMap<(&'static str, usize, String), Arc<dyn Target>>,
    references: BTreeMap<[usize; LEVELS.len()], Vec<Vec<TokenId>>>,
}

impl Runner {
    /// A runner over the first `prompts` of twenty prompts, with `tokens` tokens a request.
    ///
    /// # Errors
    /// If the tiny models cannot be written.
    pub fn new(prompts: usize, tokens: usize) -> anyhow::Result<Self> {
        let folder = tempfile::TempDir::new()?;
        let write = |name: &str, fixture: &Fixture| {
            let dir = folder.path().join(name);
            std::fs::create_dir(&dir)?;
            fixture.write_dir(&dir)
        };
        write("tt", &tt())?;
        write("td", &td())?;
        tt_e1().write_dir(&folder.path().join("eagle1"))?;
        tt_e3().write_dir(&folder.path().join("eagle3"))?;
        let mut all = self::prompts(VOCAB);
        all.truncate(prompts);
        Ok(Self {
            folder,
            prompts: all,
            length: tokens,
            models: BTreeMap::new(),
            references: BTreeMap::new(),
        })
    }

    /// Runs `config`; its tokens and those of its [reference](Config::reference).
    ///
    /// # Errors
    /// If a model or a setting is refused.
    pub fn compare(&mut self, config: &Config) -> anyhow::Result<(Outcome, Vec<Vec<TokenId>>)> {
        let reference = self.tokens(&config.reference())?;
        Ok((self.run(config)?, reference))
    }

    /// The tokens of a configuration that many are compared with.
    ///
    /// # Errors
    /// As [`Runner::compare`].
    pub fn tokens(&mut self, config: &Config) -> anyhow::Result<Vec<Vec<TokenId>>> {
        if let Some(tokens) = self.references.get(&config.row) {
            return Ok(tokens.clone());
        }
        let tokens = self.run(config)?.tokens;
        self.references.insert(config.row, tokens.clone());
        Ok(tokens)
    }

    fn model(&mut self, name: &'static str, config: &Config) -> anyhow::Result<Arc<dyn Target>> {
        let key = (name, config.threads, config.format.to_string());
        if let Some(model) = self.models.get(&key) {
            return Ok(Arc::clone(model));
        }
        let checkpoint = Checkpoint::open(&self.folder.path().join(name))?;
        let options = LoadOptions {
            dtype: Dtype::To(config.format),
            threads: Some(config.threads),
            ..LoadOptions::default()
        };
        let model: Arc<dyn Target> = Arc::new(Llama::load(&checkpoint, &options)?);
        self.models.insert(key, Arc::clone(&model));
        Ok(model)
    }

    /// A head, its weights as stored.
    fn head(&mut self, name: &'static str, config: &Config) -> anyhow::Result<Head> {
        let target = self.model("tt", config)?;
        let checkpoint = Checkpoint::open(&self.folder.path().join("tt"))?;
        let facts = TargetFacts::from(checkpoint.config());
        let path = self.folder.path().join(name);
        let head = HeadCheckpoint::open(&path, &facts, &HeadOptions::default())?;
        let options = LoadOptions {
            threads: Some(config.threads),
            ..LoadOptions::default()
        };
        Ok(Head::load(&head, target, &options)?)
    }

    fn drafter(&mut self, config: &Config) -> anyhow::Result<Box<dyn Drafter>> {
        let pick = match (config.drafter, config.rule) {
            ("td-greedy", _) => Pick::Greedy,
            (_, "match") => Pick::Coupled,
            _ => Pick::Drawn,
        };
        let topk = if config.grows_trees() { 3 } else { 1 };
        let name = config.drafter.trim_end_matches("-tree");
        let (first, name) = match name.strip_prefix("ngram-") {
            Some(name) => (true, name),
            None => (false, name),
        };
        if let "eagle1" | "eagle3" = name {
            let head = self.head(name, config)?;
            let eagle = EagleDrafter::new(head, Shape { pick, topk }, 4096);
            return Ok(match first {
                true => Box::new(FirstOf::new(Box::new(Ngram), Box::new(eagle))),
                false => Box::new(eagle),
            });
        }
        let model = match config.drafter {
            "self" => self.model("tt", config)?,
            "td" | "td-greedy" | "td-tree" => self.model("td", config)?,
            "ngram" => return Ok(Box::new(Ngram)),
            "script" => return Ok(Box::new(random_script(VOCAB, 64, config.seed))),
            _ => return Ok(Box::new(NoDrafter)),
        };
        let drafter = ModelDrafter::new(model, pick, 4096, config.chunk);
        Ok(Box::new(drafter.branching(topk)))
    }

    fn run(&mut self, config: &Config) -> anyhow::Result<Outcome> {
        let target = self.model("tt", config)?;
        let rule: Box<dyn Rule> = match config.rule {
            "rejection" => Box::new(Rejection),
            "block" => Box::new(Block),
            _ => Box::new(Match),
        };
        let parts = Parts {
            valid: target.vocab(),
            target,
            text: None,
            eos: vec![11],
            drafter: self.drafter(config)?,
            rule,
        };
        let options = EngineOptions {
            depth: config.depth,
            nodes: config.grows_trees().then_some(3 * config.depth),
            max_batch: config.batch,
            kv_tokens: 4096,
            prefill_chunk: config.chunk,
        };
        let mut engine = Engine::new(parts, options)?;
        for (i, prompt) in self.prompts.iter().enumerate() {
            engine.submit(Request {
                id: i.to_string(),
                prompt: prompt.clone(),
                params: config.params()?,
                max_tokens: self.length,
                stop: Vec::new(),
                stop_ids: Vec::new(),
                ignore_eos: false,
                seed: config.seed + i as u64,
                n: 1,
                logprobs: None,
                drafter_off: false,
                processors: Vec::new(),
            })?;
        }
        let mut outcome = Outcome {
            tokens: vec![Vec::new(); self.prompts.len()],
            ..Outcome::default()
        };
        for event in engine.run() {
            if let Event::Finished { request, report } = event {
                let at = usize::try_from(request.0)?;
                outcome.drafted += report
                    .rounds
                    .iter()
                    .map(|round| round.drafted)
                    .sum::<usize>();
                outcome.accepted += report
                    .rounds
                    .iter()
                    .map(|round| round.accepted)
                    .sum::<usize>();
                outcome.tokens[at] = report.tokens;
            }
        }
        Ok(outcome)
    }
}

/// Twenty prompts over `vocab` ids, of different lengths; one is a single token, one is a single
/// token 48 times.
#[must_use]
pub fn prompts(vocab: u32) -> Vec<Vec<TokenId>> {
    let mut all: Vec<Vec<TokenId>> = (0..18u32)
        .map(|i| {
            (0..3 + i * 2)
                .map(|j| (i * 31 + j * j * 7 + j) % vocab)
                .collect()
        })
        .collect();
    all.extend([vec![3], vec![7; 48]]);
    all
}

/// A script of `rounds` random lists: most ids below `vocab`, some beyond, some lists empty.
#[must_use]
pub fn random_script(vocab: u32, rounds: usize, seed: u64) -> Script {
    let mut state = seed;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 33).unwrap_or(0)
    };
    let lists = (0..rounds)
        .map(|_| (0..next() % 9).map(|_| next() % (vocab + 2)).collect())
        .collect();
    Script::new(lists)
}

/// Runs the full grid and prints one line a rule and drafter. Returns how many configurations differed.
///
/// # Errors
/// If a configuration cannot run, or `out` cannot be written.
pub fn run_all(tokens: usize, prompts: usize, out: &mut dyn Write) -> anyhow::Result<usize> {
    let begin = Instant::now();
    let mut runner = Runner::new(prompts, tokens)?;
    let total: usize = LEVELS.iter().product();
    let mut failed = 0;
    let mut sums: BTreeMap<(usize, &str), (usize, usize, usize, usize)> = BTreeMap::new();
    for mut index in 0..total {
        let row = LEVELS.map(|levels| {
            let level = index % levels;
            index /= levels;
            level
        });
        let config = Config::at(&row);
        let (outcome, reference) = runner.compare(&config)?;
        let sum = sums.entry((row[9], config.drafter)).or_default();
        sum.0 += 1;
        sum.1 += outcome.tokens.iter().map(Vec::len).sum::<usize>();
        sum.2 += outcome.drafted;
        sum.3 += outcome.accepted;
        if outcome.tokens != reference {
            failed += 1;
            writeln!(out, "DIFFERS {config:?}")?;
        }
    }
    writeln!(
        out,
        "rule       drafter           configurations     tokens    drafted   accepted"
    )?;
    for ((rule, drafter), (configs, tokens, drafted, accepted)) in sums {
        let rule = RULES[rule];
        writeln!(
            out,
            "{rule:<10} {drafter:<17} {configs:>14} {tokens:>10} {drafted:>10} {accepted:>10}"
        )?;
    }
    let seconds = begin.elapsed().as_secs();
    writeln!(
        out,
        "{total} configurations of {prompts} prompts, {failed} differ, {seconds} s"
    )?;
    Ok(failed)
}
