//! `cargo xtask host`: mistral.rs with the `speculative` feature, made, built, tested and served.
//!
//! The published crate is downloaded by cargo, checked, and copied with the insertions of
//! `host/mistralrs/patch` to `host/mistralrs/generated`, which git ignores. A file is written only if
//! its text changed, so that a second run rebuilds nothing.

mod patch;
mod upstream;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::Subcommand;

pub use patch::{Applied, Patch, PatchError};

/// What to do with the host once it is there.
#[derive(Clone, Debug, Subcommand)]
pub enum HostJob {
    /// Build the server
    Build(Cargo),
    /// Test the host, and the published crate beside it
    Test(Cargo),
    /// Run mistral.rs' OpenAI server on Eyrie's pipeline; `serve --help` lists its flags
    Serve(Cargo),
    /// Run the side-by-side benchmark; `bench --help` lists its flags
    Bench(Cargo),
}

/// Arguments that are passed on.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Cargo {
    /// Passed on: to cargo by `build` and `test`, to the program by `serve` and `bench`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The folders of the host.
#[derive(Debug)]
struct Folders {
    root: PathBuf,
}

impl Folders {
    fn patched(&self) -> PathBuf {
        self.root.join("host/mistralrs")
    }

    fn published(&self) -> PathBuf {
        self.root.join("host/upstream")
    }

    fn cargo(&self, verb: &str, workspace: &Path) -> Command {
        let mut cargo = Command::new("cargo");
        cargo
            .arg(verb)
            .arg("--locked")
            .arg("--manifest-path")
            .arg(workspace.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(self.root.join("target/host"));
        cargo
    }
}

/// Makes the patched crate, then does `job`.
///
/// # Errors
/// If the published crate is not the one that the insertions were written for, or a command fails.
pub fn run(job: Option<&HostJob>) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let folders = Folders {
        root: root.context("the folder above xtask")?.to_owned(),
    };
    generate(&folders)?;
    let patched = folders.patched();
    match job {
        None => Ok(()),
        Some(HostJob::Build(with)) => {
            let mut cargo = folders.cargo("build", &patched);
            call(cargo.arg("--release").args(&with.args))
        }
        Some(HostJob::Test(with)) => {
            call(folders.cargo("test", &patched).args(&with.args))?;
            call(folders.cargo("test", &folders.published()).args(&with.args))
        }
        Some(HostJob::Serve(with)) => call(run_program(&folders, "eyrie-serve").args(&with.args)),
        Some(HostJob::Bench(with)) => call(run_program(&folders, "host-bench").args(&with.args)),
    }
}

fn run_program(folders: &Folders, name: &str) -> Command {
    let mut cargo = folders.cargo("run", &folders.patched());
    cargo.args(["--release", "--bin", name, "--"]);
    cargo
}

/// Writes the patched crate.
fn generate(folders: &Folders) -> Result<()> {
    let patch = Patch::read(&folders.patched().join("patch"))?;
    let published = upstream::locate(&folders.published(), patch.name(), patch.version())?;
    let to = folders.patched().join("generated").join(patch.name());
    let done = patch.apply(&published, &to)?;
    let what = format!("{} {}", patch.name(), patch.version());
    if done.written == 0 {
        say(&format!("{what} with `speculative`: up to date"))
    } else {
        say(&format!(
            "{what} with `speculative`: {} files, {} written, {} lines inserted",
            done.files, done.written, done.lines
        ))
    }
}

fn say(line: &str) -> Result<()> {
    use std::io::Write;
    Ok(writeln!(std::io::stderr(), "{line}")?)
}

fn call(command: &mut Command) -> Result<()> {
    let status = Command::status(command).context("cargo")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => bail!("{command:?} ended with status {code}"),
        None => bail!("{command:?} was ended by a signal"),
    }
}
