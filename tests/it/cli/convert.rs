//! `eyrie convert`.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use super::{Ran, eyrie, file};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

fn convert(head: &str, to: &str, out: &Path, more: &[&str]) -> Ran {
    let out = out.display().to_string();
    eyrie(&[&["convert", head, "--to", to, "--out", &out], more].concat())
}

#[test]
fn a_converted_head_drafts_what_it_did() {
    let dir = TempDir::new().expect("a temporary folder");
    let drafts = |head: &str| {
        let args = [
            "generate",
            "--model",
            "@tt",
            "--prompt",
            "the cat",
            "--max-tokens",
            "20",
        ];
        let ran = eyrie(&[&args[..], &["--draft", head, "--json"]].concat());
        (
            ran.result()["tokens"].clone(),
            ran.result()["rounds"].clone(),
        )
    };
    let plain = drafts("@e3");
    for (to, file, with) in [
        ("safeailab", "", &[][..]),
        ("speculators", "", &[]),
        ("gguf", "head.gguf", &["--model", "@tt.gguf"]),
    ] {
        let out = dir.path().join(to);
        let ran = convert("@e3", to, &out, with);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let path = if file.is_empty() { out } else { out.join(file) };
        assert_eq!(ran.out.trim_end(), path.display().to_string());
        assert_eq!(drafts(&path.display().to_string()), plain, "{to}");
    }
    assert_eq!(names(dir.path()), ["gguf", "safeailab", "speculators"]);
    assert_eq!(
        names(&dir.path().join("speculators")),
        ["config.json", "model.safetensors"]
    );
}

/// What is given on the command line is written down: the new head needs no flags.
#[test]
fn overrides_become_explicit() {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("new");
    let flags = [
        "--taps-convention",
        "output",
        "--head-theta",
        "500",
        "--head-context",
        "99",
    ];
    let ran = convert(
        "@e3-taps",
        "speculators",
        &out,
        &[&flags[..], &["--model", "@tt"]].concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let path = out.display().to_string();
    let ran = eyrie(&["inspect", &path, "--model", "@tt", "--json"]);
    let said = ran.result();
    assert_eq!(said["taps"], serde_json::json!([3, 5, 6]));
    assert_eq!(said["taps_convention"], "input");
    assert_eq!(said["rope"]["theta"], 500.0);
    assert_eq!(said["max_position"], 99);
    // The usual taps stay unsaid, so that every engine takes them for the usual ones.
    let out = dir.path().join("usual");
    assert_eq!(convert("@e3", "speculators", &out, &[]).code, 0);
    let text = fs::read_to_string(out.join("config.json")).expect("a file");
    let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(config["eagle_aux_hidden_state_layer_ids"].is_null());
}

#[test]
fn failures_are_one_line_and_leave_nothing_behind() {
    let dir = TempDir::new().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("full")).expect("a folder");
    fs::write(at("full").join("x"), "x").expect("a file");
    fs::write(at("file"), "x").expect("a file");
    fs::create_dir(at("empty")).expect("a folder");
    for (head, to, out, more, code, parts) in [
        (
            "@e3",
            "gguf",
            "new",
            &[][..],
            1,
            &["gguf cannot hold", "--model"][..],
        ),
        (
            "@e3-taps",
            "safeailab",
            "new",
            &["--taps-convention", "output", "--model", "@tt"],
            1,
            &[
                "safeailab cannot hold taps [3, 5, 6]",
                "--to speculators or gguf",
            ],
        ),
        (
            "@e3-taps",
            "safeailab",
            "new",
            &[],
            1,
            &["--taps-convention input"],
        ),
        (
            "@e3-norm",
            "gguf",
            "new",
            &["--model", "@tt"],
            1,
            &["norm_output", "--to speculators"],
        ),
        (
            "@e3",
            "safeailab",
            "full",
            &[],
            1,
            &["full", "is not empty"],
        ),
        ("@e3", "safeailab", "file", &[], 1, &["file", "no folder"]),
        (
            "@e3",
            "safeailab",
            "no/new",
            &[],
            1,
            &["no/new", "does not exist"],
        ),
        ("@td", "safeailab", "new", &[], 1, &["no EAGLE head"]),
        ("@none", "safeailab", "new", &[], 1, &["no such file"]),
        ("@e3", "onnx", "new", &[], 2, &["--to", "safeailab"]),
    ] {
        let ran = convert(head, to, &at(out), more);
        assert_eq!(ran.code, code, "{head} {to}: {}", ran.err);
        let errors: Vec<_> = ran
            .err
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        assert_eq!(errors.len(), 1, "{}", ran.err);
        for part in parts {
            assert!(errors[0].contains(part), "{part:?} in {}", ran.err);
        }
        assert_eq!(names(dir.path()), ["empty", "file", "full"]);
    }
    assert_eq!(convert("@e3", "safeailab", &at("empty"), &[]).code, 0);
    assert_eq!(names(&at("empty")), ["config.json", "model.safetensors"]);
    assert_eq!(names(dir.path()), ["empty", "file", "full"]);
}

/// A disk that is full in the middle of the tensors.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let dir = TempDir::new().expect("a temporary folder");
    for (to, more) in [("safeailab", ""), ("gguf", "--model")] {
        let script = r#"trap '' XFSZ; ulimit -f 8; exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_eyrie"), "convert"]);
        command
            .arg(file("e3"))
            .args(["--to", to, "--out"])
            .arg(dir.path().join("new"));
        if !more.is_empty() {
            command.arg(more).arg(file("tt"));
        }
        let output = command.output().expect("it runs");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(
            err.contains("cannot write it") && err.contains("too large"),
            "{err}"
        );
        assert_eq!(names(dir.path()), [""; 0], "{to}");
    }
}
