//! `eyrie judge`: its flags, its table and its exits, on the tiny target.

use std::collections::BTreeSet;

use clap::CommandFactory;
use serde_json::Value;

use super::{
    Ran, eyrie,
    flags::{Case, refused},
};

fn judge(args: &[&str]) -> Ran {
    eyrie(&[&["judge", "--model", "@tt", "--threads", "2"], args].concat())
}

const HEAD: &[&str] = &["--draft", "@e3"];

/// All flags of `judge` but `--print-config`, and one that changes it.
const CASES: &[Case] = &[
    ("model", &[], &["--model", "@tt"], &["--model", "@tt.gguf"]),
    ("drafter", &[], &[], &["--drafter", "none"]),
    (
        "draft",
        &[],
        &["--draft", "@td"],
        &["--draft", "@script.json"],
    ),
    ("depth", &[], &[], &["--depth", "5"]),
    ("tree", &["--draft", "@td"], &[], &["--tree", "2x3x5"]),
    (
        "taps_convention",
        &["--draft", "@e3-taps"],
        &["--taps-convention", "input"],
        &["--taps-convention", "output"],
    ),
    ("head_theta", HEAD, &[], &["--head-theta", "5000"]),
    ("head_context", HEAD, &[], &["--head-context", "100"]),
    (
        "head_norm_output",
        &["--draft", "@e3-norm"],
        &["--head-norm-output", "head"],
        &["--head-norm-output", "feedback"],
    ),
    ("rule", &[], &[], &["--rule", "block"]),
    ("pick", &["--rule", "match"], &[], &["--pick", "greedy"]),
    ("dtype", &[], &[], &["--dtype", "q8_0"]),
    ("head_dtype", &[], &[], &["--head-dtype", "bf16"]),
    ("threads", &[], &["--threads", "1"], &["--threads", "3"]),
    ("max_batch", &[], &[], &["--max-batch", "3"]),
    ("kv_tokens", &[], &[], &["--kv-tokens", "300"]),
    ("prefill_chunk", &[], &[], &["--prefill-chunk", "7"]),
    (
        "allow_tokenizer_mismatch",
        &["--draft", "@td"],
        &[],
        &["--allow-tokenizer-mismatch"],
    ),
    ("seed", &[], &[], &["--seed", "18446744073709551615"]),
    ("alpha", &[], &[], &["--alpha", "0.01"]),
    ("tv", &[], &[], &["--tv", "0.1"]),
    ("samples", &[], &[], &["--samples", "1000"]),
    ("json", &[], &[], &["--json"]),
    ("mutant", &[], &[], &["--mutant", "stale-q"]),
];

fn config(args: &[&[&str]]) -> Value {
    let args = args.concat();
    let model: &[&str] = if args.contains(&"--model") {
        &[]
    } else {
        &["--model", "@tt"]
    };
    let ran = eyrie(&[&["judge"], &args[..], model, &["--print-config"]].concat());
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    serde_json::from_str(&ran.out).expect("the configuration is JSON")
}

#[test]
fn every_flag_of_judge_changes_its_configuration() {
    for (flag, base, one, two) in CASES {
        let (one, two) = (config(&[base, one]), config(&[base, two]));
        assert_ne!(one[flag], two[flag], "--{flag}");
    }
    assert_eq!(config(&[&["--device", "cpu"]])["device"], "cpu");
    let command = eyrie::cli::Cli::command();
    let judge = command.find_subcommand("judge").expect("the command judge");
    let flags = judge.get_arguments().map(|arg| arg.get_id().as_str());
    let flags: BTreeSet<&str> = flags
        .filter(|flag| !["print_config", "help"].contains(flag))
        .collect();
    let tested = CASES.iter().map(|case| case.0).chain(["device"]);
    assert_eq!(flags, tested.collect());
}

