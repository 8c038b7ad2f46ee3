//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    eyrie_verifier::cli::run(std::env::args_os())
}
