//! Puts the commit into release builds, in the variable `EYRIE_COMMIT`.
//!
//! A build with debug assertions has none: its times and heads are no evidence, and it would be made anew
//! with every commit.

#[path = "build/commit.rs"]
mod commit;

use std::{env, path::Path};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&root);
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let watched = commit::SOURCES.map(str::to_owned);
    let marks = if release {
        commit::marks(root)
    } else {
        Vec::new()
    };
    for path in watched.iter().chain(&marks) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = commit::commit(root).filter(|_| release);
    println!(
        "cargo::rustc-env=EYRIE_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
}
