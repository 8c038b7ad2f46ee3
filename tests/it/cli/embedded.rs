//! The embedded model and head, wherever a path is asked for.

use tempfile::TempDir;

use super::{eyrie, requests_file};

#[test]
fn inspect_says_what_they_are() {
    let model = eyrie(&["inspect", "tiny", "--json"]).result();
    assert_eq!(
        (&model["format"], &model["warnings"]),
        (&"llama".into(), &serde_json::json!([]))
    );
    assert!(model["layers"].as_u64() >= Some(8), "{model}");
    let head = eyrie(&["inspect", "embedded", "--model", "tiny", "--json"]).result();
    assert_eq!(head["format"], "eagle3");
    assert_eq!(
        (&head["target_hidden"], &head["vocab"]),
        (&model["hidden"], &model["vocab"])
    );
}

/// Flags that change how it is computed, not what; and those that change what, beside the head.
#[test]
fn generate_takes_any_flag_with_them() {
    let base = [
        "generate",
        "--model",
        "tiny",
        "--prompt",
        "the people",
        "--max-tokens",
        "12",
        "--json",
    ];
    let run = |args: &[&str]| eyrie(&[&base[..], args].concat()).result()["tokens"].clone();
    let plain = run(&[]);
    for args in [
        &["--draft", "embedded"][..],
        &[
            "--draft",
            "embedded",
            "--drafter",
            "eagle",
            "--tree",
            "4x3x8",
        ],
        &["--draft", "embedded", "--head-context", "4"],
        &["--draft", "tiny", "--depth", "2"],
        &[
            "--threads",
            "1",
            "--prefill-chunk",
            "1",
            "--drafter",
            "ngram",
        ],
        &[
            "--kv-tokens",
            "64",
            "--max-batch",
            "1",
            "--draft",
            "embedded",
        ],
    ] {
        assert_eq!(run(args), plain, "{args:?}");
    }
    let warm = ["--temperature", "0.9", "--top-p", "0.9", "--seed", "5"];
    for dtype in ["f32", "q8_0"] {
        let warm = [&warm[..], &["--dtype", dtype]].concat();
        let drafted = [&warm[..], &["--draft", "embedded"]].concat();
        assert_eq!(run(&warm), run(&drafted), "{dtype}");
    }
}

#[test]
fn what_does_not_fit_is_one_line() {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("out").display().to_string();
    for (args, code, words) in [
        (
            &[
                "generate", "--model", "@tt", "--draft", "embedded", "--prompt", "a",
            ][..],
            1,
            "embedded",
        ),
        (
            &["generate", "--model", "embedded", "--prompt", "a"],
            1,
            "an EAGLE head; a model is accepted",
        ),
        (
            &["generate", "--model", "tiny", "--chat", "--prompt", "a"],
            1,
            "the model has no chat template",
        ),
        (
            &[
                "generate",
                "--model",
                "tiny",
                "--draft",
                "embedded",
                "--drafter",
                "none",
                "--prompt",
                "a",
            ],
            2,
            "--draft",
        ),
        (
            &["generate", "--model", "./tiny-not-there", "--prompt", "a"],
            1,
            "no such file",
        ),
        (&["inspect", "embedded"], 1, "--model"),
        (&["inspect", "tiny", "--head-theta", "9"], 1, "--head-theta"),
        (
            &["convert", "tiny", "--to", "gguf", "--out", &out],
            1,
            "no EAGLE head",
        ),
    ] {
        let ran = eyrie(args);
        assert_eq!(
            (ran.code, ran.err.lines().count()),
            (code, 1),
            "{args:?}: {}",
            ran.err
        );
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

/// A folder of the embedded model's name is not read in its place in silence.
#[test]
fn what_lies_beside_of_the_same_name_is_told() {
    let dir = TempDir::new().expect("a temporary folder");
    std::fs::create_dir(dir.path().join("tiny")).expect("a folder");
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_eyrie"))
        .args([
            "generate",
            "--model",
            "tiny",
            "--prompt",
            "a",
            "--max-tokens",
            "1",
        ])
        .current_dir(dir.path())
        .output()
        .expect("the program runs");
    let err = String::from_utf8(ran.stderr).expect("text");
    assert!(ran.status.success() && err.contains("./tiny"), "{err}");
}

#[test]
fn a_head_of_theirs_is_converted_checked_and_measured() {
    let dir = TempDir::new().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let prompts = requests_file(dir.path(), &[r#"{"prompt": "the people"}"#]);
    let written = [
        "convert",
        "embedded",
        "--model",
        "tiny",
        "--to",
        "safeailab",
        "--out",
    ];
    let ran = eyrie(&[&written[..], &[&at("head")]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let check = [
        "check-head",
        "--model",
        "tiny",
        "--prompts",
        &prompts,
        "--max-tokens",
        "8",
        "--json",
    ];
    let found = |head: &str| {
        let ran = eyrie(&[&check[..], &["--draft", head]].concat());
        assert!([0, 1, 3].contains(&ran.code), "{}", ran.err);
        let mut object = ran.lines().remove(0);
        object["config"] = ().into();
        object
    };
    assert_eq!(found("embedded"), found(&at("head")));
    let bench = [
        "bench",
        "--model",
        "tiny",
        "--drafters",
        "eagle=embedded",
        "--prompts",
        &prompts,
    ];
    let out = at("bench");
    let ran = eyrie(
        &[
            &bench[..],
            &["--max-tokens", "6", "--repeats", "1", "--out", &out],
        ]
        .concat(),
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let result = std::fs::read_to_string(dir.path().join("bench/result.json")).expect("a result");
    let result: serde_json::Value = serde_json::from_str(&result).expect("JSON");
    let files = result["files"]["model"].as_array().expect("files");
    assert!(
        files.iter().all(|file| file["sha256"].is_string()) && files.len() == 4,
        "{files:?}"
    );
    let data = at("data");
    let ran = eyrie(&[
        "distill",
        "--model",
        "tiny",
        "--prompts",
        &prompts,
        "--out",
        &data,
        "--max-tokens",
        "4",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}
