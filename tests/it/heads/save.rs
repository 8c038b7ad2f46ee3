//! Heads written in other formats: every committed head in every format is the same head, or refused by
//! name; and nothing is left behind by a failure.

use std::{collections::BTreeMap, sync::Arc};

use eyrie::{
    draft::eagle::{
        Head as Loaded, NormOutput,
        load::HeadCheckpoint,
        save::{Conversion, Format, SaveError, Saved},
    },
    model::{
        LoadOptions,
        config::{RopeConfig, RopeScaling},
    },
};
use serde::Deserialize;

use super::*;
use crate::{
    eagle::{heads as made, network},
    support::tt_target,
};

#[derive(Deserialize)]
struct Index {
    heads: BTreeMap<String, Golden>,
}

#[derive(Deserialize)]
struct Golden {
    target: String,
    files: BTreeMap<String, Place>,
}

#[derive(Deserialize)]
struct Place {
    at: String,
}

/// The committed heads by name, each in a folder of its own.
fn goldens() -> Vec<(String, TargetFacts, TempDir)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/heads");
    let text = fs::read_to_string(root.join("index.json")).unwrap();
    let index: Index = serde_json::from_str(&text).unwrap();
    let golden = |(name, golden): (String, Golden)| {
        let dir = tempfile::tempdir().unwrap();
        for (file, place) in &golden.files {
            if file != "golden.safetensors" {
                fs::copy(root.join(&place.at), dir.path().join(file)).unwrap();
            }
        }
        let hidden = if golden.target == "target-48" { 48 } else { 64 };
        let facts = TargetFacts {
            hidden,
            layers: 8,
            vocab: 97,
            tied: false,
        };
        (name, facts, dir)
    };
    index.heads.into_iter().map(golden).collect()
}

fn open_golden(name: &str, facts: &TargetFacts, dir: &Path) -> Result<HeadCheckpoint, String> {
    let file = dir.join("head.gguf");
    let path = if file.exists() { file } else { dir.to_owned() };
    let norm_output = [
        "eagle3-specforge-old-norm-output",
        "eagle3-specforge-no-head-norm",
    ]
    .contains(&name)
    .then_some(NormOutput::Head);
    let options = HeadOptions {
        norm_output,
        ..HeadOptions::default()
    };
    HeadCheckpoint::open(&path, facts, &options).map_err(|error| error.to_string())
}

fn save(
    head: &HeadCheckpoint,
    target: &TargetFacts,
    format: Format,
    out: &Path,
) -> Result<Saved, SaveError> {
    let conversion = Conversion {
        head,
        target,
        metadata: None,
    };
    conversion.save(format, out)
}

/// What a head computes: the configuration less where it came from, its frequencies, and all tensors
/// as f32, by their bits.
type Meaning = (HeadConfig, Vec<f32>, Vec<(String, Vec<usize>, Vec<u32>)>);

fn meaning(head: &HeadCheckpoint) -> Meaning {
    let config = head.config();
    let frequencies = config.rope.frequencies(config.head_dim);
    let config = HeadConfig {
        source: Source::SafeAiLab,
        taps_convention: None,
        map_form: MapForm::Identity,
        warnings: Vec::new(),
        // Computed in f32.
        eps: f64::from(config.eps.to_string().parse::<f32>().unwrap()),
        rope: RopeConfig {
            theta: 1.0,
            scaling: RopeScaling::None,
        },
        ..config.clone()
    };
    let bits = |(name, shape, values): (String, Vec<usize>, Vec<f32>)| {
        (name, shape, values.into_iter().map(f32::to_bits).collect())
    };
    let tensors = values(head).into_iter().map(bits).collect();
    (config, frequencies, tensors)
}

#[track_caller]
fn same(one: &HeadCheckpoint, other: &HeadCheckpoint, about: &str) {
    let (one, other) = (meaning(one), meaning(other));
    assert_eq!(one.0, other.0, "{about}");
    assert_eq!(one.2, other.2, "{about}");
    for (a, b) in one.1.iter().zip(&other.1) {
        // Divisors of frequencies are 32-bit floats in GGUF.
        assert!((a - b).abs() <= 1.2e-7 * a, "{about}: {a} {b}");
    }
}

