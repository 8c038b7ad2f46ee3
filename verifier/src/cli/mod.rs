//! The command line: `eyrie-verifier gof`, `two-sample` and `pit` on files of any engine.

mod args;
mod command;
mod law;
mod lines;
mod report;
mod sample;
mod trace;

use std::{ffi::OsString, fmt, io::Write, process::ExitCode};

use clap::Parser;

use args::{Cli, Command};
pub use report::Report;

/// Why there is no verdict: wrong usage, a file that cannot be read or used, or an output that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Runs a command line, the program's name first. Exit status: 0 for PASS, 1 for FAIL, 3 for UNDECIDED; 2 if
/// there is no verdict, with the reason in one line on stderr.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // Help or version; if nobody reads it, nothing is lost.
            let _ = write!(std::io::stdout(), "{}", error.render());
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&Failure(of_clap(&error))),
    };
    let (json, report) = match &cli.command {
        Command::Gof(args) => (args.common.json, command::gof(args)),
        Command::TwoSample(args) => (args.common.json, command::two_sample(args)),
        Command::Pit(args) => (args.common.json, command::pit(args)),
    };
    let written = report.and_then(|report| {
        let text = if json {
            report.json()?
        } else {
            report.to_string()
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|e| Failure(format!("standard output: {e}")))?;
        Ok(report.verdict)
    });
    match written {
        Ok(verdict) => ExitCode::from(verdict.exit()),
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    // Without a stderr there is still the exit status.
    let _ = writeln!(std::io::stderr(), "error: {failure}");
    ExitCode::from(2)
}

/// What clap has to say, in one line.
fn of_clap(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim);
    let lines =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let line: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let line = line.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