#[test]
fn the_pick_is_each_rules_own_unless_it_is_given() {
    assert_eq!(config(&[])["pick"], Value::Null);
    assert_eq!(config(&[&["--rule", "match"]])["pick"], "coupled");
    assert_eq!(config(&[&["--rule", "block"]])["pick"], "drawn");
    assert_eq!(config(&[])["drafter"], "ngram");
    assert_eq!(config(&[&["--draft", "@td"]])["drafter"], "model");
}

#[test]
fn wrong_usage_names_the_flag() {
    for (args, parts) in [
        (
            &["--alpha", "0"][..],
            &["--alpha", "above 0 and below 1"][..],
        ),
        (&["--alpha", "x"], &["--alpha"]),
        (&["--tv", "1"], &["--tv", "below 1"]),
        (&["--samples", "0"], &["--samples"]),
        (&["--seed", "-1"], &["--seed", "-1"]),
        (&["--pick", "coupled"], &["--pick", "drawn"]),
        (&["--drafter", "none", "--depth", "2"], &["--depth"]),
        (&["--mutant", "honest"], &["--mutant", "honest", "stale-q"]),
        (&["--temperature", "1"], &["--temperature"]),
    ] {
        refused(&judge(args), 2, parts);
    }
    refused(&eyrie(&["judge"]), 2, &["--model"]);
    refused(&eyrie(&["judge", "--model", "@nowhere"]), 1, &["nowhere"]);
}

/// Enough to exclude 0.12, and to see every gross fault in the section live.
const ENOUGH: &[&str] = &["--samples", "40000", "--tv", "0.12", "--json"];

fn verdict(ran: &Ran, code: i32, verdict: &str) -> Value {
    assert_eq!(ran.code, code, "{ran:?}");
    let object: Value = serde_json::from_str(&ran.out).expect("one object");
    assert_eq!(object["verdict"], verdict, "{ran:?}");
    assert_eq!(ran.err, "", "no progress is shown off a terminal");
    object
}

fn rows(object: &Value) -> &Vec<Value> {
    object["rows"].as_array().expect("a list of findings")
}

#[test]
fn this_build_passes() {
    let ran = judge(&[ENOUGH, &["--draft", "@td", "--rule", "rejection"]].concat());
    let object = verdict(&ran, 0, "PASS");
    let sections = rows(&object).iter().map(|row| row["section"].as_str());
    let sections: BTreeSet<_> = sections.flatten().collect();
    assert_eq!(sections, ["accept", "engine", "exact", "live"].into());
    for row in rows(&object) {
        assert_eq!(row["verdict"], "PASS", "{row}");
        match row["section"].as_str() {
            Some("exact") => assert!(row["statistic"].as_f64() < Some(1e-12), "{row}"),
            Some("accept" | "engine") => {
                assert!(row["excluded_tv"].as_f64() <= Some(0.12), "{row}");
                let words = row["note"].as_str().expect("words");
                assert!(!words.starts_with("0 of"), "nothing was accepted: {row}");
            }
            _ => {}
        }
    }
    assert_eq!(object["alpha"], 1e-6);
    assert_eq!(object["config"]["drafter"], "model");
    assert_eq!(object["config"]["rule"], serde_json::json!(["rejection"]));
}