/// What is refused: head, then safeailab, speculators, gguf; the empty text is accepted.
const REFUSED: &[(&str, [&str; 3])] = &[
    ("eagle1-fc-bias", ["", "", "EAGLE-1"]),
    ("eagle1-norms", ["embed_norm", "", "EAGLE-1"]),
    (
        "eagle1-own-embedding",
        ["", "embed_tokens.weight in EAGLE-1", "EAGLE-1"],
    ),
    ("eagle1-plain", ["", "", "EAGLE-1"]),
    (
        "eagle1-qkv-bias",
        [
            "",
            "biases of queries, keys and values without one of the output",
            "EAGLE-1",
        ],
    ),
    (
        "eagle1-two-layers",
        ["", "several layers in EAGLE-1", "EAGLE-1"],
    ),
    ("eagle1-wrong-bias-key", ["", "", "EAGLE-1"]),
    (
        "eagle3-attention-bias",
        [
            "attention_bias in EAGLE-3",
            "biases of queries, keys and values without one of the output",
            "attention_bias",
        ],
    ),
    (
        "eagle3-attention-bias-o",
        ["o_proj.bias", "", "attention_bias"],
    ),
    ("eagle3-aux-norm", ["fc_norm", "", "fc_norm"]),
    (
        "eagle3-borrowed-head",
        ["a head that borrows", "a head that borrows", ""],
    ),
    ("eagle3-fc-norm", ["fc_norm", "", "fc_norm"]),
    (
        "eagle3-final-feature",
        [
            "use_aux_hidden_state false",
            "use_aux_hidden_state false",
            "use_aux_hidden_state false",
        ],
    ),
    (
        "eagle3-gguf-borrowed-head",
        ["a head that borrows", "a head that borrows", ""],
    ),
    ("eagle3-gguf-extract-layers", ["taps [1, 4, 7]", "", ""]),
    ("eagle3-gguf-norm-before-fc", ["norm_before_fc", "", ""]),
    (
        "eagle3-gguf-norm-before-residual",
        ["norm_before_residual", "", ""],
    ),
    (
        "eagle3-gguf-rope-freqs",
        ["rope_freqs.weight", "rope_freqs.weight", ""],
    ),
    ("eagle3-head-dim-32", ["head_dim that is not", "", ""]),
    ("eagle3-norm-before-fc", ["norm_before_fc", "", ""]),
    (
        "eagle3-norm-before-residual",
        ["norm_before_residual", "", ""],
    ),
    ("eagle3-norm-output", ["norm_output", "", "norm_output"]),
    (
        "eagle3-qk-norm",
        ["q_norm and k_norm", "", "q_norm and k_norm"],
    ),
    ("eagle3-rope-llama3", ["rope_scaling llama3", "", ""]),
    ("eagle3-rope-parameters", ["rope_scaling llama3", "", ""]),
    (
        "eagle3-rope-parameters-nested",
        ["rope_scaling llama3", "", ""],
    ),
    (
        "eagle3-rope-yarn",
        ["rope_scaling yarn", "", "rope_scaling yarn"],
    ),
    (
        "eagle3-specforge-no-head-norm",
        [
            "an output that no norm precedes",
            "an output that no norm precedes",
            "an output that no norm precedes",
        ],
    ),
    ("eagle3-taps-1", ["taps [6]", "", "1 taps"]),
    ("eagle3-taps-2", ["taps [2, 6]", "", "2 taps"]),
    ("eagle3-taps-4", ["taps [0, 3, 5, 8]", "", "4 taps"]),
    (
        "eagle3-two-layers",
        ["several layers", "", "several layers"],
    ),
    ("eagle3-window-4", ["sliding_window", "", "sliding_window"]),
    (
        "speculators-bias-rope",
        ["o_proj.bias", "", "attention_bias"],
    ),
    ("speculators-eagle1", ["", "", "EAGLE-1"]),
    ("speculators-eagle1-norms", ["embed_norm", "", "EAGLE-1"]),
    ("speculators-fc-norm", ["fc_norm", "", "fc_norm"]),
    ("speculators-norm-before-fc", ["norm_before_fc", "", ""]),
    (
        "speculators-norm-before-residual",
        ["norm_before_residual", "", ""],
    ),
    (
        "speculators-norm-output",
        ["norm_output", "", "norm_output"],
    ),
    (
        "speculators-qwen3",
        ["q_norm and k_norm", "", "q_norm and k_norm"],
    ),
    (
        "speculators-two-layers",
        ["several layers", "", "several layers"],
    ),
    (
        "speculators-window",
        ["sliding_window", "", "sliding_window"],
    ),
];

#[test]
fn every_committed_head_is_converted_or_refused_by_name() {
    let mut refused = REFUSED.iter().copied().collect::<BTreeMap<_, _>>();
    let mut converted = 0;
    let mut table = String::new();
    for (name, facts, dir) in goldens() {
        let head = open_golden(&name, &facts, dir.path());
        let head = head.unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = refused.remove(name.as_str()).unwrap_or([""; 3]);
        for (format, expected) in Format::ALL.into_iter().zip(expected) {
            let about = format!("{name} to {}", format.name());
            let out = dir.path().join(format.name());
            match save(&head, &facts, format, &out) {
                Ok(saved) => {
                    if !expected.is_empty() {
                        table += &format!("{about}: written\n");
                    }
                    let again = HeadCheckpoint::open(&saved.path, &facts, &HeadOptions::default());
                    let again = again.unwrap();
                    same(&head, &again, &about);
                    converted += 1;
                    // And to all other formats from there.
                    for other in Format::ALL {
                        let back = dir
                            .path()
                            .join(format!("{}-{}", format.name(), other.name()));
                        if let Ok(saved) = save(&again, &facts, other, &back) {
                            let back =
                                HeadCheckpoint::open(&saved.path, &facts, &HeadOptions::default());
                            same(&head, &back.unwrap(), &about);
                        }
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if expected.is_empty() || !error.contains(&format!("cannot hold {expected}")) {
                        table += &format!("{about}: {error}\n");
                    }
                    assert!(!out.exists(), "{about}");
                }
            }
        }
    }
    assert!(
        table.is_empty() && refused.is_empty(),
        "{refused:?}\n{table}"
    );
    assert!(converted > 60, "{converted}");
}

/// The same bits of logits, over a real target.
#[test]
fn converted_heads_compute_the_same_bits() {
    let target = tt_target();
    let facts = TargetFacts {
        hidden: 32,
        layers: 7,
        vocab: 64,
        tied: false,
    };
    let dir = tempfile::tempdir().unwrap();
    made::random(made::e3(), 12).write_dir(&dir.path().join("head"), &json!({}));
    let open = |path: &Path| HeadCheckpoint::open(path, &facts, &HeadOptions::default()).unwrap();
    let logits = |head: &HeadCheckpoint| {
        let loaded = Loaded::load(head, Arc::clone(&target), &LoadOptions::default()).unwrap();
        network::logits_of(&loaded, &target)
    };
    let head = open(&dir.path().join("head"));
    let expected = logits(&head);
    for format in Format::ALL {
        let saved = save(&head, &facts, format, &dir.path().join(format.name())).unwrap();
        assert_eq!(logits(&open(&saved.path)), expected, "{}", format.name());
    }
}
