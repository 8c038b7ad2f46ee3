//! The commit that a build names.

#[path = "../../build/commit.rs"]
mod at;

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

fn git(root: &Path, args: &[&str]) {
    let who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
    ];
    let ran = Command::new("git")
        .current_dir(root)
        .args(who)
        .args(args)
        .output();
    let ran = ran.expect("git is there");
    assert!(ran.status.success(), "{args:?}: {ran:?}");
}

/// Not that of a folder around it, nor of the folder that a program is run in.
#[test]
fn it_is_that_of_the_sources() {
    let dir = TempDir::new().expect("a folder");
    let root = dir.path();
    assert_eq!(at::commit(root), None, "no checkout");
    assert!(at::marks(root).is_empty());
    git(root, &["init"]);
    assert_eq!(at::commit(root), None, "no commit yet");
    fs::create_dir(root.join("src")).expect("a folder");
    fs::write(root.join("src/lib.rs"), "").expect("a file");
    git(root, &["add", "."]);
    git(root, &["commit", "-m", "one"]);
    let first = at::commit(root).expect("a commit");
    assert!(
        first.len() >= 40 && first.chars().all(|c| c.is_ascii_hexdigit()),
        "{first}"
    );
    assert_eq!(
        at::commit(&root.join("src")),
        None,
        "a folder of another's checkout"
    );
    fs::write(root.join("notes"), "").expect("a file");
    assert_eq!(at::commit(root), Some(first.clone()), "not a source");
    fs::write(root.join("src/lib.rs"), "//!").expect("a file");
    assert_eq!(at::commit(root), Some(format!("{first}-changed")));
    git(root, &["commit", "-a", "-m", "two"]);
    let second = at::commit(root).expect("a commit");
    assert!(second != first && !second.contains('-'), "{second}");
    // A commit changes one of these, so that cargo asks again.
    let marks = at::marks(root);
    let logged = marks
        .iter()
        .filter_map(|path| fs::read_to_string(root.join(path)).ok());
    assert!(logged.collect::<String>().contains(&second), "{marks:?}");
}