/// A head with half of the vocabulary, in trees and chains under every rule: each first token of a round has the
/// target's law at the anchors where the head has a guess.
#[test]
fn heads_with_a_reduced_vocabulary_pass() {
    for (shape, judged) in [
        (
            &["--tree", "2x3x6"][..],
            &["match", "rejection", "block"][..],
        ),
        (&["--depth", "4", "--rule", "rejection"], &["rejection"]),
    ] {
        let ran = judge(&[ENOUGH, &["--draft", "@e3"], shape].concat());
        let object = verdict(&ran, 0, "PASS");
        assert_eq!(object["config"]["drafter"], "eagle");
        let live: Vec<&Value> = rows(&object)
            .iter()
            .filter(|row| row["section"] == "live")
            .collect();
        // The transform and plain tokens of each rule, and of `match` the tokens of a seed.
        let seeded = usize::from(judged.contains(&"match"));
        assert_eq!(live.len(), 2 * judged.len() + seeded, "{live:?}");
        for rule in judged {
            let begin = format!("{rule}, eagle, transform");
            let named = |row: &&&Value| {
                row["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(&begin))
            };
            let row = live.iter().find(named).expect("a transform");
            assert!(row["samples"].as_u64() >= Some(4_000), "{row}");
            assert!(row["p_value"].as_f64() > Some(0.0), "{row}");
        }
    }
}

/// What goes wrong with a head's drafts is seen in the section live.
#[test]
fn broken_builds_with_heads_fail() {
    for (mutant, rule, more) in [
        ("always-accept", "rejection", &["--tree", "2x3x6"][..]),
        ("fresh-draw", "match", &["--tree", "2x3x6"]),
        ("resample-from-p", "rejection", &[]),
    ] {
        let args = ["--mutant", mutant, "--rule", rule, "--samples", "40000"];
        let ran = judge(&[&args[..], &["--draft", "@e3", "--json"], more].concat());
        let object = verdict(&ran, 1, "FAIL");
        let failed = rows(&object).iter().filter(|row| row["verdict"] == "FAIL");
        let failed: BTreeSet<_> = failed.flat_map(|row| row["section"].as_str()).collect();
        assert!(failed.contains("live"), "{mutant}: {failed:?}");
    }
}

/// Too few samples say nothing, and the table says so.
#[test]
fn too_few_samples_are_undecided() {
    let ran = judge(&["--samples", "400"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let last = ran.out.lines().last().expect("a verdict");
    assert!(
        last.starts_with("UNDECIDED (alpha 1e-6, seed 0, "),
        "{last}"
    );
    let lines: Vec<_> = ran.out.lines().collect();
    assert!(lines[0].starts_with("section "), "{}", lines[0]);
    let count = |word| lines.iter().filter(|line| line.contains(word)).count();
    // Five exact laws and four identities are decided all the same.
    assert_eq!((count("  PASS"), count("  FAIL")), (9, 0), "{}", ran.out);
    assert_eq!(count("  UNDECIDED"), lines.len() - 2 - 9);
}

/// Broken builds fail, each where its lie shows.
#[test]
fn broken_builds_fail() {
    for (mutant, rule, samples, section) in [
        ("always-accept", "rejection", "1000", "exact"),
        ("filter-skipped", "block", "2000", "accept"),
        ("noise-without-index", "match", "4000", "engine"),
        ("fresh-draw", "match", "4000", "live"),
    ] {
        let args = ["--mutant", mutant, "--rule", rule, "--samples", samples];
        let ran = judge(&[&args[..], &["--draft", "@td", "--json"]].concat());
        let object = verdict(&ran, 1, "FAIL");
        assert_eq!(object["config"]["mutant"], mutant);
        let failed = rows(&object).iter().filter(|row| row["verdict"] == "FAIL");
        let failed: BTreeSet<_> = failed.flat_map(|row| row["section"].as_str()).collect();
        assert!(failed.contains(section), "{mutant}: {failed:?}");
    }
}

#[test]
fn requests_that_fail_prove_nothing() {
    let few = [
        "--samples",
        "20",
        "--rule",
        "match",
        "--kv-tokens",
        "8",
        "--json",
    ];
    let ran = judge(&few);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let rows = ran.lines()[0]["rows"].as_array().expect("rows").clone();
    let live: Vec<&Value> = rows.iter().filter(|row| row["section"] == "live").collect();
    assert_eq!(live.len(), 3);
    for row in live {
        assert_eq!(row["verdict"], "FAIL", "{row}");
        let note = row["note"].as_str().expect("a note");
        assert!(note.contains("kv-tokens 8"), "{row}");
    }
}
