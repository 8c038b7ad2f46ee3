//! `eyrie distill` and `eyrie train`, run as programs.

use std::{collections::BTreeSet, fs, path::Path};

use clap::CommandFactory;
use serde_json::Value;
use tempfile::TempDir;

use super::{eyrie, flags::refused};

type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const DISTILL: &[&str] = &[
    "distill",
    "--model",
    "@tt",
    "--prompts",
    "@requests.jsonl",
    "--out",
    "o",
];
const TRAIN: &[&str] = &[
    "train", "eagle3", "--model", "@tt", "--data", "d", "--out", "o",
];

const TARGET: &[&str] = &["train", "target", "--text", "@other.jsonl", "--out", "o"];

/// Flags of `distill` but `--print-config`: two ways to give each.
const OF_DISTILL: &[Case] = &[
    ("model", &[], &["--model", "@tt.gguf"]),
    ("prompts", &[], &["--prompts", "@other.jsonl"]),
    ("out", &[], &["--out", "p"]),
    ("max_tokens", &[], &["--max-tokens", "3"]),
    ("max_prompt", &[], &["--max-prompt", "9"]),
    ("limit", &[], &["--limit", "2"]),
    ("temperature_mix", &[], &["--temperature-mix", "0,1"]),
    ("taps", &[], &["--taps", "1,2,7"]),
    ("batch", &[], &["--batch", "3"]),
    ("raw", &[], &["--raw"]),
    ("seed", &[], &["--seed", "4"]),
    ("dtype", &[], &["--dtype", "q8_0"]),
    ("threads", &["--threads", "1"], &["--threads", "3"]),
];

const TRAIN1: &[&str] = &[
    "train", "eagle1", "--model", "@tt", "--data", "d", "--out", "o",
];

/// Flags of `train eagle3`; the first is not one of `train eagle1`.
const OF_TRAIN: &[Case] = &[
    ("draft_vocab", &[], &["--draft-vocab", "40"]),
    ("model", &[], &["--model", "@tt.gguf"]),
    ("data", &[], &["--data", "e"]),
    ("out", &[], &["--out", "p"]),
    ("kv_heads", &[], &["--kv-heads", "2"]),
    ("epochs", &[], &["--epochs", "1,0"]),
    ("unroll", &[], &["--unroll", "4"]),
    ("rates", &[], &["--rates", "1e-3,1e-4"]),
    ("decay", &[], &["--decay", "1"]),
    ("rows", &[], &["--rows", "30"]),
    ("prompt_rows", &[], &["--prompt-rows"]),
    ("held_out", &[], &["--held-out", "3"]),
    ("limit", &[], &["--limit", "20"]),
    ("seed", &[], &["--seed", "1"]),
    ("head_type", &[], &["--head-type", "f32"]),
    ("save_every", &[], &["--save-every", "1"]),
    ("threads", &["--threads", "1"], &["--threads", "3"]),
];

/// Flags of `train target`.
const OF_TARGET: &[Case] = &[
    ("text", &[], &["--text", "@requests.jsonl"]),
    ("out", &[], &["--out", "p"]),
    ("layers", &[], &["--layers", "7"]),
    ("hidden", &[], &["--hidden", "64"]),
    ("ffn", &[], &["--ffn", "100"]),
    ("heads", &[], &["--heads", "2"]),
    ("kv_heads", &[], &["--kv-heads", "1"]),
    ("vocab", &[], &["--vocab", "300"]),
    ("context", &[], &["--context", "32"]),
    ("steps", &[], &["--steps", "9"]),
    ("batch", &[], &["--batch", "3"]),
    ("rate", &[], &["--rate", "1e-3"]),
    ("seed", &[], &["--seed", "1"]),
    ("save_every", &[], &["--save-every", "1"]),
    ("threads", &["--threads", "1"], &["--threads", "3"]),
];

/// `base` with the flags of `more` in place of its own.
fn given<'a>(base: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let (words, flags) = base.split_at(base.iter().position(|w| w.starts_with("--")).unwrap_or(0));
    let kept = flags.chunks(2).filter(|pair| !more.contains(&pair[0]));
    let kept = kept.flatten().copied();
    words
        .iter()
        .copied()
        .chain(kept)
        .chain(more.iter().copied())
        .collect()
}

fn config(base: &[&str], more: &[&str]) -> Value {
    let ran = eyrie(&[&given(base, more)[..], &["--print-config"]].concat());
    assert_eq!(ran.code, 0, "{more:?}: {}", ran.err);
    serde_json::from_str(&ran.out).expect("the configuration is JSON")
}

