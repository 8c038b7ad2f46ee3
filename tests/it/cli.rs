//! The command line, run as a program on tiny checkpoints.

pub(crate) mod bench;
mod bench_kept;
mod chat;
mod check_head;
mod convert;
mod demo;
mod eagle;
mod embedded;
pub(crate) mod flags;
mod gguf_form;
mod host;
mod inspect;
mod judge;
mod prepare;
mod requests;
mod results;
mod shipped;
pub(crate) mod tokenizers;
mod train;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use eyrie_fixtures::{Fixture, Quant, table, td, tt};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eagle::heads::{e3, random, ring, ring_head, ring_heads_gone_wrong, ring_keys};

/// Files of all tests here: `tt` and `td` with a tokenizer, `bare` and `bare2` without, `tt.gguf`, the heads
/// `e3`, `e3-taps` (which lists taps that may mean two things) and `e3-norm`, the target `ring` with its
/// `ring-head` and the heads gone wrong `rolled` and `random`, `script.json`, `empty.json`, `prompt.txt`, `requests.jsonl`, `other.jsonl`.
static FILES: LazyLock<TempDir> = LazyLock::new(|| {
    let dir = TempDir::new().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name);
    let spoken = |fixture: Fixture| Fixture {
        tokenizer: true,
        ..fixture
    };
    spoken(tt()).write_dir(&at("tt")).expect("tt");
    spoken(td()).write_dir(&at("td")).expect("td");
    spoken(tt())
        .write_gguf(&at("tt.gguf"), Quant::Q8_0)
        .expect("tt.gguf");
    tt().write_dir(&at("bare")).expect("bare");
    td().write_dir(&at("bare2")).expect("bare2");
    for (name, keys) in [
        ("e3", json!({})),
        (
            "e3-taps",
            json!({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}}),
        ),
        (
            "e3-norm",
            json!({"norm_output": true, "eagle_config": {"use_aux_hidden_state": true}}),
        ),
    ] {
        random(e3(), 12).write_dir(&at(name), &keys);
    }
    table(&ring()).write_dir(&at("ring")).expect("ring");
    ring_head().write_dir(&at("ring-head"), &ring_keys());
    for (name, made) in ring_heads_gone_wrong() {
        made.write_dir(&at(name), &ring_keys());
    }
    for (name, text) in [
        ("script.json", " [[1,2],[],[63,4,5]]"),
        ("empty.json", "[]"),
        ("prompt.txt", "the cat\n"),
        ("requests.jsonl", "{\"prompt\":\"the\"}\n"),
        ("other.jsonl", "{\"prompt\":\"a\"}\n"),
        ("blank.jsonl", "\n \n"),
    ] {
        std::fs::write(at(name), text).expect("a file is written");
    }
    dir
});

fn file(name: &str) -> PathBuf {
    FILES.path().join(name)
}

/// What a run of the program gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).expect("every line is JSON");
        self.out.lines().map(parse).collect()
    }

    /// The only result of a run that must have gone well.
    fn result(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.err);
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "{}", self.out);
        lines.remove(0)
    }
}

/// Runs `eyrie` with `args`, in which `@name` is the path of a file of [`FILES`].
fn eyrie(args: &[&str]) -> Ran {
    let path = |arg: &&str| match arg.strip_prefix('@') {
        Some(name) => file(name).display().to_string(),
        None => (*arg).to_owned(),
    };
    let output = Command::new(env!("CARGO_BIN_EXE_eyrie"))
        .args(args.iter().map(path))
        .env_remove("RUST_LOG")
        .output()
        .expect("the program runs");
    Ran {
        code: output.status.code().expect("an exit status"),
        out: String::from_utf8(output.stdout).expect("text on stdout"),
        err: String::from_utf8(output.stderr).expect("text on stderr"),
    }
}

fn generate(args: &[&str]) -> Ran {
    eyrie(&[&["generate"], args].concat())
}

/// A run on the tiny target with a prompt, as JSON.
fn on_tt(args: &[&str]) -> Ran {
    let base = ["--model", "@tt", "--json", "--threads", "1"];
    generate(&[&base, args].concat())
}

/// A requests file of these lines.
fn requests_file(dir: &Path, lines: &[&str]) -> String {
    let path = dir.join("requests.jsonl");
    std::fs::write(&path, lines.join("\n")).expect("a file is written");
    path.display().to_string()
}
