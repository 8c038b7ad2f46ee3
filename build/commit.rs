//! The commit that a checkout of this package is at.

use std::{path::Path, process::Command};

/// What a build is made from; the rest of a checkout does not change it.
pub(crate) const SOURCES: [&str; 5] = ["src", "build", "build.rs", "Cargo.toml", "Cargo.lock"];

/// What git answers in the folder `root`, if it does.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(args).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit of the checkout whose root is `root`, with `-changed` behind it if the sources are others;
/// none where that is no checkout, or a folder inside of another's.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let below = git(root, &["rev-parse", "--show-prefix"])?;
    if !below.is_empty() {
        return None;
    }
    let id = git(root, &["rev-parse", "--verify", "HEAD"])?;
    let status = ["status", "--porcelain", "--"];
    let changed = git(root, &[&status[..], &SOURCES].concat())?;
    let mark = if changed.is_empty() { "" } else { "-changed" };
    Some(format!("{id}{mark}"))
}

/// The files that change when another commit is checked out or made.
pub(crate) fn marks(root: &Path) -> Vec<String> {
    let marks = ["HEAD", "logs/HEAD"].into_iter();
    let paths = marks.filter_map(|mark| git(root, &["rev-parse", "--git-path", mark]));
    paths.filter(|path| root.join(path).exists()).collect()
}
