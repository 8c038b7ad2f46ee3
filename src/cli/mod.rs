//! The command line: one file a command.

mod args;
mod bench;
mod check_head;
mod convert;
mod demo;
mod distill;
mod embedded;
mod error;
mod generate;
mod head_args;
mod inspect;
mod interrupt;
mod jobs;
mod judge;
mod models;
mod output;
mod plan;
mod prepare;
mod progress;
mod request_args;
mod session;
mod setup;
mod train;
mod tree;

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use tracing_subscriber::EnvFilter;

pub use args::{
    Cli, Command, Device, DrafterKind, Dtype, GenerateArgs, InspectArgs, JudgeArgs, PickKind,
    RuleKind, SetupArgs,
};
pub use bench::{BenchArgs, DrafterSpec};
pub use check_head::CheckHeadArgs;
pub use convert::{ConvertArgs, FormatArg};
pub use demo::DemoArgs;
pub use distill::DistillArgs;
pub use error::Usage;
pub use head_args::{HeadArgs, NormOutputArg, TapsArg};
pub use models::Opened;
pub use plan::Plan;
pub use prepare::{Prepared, prepare};
pub use request_args::RequestArgs;
pub use setup::Setup;
pub use train::{Eagle3Args, HeadTypeArg, TargetArgs, TrainArgs, TrainWhat, TrainingArgs};
pub use tree::TreeSize;

use crate::text::is_guarded;

/// Runs a command line, the program's name first. Exit status: 0; 1 for a failed run, a failed
/// request in it, or a judgement or check that failed; 2 for wrong usage; 3 for one that is undecided. What went wrong is one line on stderr.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let line: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&line) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // Help or version; if nobody reads it, nothing is lost.
            let _ = write!(std::io::stdout(), "{}", error.render());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            say("error", &error::of_clap(&error));
            return ExitCode::from(2);
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false);
    // A second call in one process keeps the first one's log.
    let _ = log.try_init();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_guarded() {
            report(panic);
        }
    }));
    let command = cli
        .command
        .unwrap_or_else(|| Command::Demo(DemoArgs::default()));
    let done = match &command {
        Command::Demo(args) => demo::run(args),
        Command::Generate(args) => generate::run(args).map(|well| u8::from(!well)),
        Command::Bench(args) => bench::run(args, &line).map(|()| 0),
        Command::Inspect(args) => inspect::run(args).map(|()| 0),
        Command::Judge(args) => judge::run(args),
        Command::CheckHead(args) => check_head::run(args),
        Command::Convert(args) => convert::run(args).map(|()| 0),
        Command::Distill(args) => distill::run(args).map(|()| 0),
        Command::Train(args) => train::run(args, &line).map(|()| 0),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) if error::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say("error", &error::line(&error));
            ExitCode::from(error::status(&error))
        }
    }
}

/// One line on stderr, whatever is in the text. If stderr is gone, there is nobody to tell.
fn say(kind: &str, line: &str) {
    let _ = writeln!(std::io::stderr(), "{kind}: {}", error::one_line(line));
}
