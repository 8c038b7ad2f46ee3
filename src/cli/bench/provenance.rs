//! Where a result comes from.

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cli::embedded;

/// Larger files are known by their size alone.
const MOST_HASHED: u64 = 1 << 30;

/// What this program was built from: a commit, with `-changed` behind it if the sources were others, or
/// `unknown` (without git, and in builds with debug assertions).
pub(in crate::cli) const COMMIT: &str = env!("EYRIE_COMMIT");

/// The machine and the program.
pub(super) fn of_run(line: &[OsString]) -> Value {
    let line: Vec<_> = line.iter().map(|arg| arg.to_string_lossy()).collect();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "command": line,
        "version": env!("CARGO_PKG_VERSION"),
        "commit": COMMIT,
        "debug_assertions": cfg!(debug_assertions),
        "unix_time_s": since.map_or(0, |time| time.as_secs()),
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "cpu": cpu(),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
    })
}

/// The processor's name, where the system has a file that says it.
fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_owned())
}

/// A file by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FileFacts {
    path: PathBuf,
    bytes: u64,
    /// None for files above a gibibyte.
    sha256: Option<String>,
}

/// The file `path`, or the files of the directory that it is, also an embedded one.
///
/// # Errors
/// If one cannot be read.
pub(super) fn files(path: &Path) -> io::Result<Vec<FileFacts>> {
    if let Some(held) = embedded::files(path).in_memory() {
        let facts = held
            .iter()
            .map(|(name, bytes)| FileFacts::of_content(&path.join(name), bytes));
        return Ok(facts.collect());
    }
    if !path.is_dir() {
        return Ok(vec![facts(path)?]);
    }
    let mut paths = Vec::new();
    for entry in path.read_dir()? {
        let path = entry?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| facts(path)).collect()
}

fn facts(path: &Path) -> io::Result<FileFacts> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut sha256 = None;
    if bytes <= MOST_HASHED {
        let mut hash = Sha256::new();
        io::copy(&mut file, &mut hash)?;
        sha256 = Some(hex(hash));
    }
    Ok(FileFacts {
        path: path.to_owned(),
        bytes,
        sha256,
    })
}

impl FileFacts {
    /// Of the file at `path`, of which this was read.
    pub(super) fn of_content(path: &Path, content: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            bytes: content.len() as u64,
            sha256: Some(hex(Sha256::new_with_prefix(content))),
        }
    }
}

fn hex(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_sha256() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("b"), "abc").unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        std::fs::create_dir(dir.path().join("c")).unwrap();
        let found = files(dir.path()).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|facts| facts.path.file_name().unwrap())
            .collect();
        assert_eq!(names, ["a", "b"]);
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            (found[1].bytes, found[1].sha256.as_deref()),
            (3, Some(of_abc))
        );
        assert!(files(&dir.path().join("d")).is_err());
        let path = dir.path().join("b");
        assert_eq!(FileFacts::of_content(&path, b"abc"), found[1]);
    }
}