#[test]
fn every_flag_changes_the_configuration() {
    let of_train1 = &OF_TRAIN[1..];
    for (base, cases) in [
        (DISTILL, OF_DISTILL),
        (TRAIN, OF_TRAIN),
        (TRAIN1, of_train1),
        (TARGET, OF_TARGET),
    ] {
        for (flag, one, two) in cases {
            let (one, two) = (config(base, one), config(base, two));
            assert_ne!(one[flag], two[flag], "--{flag}");
        }
    }
    let command = eyrie::cli::Cli::command();
    let distill = command.find_subcommand("distill").expect("distill");
    let train = command.find_subcommand("train").expect("train");
    let [eagle3, eagle1, target] =
        ["eagle3", "eagle1", "target"].map(|name| train.find_subcommand(name).expect(name));
    assert_eq!(config(TRAIN, &[])["head"], "eagle3");
    let one = config(TRAIN1, &[]);
    assert_eq!(
        (&one["head"], &one["draft_vocab"]),
        (&Value::from("eagle1"), &Value::from(64))
    );
    for (command, cases, constant) in [
        (distill, OF_DISTILL, &["device"][..]),
        (eagle3, OF_TRAIN, &[]),
        (eagle1, of_train1, &[]),
        (target, OF_TARGET, &[]),
    ] {
        let flags = command.get_arguments().map(|arg| arg.get_id().as_str());
        let flags: BTreeSet<&str> = flags
            .filter(|f| !["print_config", "help"].contains(f))
            .collect();
        let tested = cases
            .iter()
            .map(|case| case.0)
            .chain(constant.iter().copied());
        assert_eq!(flags, tested.collect());
    }
}

fn prompts(dir: &Path) -> String {
    let words = ["the", "cat", "a dog", "on the mat", "and then"];
    let lines = (0..40).map(|i| {
        let text = format!("{} {}", words[i % 5], words[(i / 5) % 5]);
        match i % 2 {
            0 => format!("{{\"turns\": [\"{text}\", \"and\"]}}\n"),
            _ => format!("{{\"prompt\": \"{text}\"}}\n"),
        }
    });
    let path = dir.join("prompts.jsonl");
    fs::write(&path, lines.collect::<String>()).expect("written");
    path.display().to_string()
}

/// The names in a folder, in order.
fn files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder").map(|entry| {
        let name = entry.expect("an entry").file_name();
        name.to_string_lossy().into_owned()
    });
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

