//! `eyrie check-head`: does a head guess what its target says?

use std::{io::Write, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, bail};
use clap::Args;
use rayon::ThreadPoolBuilder;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    args::{Device, Dtype, device, threads},
    embedded,
    error::{Unwritable, usage},
    head_args::HeadArgs,
    models::{self, Opened},
    progress::Busy,
    say,
};
use crate::{
    check::{ALPHA, Report, Subject, Text, Verdict, check, with_random_logits},
    draft::eagle::{Head, HeadCheckpoint, TargetFacts},
    model::LoadOptions,
    request::{RequestSpec, Resolver},
};

/// Said by `check-head --help`.
pub(super) const CHECK: &str = "\
A line of --prompts is a request (as of generate --requests, whose prompt, prompt_ids or messages are \
used), or an object whose list \"turns\" begins with a user's message. The head is fed what drafting \
would feed it, along the target's greedy answers; beside it stand the same head with taps a boundary \
lower and higher, the vocabulary map rolled by a row, another token's embedding (EAGLE-1) and a \
random lm_head, and always the commonest token. They are compared at position 1, on the same rows, by \
the sign test at 0.001. Exit status: 0 looks right, 1 something looks wrong or a failed run, 2 wrong \
usage, 3 the text is too short or too easy to say.";

/// Tokens of a piece of a text that is taken as it is.
const PIECE: usize = 512;

/// Flags of `check-head`.
#[derive(Debug, Args)]
pub struct CheckHeadArgs {
    /// Target: directory (config.json, *.safetensors, tokenizer.json), .gguf file, or tiny, which is embedded
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// EAGLE head: directory, .gguf file, or embedded, that of tiny
    #[arg(long, value_name = "PATH")]
    pub draft: PathBuf,
    /// What the target answers, a JSON object a line
    #[arg(long, value_name = "FILE")]
    pub prompts: PathBuf,
    /// --prompts is a text, taken as it is: the target answers nothing
    #[arg(long, conflicts_with = "max_tokens")]
    pub text: bool,
    /// Tokens of an answer [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Guesses on each row, 1 to 64
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub depth: u8,
    /// How the head is read.
    #[command(flatten)]
    pub head: HeadArgs,
    /// Weights of the target are converted to this type when loaded
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::AsStored)]
    pub dtype: Dtype,
    /// Where the target computes: cpu; or cuda, cuda:N in a build with that feature
    #[arg(long, default_value_t = Device::Cpu, value_parser = device)]
    pub device: Device,
    /// Threads to compute with, 1 to 1024 [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Seed of the random lm_head
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
}

/// The configuration of a check. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
struct Config {
    version: &'static str,
    model: PathBuf,
    draft: PathBuf,
    prompts: PathBuf,
    text: bool,
    /// None for a text that is taken as it is.
    max_tokens: Option<usize>,
    depth: usize,
    #[serde(flatten)]
    head: HeadArgs,
    dtype: Dtype,
    device: Device,
    threads: usize,
    seed: u64,
    json: bool,
}

impl Config {
    fn new(args: &CheckHeadArgs) -> Self {
        let tokens = args.max_tokens.unwrap_or(64) as usize;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            model: args.model.clone(),
            draft: args.draft.clone(),
            prompts: args.prompts.clone(),
            text: args.text,
            max_tokens: (!args.text).then_some(tokens),
            depth: args.depth.into(),
            head: args.head,
            dtype: args.dtype,
            device: args.device,
            threads: threads(args.threads),
            seed: args.seed,
            json: args.json,
        }
    }
}

/// Runs the command; the exit status.
pub(super) fn run(args: &CheckHeadArgs) -> Result<u8> {
    let config = Config::new(args);
    if args.print_config {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&config)?).map_err(Unwritable)?;
        return Ok(0);
    }
    let target = Opened::of("--model", &config.model)?;
    for warning in &target.warnings {
        say("warning", warning);
    }
    models::exists("--draft", &config.draft)?;
    let facts = TargetFacts::from(target.checkpoint.config());
    let opened = HeadCheckpoint::open(
        embedded::files(&config.draft),
        &facts,
        &(&config.head).into(),
    )?;
    for warning in &opened.config().warnings {
        say("warning", &format!("{}: {warning}", config.draft.display()));
    }
    let texts = texts(&config, &target)?;
    let pool = ThreadPoolBuilder::new().num_threads(config.threads);
    // A second command in one process keeps the first one's threads.
    let _ = pool.build_global();
    let subject = subject(&config, &target, &opened)?;
    let busy = Busy::start("checking texts");
    let report = check(&subject, &texts, config.depth, &mut |done, all| {
        busy.reached(done, all);
    })?;
    drop(busy);
    let mut out = std::io::stdout().lock();
    let written = if config.json {
        let mut object = json!(report);
        object["texts"] = json!(texts.len());
        object["alpha"] = json!(ALPHA);
        object["taps"] = json!(opened.config().feature.taps());
        object["config"] = json!(config);
        writeln!(out, "{object}")
    } else {
        table(&mut out, &report)
    };
    written.and_then(|()| out.flush()).map_err(Unwritable)?;
    Ok(match report.verdict {
        Verdict::Right => 0,
        Verdict::Wrong => 1,
        Verdict::Short => 3,
    })
}

