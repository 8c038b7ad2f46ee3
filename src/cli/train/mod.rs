//! `eyrie train`: a head for a target, from its own answers, or a small target from plain text.

mod card;
mod run;
mod target;

use std::{ffi::OsString, io::Write, path::PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{
    args::threads,
    error::{Unwritable, usage},
    models::Opened,
};
use crate::{
    draft::eagle::Version,
    train::{HeadType, Recipe},
};

pub use target::TargetArgs;

/// Said by `train --help`.
pub(super) const TRAIN: &str = "\
Phase 1 trains the head on true features, phase 2 on its own outputs too, as drafting feeds it. After each \
epoch it guesses along held-out answers, beside the drafter ngram, which costs nothing. The state is saved in \
DIR/training every so often, and at Ctrl-C; the same command goes on from there, step for step as if it had \
not been stopped. The head that is left in DIR is a plain one, in the form of its paper's own code, with a \
card.";

/// Flags of `train`.
#[derive(Debug, Args)]
#[command(subcommand_required = true)]
pub struct TrainArgs {
    /// What is trained.
    #[command(subcommand)]
    pub what: TrainWhat,
}

/// What is trained.
#[derive(Debug, Subcommand)]
pub enum TrainWhat {
    /// An EAGLE-3 head
    #[command(after_help = TRAIN)]
    Eagle3(Box<Eagle3Args>),
    /// An EAGLE-1 head, which guesses the model's next feature, among all its tokens
    #[command(after_help = TRAIN)]
    Eagle1(Box<TrainingArgs>),
    /// A small llama from nothing, on plain text
    #[command(after_help = target::TARGET)]
    Target(Box<TargetArgs>),
}

/// Flags of `train eagle3`.
#[derive(Debug, Args)]
pub struct Eagle3Args {
    /// Tokens that the head guesses among: those that answers have most often
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    pub draft_vocab: u32,
    /// The training.
    #[command(flatten)]
    pub training: TrainingArgs,
}

/// Flags of every training of a head.
#[derive(Debug, Args)]
pub struct TrainingArgs {
    /// Target: directory (config.json, *.safetensors, tokenizer.json), .gguf file, or tiny, which is embedded
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Its answers, as distill wrote them
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Folder of the head: new, or one to go on with
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Key heads [default: as many as heads]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub kv_heads: Option<u16>,
    /// Epochs of the two phases
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "3,2",
        allow_negative_numbers = true
    )]
    pub epochs: Vec<u16>,
    /// Steps that phase 2 unrolls, 2 to 16
    #[arg(long, value_name = "K", allow_negative_numbers = true, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=16))]
    pub unroll: u8,
    /// Highest learning rates of the two phases
    #[arg(long, value_name = "R,R", value_delimiter = ',', default_value = "2.5e-3,1.2e-3", allow_negative_numbers = true, value_parser = rate)]
    pub rates: Vec<f64>,
    /// Each unrolled step counts for so much of the one before, up to 1
    #[arg(long, value_name = "X", default_value_t = 0.8, allow_negative_numbers = true, value_parser = rate)]
    pub decay: f64,
    /// Rows judged in a step of training; sequences stay whole
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 290, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub rows: u32,
    /// Rows whose next token is of the prompt count too
    #[arg(long)]
    pub prompt_rows: bool,
    /// Answers to measure with, not trained on
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 40, value_parser = clap::value_parser!(u32).range(0..))]
    pub held_out: u32,
    /// Only the first so many sequences of the data
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Seed of start values and of the order of data
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub seed: u64,
    /// Type of the head's tensors
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = HeadTypeArg::F16)]
    pub head_type: HeadTypeArg,
    /// Seconds between saves
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..))]
    pub save_every: u32,
    /// Threads to compute with, 1 to 1024 [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
}

/// A type of a head's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HeadTypeArg {
    /// 32-bit floats
    F32,
    /// 16-bit floats
    F16,
    /// bfloat16
    Bf16,
}

impl From<HeadTypeArg> for HeadType {
    fn from(head_type: HeadTypeArg) -> Self {
        match head_type {
            HeadTypeArg::F32 => Self::F32,
            HeadTypeArg::F16 => Self::F16,
            HeadTypeArg::Bf16 => Self::Bf16,
        }
    }
}

/// The configuration of a training. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
struct Config {
    version: &'static str,
    model: PathBuf,
    data: PathBuf,
    out: PathBuf,
    #[serde(flatten)]
    recipe: Recipe,
    head_type: HeadTypeArg,
    save_every: u32,
    threads: usize,
}

impl Config {
    /// Of a head that guesses among so many tokens, or all.
    fn new(
        head: Version,
        draft_vocab: Option<u32>,
        args: &TrainingArgs,
        target: &Opened,
    ) -> Result<Self> {
        let vocab = target.checkpoint.config().vocab;
        let draft_vocab = draft_vocab.map_or(vocab, |count| count as usize);
        let heads = target.checkpoint.config().heads;
        let kv_heads = args.kv_heads.map_or(heads, usize::from);
        let epochs = pair("--epochs", &args.epochs)?.map(usize::from);
        if epochs == [0, 0] {
            return usage("--epochs", "0,0; accepted is one epoch at least");
        }
        if args.decay > 1.0 {
            return usage(
                "--decay",
                format!("{}; accepted are numbers up to 1", args.decay),
            );
        }
        let recipe = Recipe {
            head,
            draft_vocab,
            kv_heads: Some(kv_heads),
            epochs,
            unroll: args.unroll.into(),
            rates: pair("--rates", &args.rates)?,
            decay: args.decay,
            rows: args.rows as usize,
            prompt_rows: args.prompt_rows,
            held_out: args.held_out as usize,
            limit: args.limit.map(|limit| limit as usize),
            seed: args.seed,
            ..Recipe::default()
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            model: args.model.clone(),
            data: args.data.clone(),
            out: args.out.clone(),
            recipe,
            head_type: args.head_type,
            save_every: args.save_every,
            threads: threads(args.threads),
        })
    }
}

/// Runs the command, which `line` is the words of.
pub(super) fn run(args: &TrainArgs, line: &[OsString]) -> Result<()> {
    let (version, draft_vocab, args) = match &args.what {
        TrainWhat::Eagle3(args) => (Version::Eagle3, Some(args.draft_vocab), &args.training),
        TrainWhat::Eagle1(args) => (Version::Eagle1, None, &**args),
        TrainWhat::Target(args) => return target::run(args, line),
    };
    let target = Opened::of("--model", &args.model)?;
    let config = Config::new(version, draft_vocab, args, &target)?;
    if args.print_config {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&config)?).map_err(Unwritable)?;
        return Ok(());
    }
    run::run(&config, &target, line)
}

/// A flag's two numbers, one a phase.
fn pair<T: Copy + std::fmt::Debug>(flag: &'static str, given: &[T]) -> Result<[T; 2]> {
    match given {
        [first, second] => Ok([*first, *second]),
        _ => usage(
            flag,
            format!("{given:?}; accepted are two numbers, one a phase"),
        ),
    }
}

/// A number above 0.
fn rate(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let good = number.filter(|x| x.is_finite() && *x > 0.0);
    good.ok_or_else(|| "a number above 0 is accepted".to_owned())
}
