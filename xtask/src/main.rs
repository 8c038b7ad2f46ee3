//! `cargo xtask`: long jobs that are not tests, and small ones.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};
use eyrie_fixtures::Fixture;
use xtask::host::{self, HostJob};

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
    /// Write the tiny random target of the tests, with a tokenizer: something small to try commands on
    Fixture {
        /// Folder to write
        dir: PathBuf,
    },
    /// Make mistral.rs with the `speculative` feature; then build, test, serve or measure it
    Host {
        /// Nothing: make it only
        #[command(subcommand)]
        job: Option<HostJob>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().job {
        Job::Grid { tokens, prompts } => {
            let failed = xtask::grid::run_all(tokens, prompts, &mut std::io::stdout().lock())?;
            Ok(ExitCode::from(u8::from(failed > 0)))
        }
        Job::Fixture { dir } => {
            let tiny = Fixture {
                tokenizer: true,
                ..eyrie_fixtures::tt()
            };
            tiny.write_dir(&dir)
                .with_context(|| dir.display().to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Job::Host { job } => {
            host::run(job.as_ref())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
