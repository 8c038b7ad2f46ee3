//! `eyrie inspect`.

use super::{eyrie, file};

/// The contract's keys.
const KEYS: [&str; 21] = [
    "format",
    "source",
    "taps",
    "taps_convention",
    "hidden",
    "target_hidden",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "draft_vocab",
    "vocab_map",
    "embedding",
    "lm_head",
    "norms",
    "rope",
    "max_position",
    "dtype",
    "tensors",
    "warnings",
];

#[test]
fn json_has_the_keys_of_the_contract() {
    for (model, source, dtype) in [("@tt", "safetensors", "f32"), ("@tt.gguf", "gguf", "q8_0")] {
        let report = eyrie(&["inspect", model, "--json"]).result();
        let keys: Vec<_> = report
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys, KEYS);
        assert_eq!(report["format"], "llama");
        assert_eq!(report["source"], source);
        for (key, value) in [
            ("hidden", 32),
            ("layers", 7),
            ("heads", 4),
            ("kv_heads", 2),
            ("head_dim", 8),
            ("vocab", 64),
            ("max_position", 256),
        ] {
            assert_eq!(report[key], value, "{key}");
        }
        assert_eq!(report["rope"]["theta"], 10_000.0);
        let types = report["dtype"].as_str().unwrap().to_lowercase();
        assert!(types.starts_with(dtype), "{types}");
    }
}

#[test]
fn text_says_the_same() {
    let ran = eyrie(&["inspect", "@tt"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json = eyrie(&["inspect", "@tt", "--json"]).result();
    for line in ran.out.lines() {
        let (key, value) = line.split_once(' ').expect("a key and a value");
        let value = value.trim();
        assert!(KEYS.contains(&key), "{line}");
        if let Some(number) = json[key].as_u64() {
            assert_eq!(value, number.to_string(), "{line}");
        }
        if let Some(text) = json[key].as_str() {
            assert_eq!(value, text, "{line}");
        }
    }
    for key in ["format", "layers", "vocab", "rope"] {
        assert!(ran.out.lines().any(|line| line.starts_with(key)), "{key}");
    }
}

#[test]
fn reads_headers_only() {
    let file = file("tt").join("model.safetensors");
    let len = std::fs::metadata(&file).unwrap().len();
    assert!(len > 100_000, "the fixture has weights");
    assert_eq!(eyrie(&["inspect", "@tt"]).code, 0);
}

fn head_and_target() -> (tempfile::TempDir, String, String) {
    let scratch = tempfile::tempdir().unwrap();
    let (head, target) = (scratch.path().join("head"), scratch.path().join("target"));
    eyrie_fixtures::head::e3().write_bin(&head).unwrap();
    let fixture = eyrie_fixtures::Fixture {
        hidden: 64,
        head_dim: 16,
        ..eyrie_fixtures::tt()
    };
    fixture.write_dir(&target).unwrap();
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    (scratch, text(head), text(target))
}

#[test]
fn heads_are_understood_with_their_target() {
    let (_scratch, head, target) = head_and_target();
    let report = eyrie(&["inspect", &head, "--model", &target, "--json"]).result();
    let keys: Vec<_> = report.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, KEYS);
    for (key, value) in [
        ("format", serde_json::json!("eagle3")),
        ("source", "safeailab".into()),
        ("taps", [2, 3, 4].as_slice().into()),
        ("taps_convention", "default".into()),
        ("draft_vocab", 31.into()),
        ("target_hidden", 64.into()),
        ("vocab_map", "offsets".into()),
        ("embedding", "target".into()),
        ("lm_head", "own".into()),
        ("max_position", 2048.into()),
        ("dtype", "f32".into()),
        ("tensors", 15.into()),
    ] {
        assert_eq!(report[key], value, "{key}");
    }
    let ran = eyrie(&[
        "inspect",
        &head,
        "--model",
        &target,
        "--head-theta",
        "5e5",
        "--head-context",
        "77",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let line = |text: &str| ran.out.lines().any(|line| line == text);
    assert!(
        line("taps            2, 3, 4") && line("max_position    77"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("theta 500000"), "{}", ran.out);
}

#[test]
fn flags_of_heads_are_for_heads() {
    let (_scratch, head, target) = head_and_target();
    let failed = |args: &[&str], part: &str| {
        let ran = eyrie(args);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains(part), "{part:?} is not in: {}", ran.err);
    };
    failed(&["inspect", &head], "give --model");
    failed(&["inspect", &target, "--model", &target], "--model: ");
    failed(&["inspect", &target, "--head-theta", "5"], "--head-theta: ");
    failed(
        &[
            "inspect",
            &head,
            "--model",
            &target,
            "--taps-convention",
            "output",
        ],
        "lists no taps",
    );
    failed(&["inspect", &head, "--model", &head], "an EAGLE head");
}

#[test]
fn what_is_neither_model_nor_head_is_said_first() {
    let (scratch, _, target) = head_and_target();
    for (text, part) in [
        ("", "fewer than 4 bytes"),
        ("hello", "starts with \"hell\""),
    ] {
        let path = scratch.path().join("text");
        std::fs::write(&path, text).expect("a file is written");
        let ran = eyrie(&["inspect", &path.display().to_string(), "--model", &target]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(ran.err.contains(part), "{part:?} is not in: {}", ran.err);
    }
}
