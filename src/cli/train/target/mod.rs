//! `eyrie train target`: a small llama from nothing.

mod card;
mod run;

use std::{ffi::OsString, io::Write, path::PathBuf};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::rate;
use crate::{
    cli::{args::threads, error::Unwritable},
    train::TargetRecipe,
};

/// Said by `train target --help`.
pub(super) const TARGET: &str = "\
Each file is a text, or several with <|endoftext|> between them. A byte-level BPE tokenizer is made of them, whose first token ends a text; the last 2 % \
of each are held out, and the perplexity on them is printed eight times. The state is saved in DIR/training \
every so often, and at Ctrl-C; the same command goes on from there, step for step as if it had not been \
stopped. What is left in DIR is a llama in bf16, with a card.";

/// Flags of `train target`.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Files of plain text in UTF-8
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub text: Vec<PathBuf>,
    /// Folder of the target: new, or one to go on with
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Layers
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub layers: u16,
    /// Width of the stream
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 128, value_parser = clap::value_parser!(u16).range(2..=8192))]
    pub hidden: u16,
    /// Width of the feed-forward blocks
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 384, value_parser = clap::value_parser!(u16).range(1..=32_768))]
    pub ffn: u16,
    /// Heads, a divisor of half the width
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub heads: u16,
    /// Key heads, a divisor of the heads
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub kv_heads: u16,
    /// Tokens of the vocabulary, 257 or more
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(257..=262_144))]
    pub vocab: u32,
    /// Tokens of a window, and the positions that the model has
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 256, value_parser = clap::value_parser!(u16).range(2..=8192))]
    pub context: u16,
    /// Steps in all
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Windows of a step
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub batch: u16,
    /// Highest learning rate
    #[arg(long, value_name = "R", allow_negative_numbers = true, default_value_t = 3e-3, value_parser = rate)]
    pub rate: f64,
    /// Seed of start values and of the order of windows
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub seed: u64,
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

/// The configuration of a training. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
struct Config {
    version: &'static str,
    text: Vec<PathBuf>,
    out: PathBuf,
    #[serde(flatten)]
    recipe: TargetRecipe,
    save_every: u32,
    threads: usize,
}

impl Config {
    fn new(args: &TargetArgs) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            text: args.text.clone(),
            out: args.out.clone(),
            recipe: TargetRecipe {
                layers: args.layers.into(),
                hidden: args.hidden.into(),
                ffn: args.ffn.into(),
                heads: args.heads.into(),
                kv_heads: args.kv_heads.into(),
                vocab: args.vocab as usize,
                context: args.context.into(),
                steps: args.steps as usize,
                batch: args.batch.into(),
                rate: args.rate,
                seed: args.seed,
            },
            save_every: args.save_every,
            threads: threads(args.threads),
        }
    }
}

/// Runs the command, which `line` is the words of.
pub(super) fn run(args: &TargetArgs, line: &[OsString]) -> Result<()> {
    let config = Config::new(args);
    if args.print_config {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&config)?).map_err(Unwritable)?;
        return Ok(());
    }
    run::run(&config, line)
}
