//! `eyrie distill`: the target's answers, to train a head on.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use rayon::ThreadPoolBuilder;
use serde::Serialize;

use super::{
    args::{Device, Dtype, device, threads},
    check_head::spec,
    error::{Unwritable, usage},
    interrupt,
    models::Opened,
    progress::Busy,
    say,
};
use crate::{
    model::LoadOptions,
    request::Resolver,
    train::{Answering, Drawn, Facts, Prompt, Writer, default_taps, distill},
};

/// Said by `distill --help`.
pub(super) const DISTILL: &str = "\
A line of --prompts is a request (as of generate --requests, whose prompt, prompt_ids or messages are \
used; a prompt goes through the chat template if its line says so), or an object whose list \"turns\" begins \
with a user's message, which always does if there is a template. Each prompt is answered at one of the \
temperatures, drawn for it. What is written depends on the prompts and the seed, not on --batch or \
--threads. A run that was stopped or killed goes on when it is started again with the same flags; the same \
prompts with more behind them make more of the same data. An answer token takes about two bytes for each \
value of a stream and each stream kept.";

/// Flags of `distill`.
#[derive(Debug, Args)]
pub struct DistillArgs {
    /// Target: directory (config.json, *.safetensors, tokenizer.json), .gguf file, or tiny, which is embedded
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// What it is to answer: files, a JSON object a line
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub prompts: Vec<PathBuf>,
    /// Folder of the data: new, or one to go on with
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_tokens: u32,
    /// Longer prompts are left out
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub max_prompt: u32,
    /// Only the first so many prompts of all files together
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Temperatures, 0 to 100, each as likely as another
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "0,0.7", allow_negative_numbers = true, value_parser = temperature)]
    pub temperature_mix: Vec<f64>,
    /// Streams to keep, by the layer that each enters [default: 2, n / 2 and n - 3 of n layers]
    #[arg(
        long,
        value_name = "K,…",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub taps: Vec<u16>,
    /// Prompts in one pass
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 48, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub batch: u16,
    /// Prompts are taken as they are, without the chat template
    #[arg(long)]
    pub raw: bool,
    /// Seed of all draws
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub seed: u64,
    /// Weights are converted to this type when loaded
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::AsStored)]
    pub dtype: Dtype,
    /// Where the target computes: cpu; or cuda, cuda:N in a build with that feature
    #[arg(long, default_value_t = Device::Cpu, value_parser = device)]
    pub device: Device,
    /// Threads to compute with, 1 to 1024 [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
}

/// The configuration of a run. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
struct Config {
    version: &'static str,
    model: PathBuf,
    prompts: Vec<PathBuf>,
    out: PathBuf,
    max_tokens: usize,
    max_prompt: usize,
    limit: Option<usize>,
    temperature_mix: Vec<f64>,
    taps: Vec<usize>,
    batch: usize,
    raw: bool,
    seed: u64,
    dtype: Dtype,
    device: Device,
    threads: usize,
}

impl Config {
    fn new(args: &DistillArgs, target: &Opened) -> Result<Self> {
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            model: args.model.clone(),
            prompts: args.prompts.clone(),
            out: args.out.clone(),
            max_tokens: args.max_tokens as usize,
            max_prompt: args.max_prompt as usize,
            limit: args.limit.map(|limit| limit as usize),
            temperature_mix: args.temperature_mix.clone(),
            taps: taps(&args.taps, target)?,
            batch: args.batch.into(),
            raw: args.raw,
            seed: args.seed,
            dtype: args.dtype,
            device: args.device,
            threads: threads(args.threads),
        })
    }
}

fn taps(given: &[u16], target: &Opened) -> Result<Vec<usize>> {
    let config = target.checkpoint.config();
    if given.is_empty() {
        return default_taps(config).context("--taps is not given");
    }
    let taps: Vec<usize> = given.iter().map(|tap| usize::from(*tap)).collect();
    let ascend = taps.is_sorted_by(|a, b| a < b);
    if !ascend || taps.iter().any(|tap| *tap > config.layers) {
        let layers = config.layers;
        return usage(
            "--taps",
            format!(
                "{taps:?}; accepted are ascending numbers from 0 to the target's {layers} layers"
            ),
        );
    }
    Ok(taps)
}

