//! `cargo xtask`: long jobs that are not tests.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Long jobs that are not tests.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Every drafter x depth x temperature x filters x seed x batch x chunk x threads x dtype x rule
    /// on tiny random models: the tokens must be those of plain decoding, or where a rule only keeps
    /// its law those of the same rounds alone
    Grid {
        /// Tokens a request
        #[arg(long, default_value_t = 16)]
        tokens: usize,
        /// Prompts a configuration, of twenty
        #[arg(long, default_value_t = 20)]
        prompts: usize,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let Job::Grid { tokens, prompts } = Args::parse().job;
    let failed = xtask::grid::run_all(tokens, prompts, &mut std::io::stdout().lock())?;
    Ok(ExitCode::from(u8::from(failed > 0)))
}
