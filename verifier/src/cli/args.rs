//! Arguments.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::judge::Settings;

/// Judges whether an engine's samples have the law that they should have.
///
/// Prints a table and a verdict: PASS (exit status 0), FAIL (1) or UNDECIDED (3: nothing was rejected, but
/// the samples are too few to say so). Status 2: no verdict, for the reason on stderr.
#[derive(Debug, Parser)]
#[command(
    name = "eyrie-verifier",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Samples against a law that is known.
    Gof(GofArgs),
    /// Two samples of laws that are not known.
    TwoSample(TwoSampleArgs),
    /// A trace of single tokens, each with the law of its own prefix.
    Pit(PitArgs),
}

#[derive(Debug, Args)]
pub(super) struct GofArgs {
    /// The law, as JSON: {"vocab":V,"length":L,"p":{"0,1":0.25,…}}; cells that are missing have probability 0. For
    /// L = 1 also a plain list of V numbers.
    #[arg(long, value_name = "FILE")]
    pub(super) expected: PathBuf,
    /// The samples, as lines of JSON with a list "tokens"; the first L count, and a shorter list is a cell of its own.
    #[arg(long, value_name = "FILE")]
    pub(super) samples: PathBuf,
    #[command(flatten)]
    pub(super) tv: TvArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct TwoSampleArgs {
    /// The first sample, as lines of JSON with a list "tokens".
    #[arg(long, value_name = "FILE")]
    pub(super) a: PathBuf,
    /// The second sample; its seeds must be others than those of the first.
    #[arg(long, value_name = "FILE")]
    pub(super) b: PathBuf,
    /// Tokens of a line that count; a shorter list is a cell of its own.
    #[arg(long, value_name = "L")]
    pub(super) length: NonZeroUsize,
    #[command(flatten)]
    pub(super) tv: TvArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct PitArgs {
    /// The trace, as lines of JSON: lists "p" and "q" and the "token", or numbers "below" and "p" in the order
    /// of p/q, ascending.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: PathBuf,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct TvArgs {
    /// The total variation that must be excluded, at power .99, for a PASS: above 0, below 1.
    #[arg(long, value_name = "T", default_value = "0.05", value_parser = tv)]
    pub(super) tv: f64,
}

#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// Probability of failing an honest engine, over all tests of the run (Holm): 1e-12 to 0.5.
    #[arg(long, value_name = "A", default_value = "1e-6", value_parser = alpha)]
    pub(super) alpha: f64,
    /// Seed of simulations and of the PIT's uniform numbers.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

impl CommonArgs {
    pub(super) fn settings(&self, tv: f64) -> Settings {
        Settings {
            alpha: self.alpha,
            tv,
            seed: self.seed,
        }
    }
}

fn alpha(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if (1e-12..=0.5).contains(&x) => Ok(x),
        _ => Err("must be a number in 1e-12..=0.5".into()),
    }
}

fn tv(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if x > 0.0 && x < 1.0 => Ok(x),
        _ => Err("must be a number above 0 and below 1".into()),
    }
}
