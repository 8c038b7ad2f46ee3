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
