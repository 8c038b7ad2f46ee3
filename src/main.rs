//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    eyrie::cli::run(std::env::args_os())
}