fn subject(config: &Config, target: &Opened, opened: &HeadCheckpoint) -> Result<Subject> {
    let threads = Some(config.threads);
    let model = target.load_on(
        config.device,
        LoadOptions {
            dtype: config.dtype.into(),
            head_dtype: None,
            threads,
        },
    )?;
    let options = LoadOptions {
        threads,
        ..LoadOptions::default()
    };
    let head = Head::load(opened, Arc::clone(&model), &options)?;
    let mut source = |name: &str| opened.stored(name);
    let random = with_random_logits(
        opened.config(),
        &mut source,
        Arc::clone(&model),
        &options,
        config.seed,
    )?;
    Ok(Subject {
        head: Arc::new(head),
        random: Arc::new(random),
        target: model,
        valid: target.valid(),
        eos: target.eos(),
    })
}

/// The texts of the file, as tokens.
fn texts(config: &Config, target: &Opened) -> Result<Vec<Text>> {
    let about = || format!("--prompts {}", config.prompts.display());
    let context = target.checkpoint.config().max_position;
    let file = std::fs::read_to_string(&config.prompts).with_context(about)?;
    let Some(answer) = config.max_tokens else {
        let Some(tokenizer) = &target.tokenizer else {
            return usage("--text", "the model has no tokenizer");
        };
        let tokens = tokenizer.encode_prompt(&file).with_context(about)?;
        let pieces = tokens.chunks(PIECE.min(context)).map(|piece| Text {
            tokens: piece.to_vec(),
            answer: 0,
        });
        return Ok(pieces.collect());
    };
    let resolver = Resolver {
        tokenizer: target.tokenizer.clone(),
        chat: target.chat.clone(),
        valid: target.valid(),
        context,
        kv_tokens: context,
    };
    let lines = file.trim_start_matches('\u{feff}').lines().zip(1..);
    let mut texts = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let about = || format!("{}: line {number}", about());
        let spec = spec(line, resolver.chat.is_some()).with_context(about)?;
        let request = resolver.resolve(&spec, "", 0).with_context(about)?;
        texts.push(Text {
            tokens: request.prompt,
            answer,
        });
    }
    if texts.is_empty() {
        return usage(
            "--prompts",
            format!("{} has no prompt", config.prompts.display()),
        );
    }
    Ok(texts)
}

/// A line of prompts: a request, or a conversation's first turn.
pub(super) fn spec(line: &str, chat: bool) -> Result<RequestSpec> {
    let value: Value = serde_json::from_str(line).context("no JSON")?;
    let Some(turns) = value.get("turns") else {
        return Ok(RequestSpec::from_line(line)?);
    };
    let first = turns.as_array().and_then(|turns| turns.first()?.as_str());
    let Some(first) = first else {
        bail!("turns is {turns}; accepted is a list of messages, texts");
    };
    Ok(RequestSpec {
        prompt: Some(first.to_owned()),
        chat,
        ..RequestSpec::default()
    })
}

fn table(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    let names = report
        .standings
        .iter()
        .map(|standing| standing.name.as_str());
    let wide = names
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(21);
    let depth = report.counts.len();
    let cell = |share: Option<&f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
    };
    write!(out, "{:<wide$}", "position")?;
    (1..=depth).try_for_each(|at| write!(out, "{at:>9}"))?;
    write!(out, "\n{:<wide$}", "rows")?;
    (report.counts.iter()).try_for_each(|count| write!(out, "{count:>9}"))?;
    writeln!(out)?;
    for (i, standing) in report.standings.iter().enumerate() {
        write!(out, "{:<wide$}", standing.name)?;
        for at in 0..depth {
            write!(out, "{:>9}", cell(standing.rates.get(at)))?;
        }
        writeln!(out)?;
        if i == 0 {
            write!(out, "{:<wide$}", "  if all before agree")?;
            for at in 0..depth {
                write!(out, "{:>9}", cell(report.given_before.get(at)))?;
            }
            writeln!(out)?;
        }
    }
    for finding in &report.findings {
        writeln!(out, "{} (p = {:.1e})", finding.words, finding.p_value)?;
    }
    let rows = report.rows;
    match report.verdict {
        Verdict::Right => writeln!(out, "looks right ({rows} rows)"),
        Verdict::Wrong => writeln!(out, "WRONG ({rows} rows, alpha {ALPHA})"),
        Verdict::Short => writeln!(
            out,
            "TOO SHORT or too easy to say ({rows} rows); give more text"
        ),
    }
}