/// Runs the command.
pub(super) fn run(args: &DistillArgs) -> Result<()> {
    let target = Opened::of("--model", &args.model)?;
    for warning in &target.warnings {
        say("warning", warning);
    }
    let config = Config::new(args, &target)?;
    if args.print_config {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&config)?).map_err(Unwritable)?;
        return Ok(());
    }
    let (prompts, longer) = prompts(&config, &target)?;
    if longer > 0 {
        let most = config.max_prompt;
        say(
            "note",
            &format!("{longer} prompts of more than {most} tokens are left out (--max-prompt)"),
        );
    }
    let dtype = serde_json::to_value(config.dtype)?;
    let drawn = Drawn {
        dtype: dtype.as_str().unwrap_or_default().to_owned(),
        seed: config.seed,
        temperatures: config.temperature_mix.clone(),
        max_tokens: config.max_tokens,
    };
    let facts = Facts::of(&target.checkpoint, config.taps.clone(), drawn)?;
    let about = || format!("--out {}", config.out.display());
    let mut writer = Writer::open(&config.out, facts).with_context(about)?;
    interrupt::listen()?;
    let pool = ThreadPoolBuilder::new().num_threads(config.threads);
    // A second command in one process keeps the first one's threads.
    let _ = pool.build_global();
    let options = LoadOptions {
        dtype: config.dtype.into(),
        head_dtype: None,
        threads: Some(config.threads),
    };
    let model = target.load_on(config.device, options)?;
    let how = Answering {
        taps: config.taps.clone(),
        max_tokens: config.max_tokens,
        temperatures: config.temperature_mix.clone(),
        batch: config.batch,
        seed: config.seed,
        eos: target.eos(),
        valid: target.valid(),
    };
    let there = writer.entries().len();
    let (busy, begun) = (Busy::start("answering prompts"), Instant::now());
    let answered = distill(&*model, &prompts, &how, &mut writer, &mut |answered| {
        busy.reached(there + answered.written, prompts.len());
        !interrupt::asked()
    })?;
    drop(busy);
    if answered.clipped > 0 {
        let clipped = answered.clipped;
        say(
            "warning",
            &format!("{clipped} values beyond half precision's 65504 were written as that"),
        );
    }
    if !answered.done {
        let (written, all) = (there + answered.written, prompts.len());
        bail!("stopped after {written} of {all} prompts; the same command goes on");
    }
    let entries = writer.entries();
    let answers = entries
        .iter()
        .map(|entry| entry.tokens - entry.prompt_tokens);
    let (answers, all) = (answers.sum::<usize>(), entries.len());
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    let speed = answered.tokens as f64 / begun.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    let written = writeln!(
        out,
        "{}: {all} answers of {answers} tokens, {} of them now ({speed:.1} a second)",
        config.out.display(),
        answered.tokens
    );
    Ok(written.map_err(Unwritable)?)
}

/// The prompts of all files, and how many are left out for their length.
fn prompts(config: &Config, target: &Opened) -> Result<(Vec<Prompt>, usize)> {
    let context = target.checkpoint.config().max_position;
    let resolver = Resolver {
        tokenizer: target.tokenizer.clone(),
        chat: target.chat.clone(),
        valid: target.valid(),
        context,
        kv_tokens: context,
    };
    let (mut prompts, mut longer, mut index) = (Vec::new(), 0, 0);
    for path in &config.prompts {
        for line in lines(path)? {
            if config.limit.is_some_and(|limit| index >= limit) {
                break;
            }
            let about = || format!("--prompts {}: prompt {}", path.display(), index + 1);
            let mut spec = spec(&line, resolver.chat.is_some()).with_context(about)?;
            spec.chat &= !config.raw;
            let request = resolver.resolve(&spec, "", 0).with_context(about)?;
            if request.prompt.len() > config.max_prompt.min(context) {
                longer += 1;
            } else {
                prompts.push(Prompt {
                    index,
                    tokens: request.prompt,
                });
            }
            index += 1;
        }
    }
    if prompts.is_empty() {
        let most = config.max_prompt;
        return usage(
            "--prompts",
            format!("there is no prompt of at most {most} tokens"),
        );
    }
    Ok((prompts, longer))
}

/// The lines of a file that are not blank.
fn lines(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("--prompts {}", path.display()))?;
    let lines = text.trim_start_matches('\u{feff}').lines();
    let lines = lines.filter(|line| !line.trim().is_empty());
    Ok(lines.map(str::to_owned).collect())
}

fn temperature(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|t: &f64| (0.0..=100.0).contains(t));
    number.ok_or_else(|| "a number from 0 to 100 is accepted".to_owned())
}
