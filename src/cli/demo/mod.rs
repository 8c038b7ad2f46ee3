//! `eyrie demo`: one prompt plainly and with drafts, side by side, and the law judged on the spot.

mod columns;
mod law;
mod shown;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use self::{columns::Look, law::Law, shown::Shown};
use super::{
    args::{Device, DrafterKind, Dtype, RuleKind, threads},
    bench::{BenchArgs, Beside, DrafterSpec},
    embedded,
    error::{Unwritable, usage},
    head_args::HeadArgs,
    say,
    setup::kind_of,
};

/// Said by `demo --help`.
pub(super) const DEMO: &str = "\
What is shown: the answer at temperature 0 plainly and with drafts, whose tokens must be the same (else exit \
status 1); acceptance by position; the time by stage; the ratio of speeds with its 95 % interval, of \
repeats that take turns; and the law of the first two tokens at temperature 1, with and without drafts, \
by chi-square against the enumerated law. Exit status: 0 PASS, 1 FAIL or a failed run, 2 wrong usage, 3 \
UNDECIDED (more --samples are needed). eyrie without arguments is eyrie demo.";

/// What the embedded model, which was trained on addresses to Congress, goes on from.
const PROMPT: &str = "Last year I asked";

/// Drafted tokens a round.
const DEPTH: u8 = 4;
/// Times that each side answers, in turns.
const REPEATS: u16 = 5;
/// Answers of each side that the law is judged by, and the total variation that each side must exclude to
/// pass: of the embedded model, and of larger ones.
const JUDGED: [(u32, f64); 2] = [(10_000, 0.05), (1_000, 0.2)];
/// Sequences in a pass when the law is judged.
const BATCH: u16 = 64;
/// Tokens of the cache beside those of the prompt.
const ROOM: usize = 4096;
const SEED: u64 = 0;

/// Flags of `demo`.
#[derive(Debug, Default, Args)]
pub struct DemoArgs {
    /// Target: directory, .gguf file, or tiny, the embedded model [default: tiny]
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// What drafts: EAGLE head, draft model or script [default: embedded, the head of tiny]
    #[arg(long, value_name = "PATH")]
    pub draft: Option<PathBuf>,
    /// What is gone on from, or asked if the model has a chat template
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Most tokens of the answer [default: 96]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Answers of each side that the law is judged by, up to 65536 [default: 10000 of tiny, else 1000]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub samples: Option<u32>,
    /// Threads to compute with, 1 to 1024 [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// No colour, as on what is no terminal, or with NO_COLOR set
    #[arg(long)]
    pub plain_text: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
}

/// The configuration of a demo. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
struct Config {
    version: &'static str,
    model: PathBuf,
    draft: PathBuf,
    drafter: DrafterKind,
    depth: u8,
    prompt: String,
    max_tokens: u32,
    repeats: u16,
    samples: u32,
    seed: u64,
    alpha: f64,
    tv: f64,
    threads: usize,
    plain_text: bool,
    json: bool,
}

impl Config {
    fn new(args: &DemoArgs) -> Result<Self> {
        let tiny = Path::new(embedded::MODEL);
        let model = args.model.clone().unwrap_or_else(|| tiny.to_owned());
        let draft = match &args.draft {
            Some(draft) => draft.clone(),
            None if model == tiny => embedded::HEAD.into(),
            None => {
                let reason = format!("missing; {} has no embedded head", model.display());
                return usage("--draft", reason);
            }
        };
        let (samples, tv) = JUDGED[usize::from(model != tiny)];
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            drafter: kind_of(&draft)?,
            model,
            draft,
            depth: DEPTH,
            prompt: args.prompt.clone().unwrap_or_else(|| PROMPT.to_owned()),
            max_tokens: args.max_tokens.unwrap_or(96),
            repeats: REPEATS,
            samples: args.samples.unwrap_or(samples),
            seed: SEED,
            alpha: law::ALPHA,
            tv,
            threads: threads(args.threads),
            plain_text: args.plain_text,
            json: args.json,
        })
    }

    /// The same as a benchmark.
    fn bench(&self, threads: Option<u16>) -> BenchArgs {
        let room = (ROOM + self.prompt.len()).min(1 << 24);
        BenchArgs {
            model: self.model.clone(),
            drafters: vec![DrafterSpec {
                kind: self.drafter,
                path: Some(self.draft.clone()),
            }],
            draft: None,
            depths: vec![self.depth],
            tree: Vec::new(),
            head: HeadArgs::default(),
            rule: RuleKind::Match,
            pick: None,
            concurrency: vec![1],
            temperature: vec![0.0],
            prompts: Vec::new(),
            take: None,
            chat: false,
            raw: false,
            max_tokens: self.max_tokens,
            ignore_eos: false,
            repeats: self.repeats,
            warm_up: 1,
            seed: self.seed,
            dtype: Dtype::AsStored,
            head_dtype: None,
            device: Device::Cpu,
            threads,
            max_batch: Some(BATCH),
            kv_tokens: u32::try_from(room).ok(),
            prefill_chunk: 64,
            allow_tokenizer_mismatch: false,
            out: PathBuf::new(),
            json: self.json,
            print_config: false,
        }
    }
}

/// Runs the command; the exit status.
pub(super) fn run(args: &DemoArgs) -> Result<u8> {
    let config = Config::new(args)?;
    if args.print_config {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&config)?).map_err(Unwritable)?;
        return Ok(0);
    }
    let begin = Instant::now();
    let beside = Beside::run(&config.bench(args.threads), &config.prompt)?;
    for warning in beside.warnings() {
        say("warning", warning);
    }
    let shown = Shown {
        config: &config,
        beside: &beside,
        look: Look::of_stdout(config.plain_text),
    };
    if !config.json {
        print(&shown.answers()?)?;
    }
    let law = Law::judge(&beside, &config)?;
    let seconds = begin.elapsed().as_secs_f64();
    print(&if config.json {
        shown.json(&law, seconds)?
    } else {
        shown.verdict(&law, seconds)?
    })?;
    Ok(law.verdict().exit())
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.map_err(Unwritable)?)
}