/// Three commands from prompts to a head that drafts.
#[test]
fn a_head_is_made_and_used() {
    let dir = TempDir::new().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (prompts, data, head) = (prompts(dir.path()), at("data"), at("head"));
    let distill = [
        "distill",
        "--model",
        "@tt",
        "--prompts",
        &prompts,
        "--out",
        &data,
        "--max-tokens",
        "20",
        "--threads",
        "2",
    ];
    let ran = eyrie(&distill);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("40 answers of "), "{}", ran.out);
    let again = eyrie(&distill);
    assert!(
        again.out.contains("40 answers") && again.out.contains(" 0 of them now"),
        "{}",
        again.out
    );
    let train = |more: &[&str]| {
        let base = [
            "train",
            "eagle3",
            "--model",
            "@tt",
            "--data",
            &data,
            "--out",
            &head,
            "--draft-vocab",
            "60",
            "--held-out",
            "4",
            "--epochs",
            "2,1",
            "--rows",
            "80",
            "--threads",
            "2",
        ];
        eyrie(&given(&base, more))
    };
    refused(
        &train(&["--held-out", "400"]),
        1,
        &["400 sequences held out"],
    );
    refused(&train(&["--epochs", "1"]), 2, &["--epochs", "[1]"]);
    refused(
        &train(&["--model", "@bare2"]),
        1,
        &["--data", "made of target"],
    );
    let ran = train(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for word in [
        "start: held out",
        "phase 1 epoch 2: held out",
        "phase 2 epoch 1: held out",
        "ngram",
    ] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    refused(&train(&[]), 2, &["--out", "has a head already"]);
    let names = files(&dir.path().join("head"));
    assert_eq!(names, ["README.md", "config.json", "model.safetensors"]);
    let card = fs::read_to_string(dir.path().join("head/README.md")).expect("a card");
    for word in [
        "train eagle3",
        "phase 2 epoch 1",
        "fingerprint",
        "the start values",
    ] {
        assert!(card.contains(word), "{word}: {card}");
    }
    let ran = eyrie(&["inspect", &head, "--model", "@tt", "--json"]);
    let seen: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(
        (&seen["draft_vocab"], &seen["kv_heads"]),
        (&Value::from(60), &Value::from(4))
    );
    // So small a vocabulary is its own first tokens, which is what the one warning says.
    let warnings = seen["warnings"].as_array().expect("a list");
    assert!(
        warnings.iter().all(|w| w
            .as_str()
            .is_some_and(|w| w.starts_with("d2t is all zeros"))),
        "{warnings:?}"
    );
    let ran = eyrie(&[
        "generate",
        "--model",
        "@tt",
        "--draft",
        &head,
        "--prompt",
        "the cat",
        "--max-tokens",
        "24",
        "--json",
    ]);
    let plain = eyrie(&[
        "generate",
        "--model",
        "@tt",
        "--prompt",
        "the cat",
        "--max-tokens",
        "24",
        "--json",
    ]);
    assert_eq!(ran.result()["tokens"], plain.result()["tokens"]);

    let other = at("head1");
    let ran = eyrie(&[
        "train",
        "eagle1",
        "--model",
        "@tt",
        "--data",
        &data,
        "--out",
        &other,
        "--held-out",
        "4",
        "--epochs",
        "1,1",
        "--head-type",
        "f32",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let card = fs::read_to_string(dir.path().join("head1/README.md")).expect("a card");
    assert!(card.starts_with("# EAGLE-1 head for tt"), "{card}");
    let ran = eyrie(&["inspect", &other, "--model", "@tt", "--json"]);
    let seen: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(seen["format"], "eagle1");
    assert_eq!(seen["warnings"], serde_json::json!([]));
    let ran = eyrie(&[
        "generate",
        "--model",
        "@tt",
        "--draft",
        &other,
        "--prompt",
        "the cat",
        "--max-tokens",
        "24",
        "--json",
    ]);
    assert_eq!(ran.result()["tokens"], plain.result()["tokens"]);
}

/// A target from a text, which answers, is not trained twice, and says what it is.
#[test]
fn a_target_is_made_and_used() {
    let dir = TempDir::new().expect("a temporary folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (text, out) = (at("text.txt"), at("target"));
    fs::write(
        &text,
        "One and two are three, and two and two are four. ".repeat(80),
    )
    .expect("written");
    let base = [
        "train",
        "target",
        "--text",
        &text,
        "--out",
        &out,
        "--layers",
        "2",
        "--hidden",
        "16",
        "--ffn",
        "24",
        "--vocab",
        "270",
        "--context",
        "16",
        "--steps",
        "30",
        "--batch",
        "4",
        "--threads",
        "2",
    ];
    let train = |more: &[&str]| eyrie(&given(&base, more));
    refused(&train(&["--text", "@nowhere"]), 1, &["--text", "nowhere"]);
    refused(
        &train(&["--vocab", "4096"]),
        1,
        &["vocab is 4096", "accepted"],
    );
    refused(&train(&["--heads", "3"]), 1, &["hidden is 16 and heads 3"]);
    refused(&train(&["--vocab", "256"]), 2, &["--vocab", "256"]);
    refused(&train(&["--rate", "0"]), 2, &["--rate", "above 0"]);
    assert!(
        !dir.path().join("target").exists(),
        "nothing is left of what was refused"
    );
    let ran = train(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for word in [
        "1 texts of 3920 bytes",
        "after 0 steps",
        "step 30/30",
        "after 30 steps",
        "perplexity",
    ] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    refused(&train(&[]), 2, &["--out", "has a model already"]);
    let names = files(&dir.path().join("target"));
    let made = [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ];
    assert_eq!(names, made);
    let card = fs::read_to_string(dir.path().join("target/README.md")).expect("a card");
    for word in ["train target", "30 steps of 4 windows", "| 30 |", "commit"] {
        assert!(card.contains(word), "{word}: {card}");
    }
    let ran = eyrie(&[
        "generate",
        "--model",
        &out,
        "--prompt",
        "One and",
        "--max-tokens",
        "8",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.result()["tokens"].as_array().map(Vec::len), Some(8));
}

#[test]
fn wrong_usage_is_one_line() {
    let distill = |more: &[&str]| eyrie(&given(DISTILL, more));
    refused(
        &distill(&["--temperature-mix", "0,-1"]),
        2,
        &["--temperature-mix", "-1"],
    );
    refused(
        &distill(&["--taps", "3,2"]),
        2,
        &["--taps", "[3, 2]", "7 layers"],
    );
    refused(
        &distill(&["--max-prompt", "1", "--prompts", "@blank.jsonl"]),
        2,
        &["--prompts", "no prompt"],
    );
    refused(
        &distill(&["--prompts", "@nowhere"]),
        1,
        &["--prompts", "nowhere"],
    );
    refused(&eyrie(TRAIN), 1, &["--data", "data.json"]);
    refused(&eyrie(&["train"]), 2, &["a command is missing"]);
    refused(
        &eyrie(&given(TRAIN, &["--decay", "1.5"])),
        2,
        &["--decay", "1.5"],
    );
    refused(
        &eyrie(&given(TRAIN, &["--rates", "1e-3"])),
        2,
        &["--rates", "[0.001]", "two numbers"],
    );
}
