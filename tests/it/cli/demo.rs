//! `eyrie demo`, and `eyrie` without arguments.

use std::collections::BTreeSet;

use clap::CommandFactory;
use serde_json::Value;

use super::{Ran, eyrie};

/// Few samples and tokens: enough to see every part, in the dev profile.
const SMALL: [&str; 5] = ["demo", "--max-tokens", "24", "--samples", "300"];

fn small(args: &[&str]) -> Ran {
    eyrie(&[&SMALL[..], args].concat())
}

/// The whole demo as it is run by who has just cloned.
#[test]
fn without_arguments_the_demo_passes_on_the_embedded_model() {
    let ran = eyrie(&[]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    for part in [
        "tiny with drafts of embedded (eagle, chains of 4), temperature 0",
        "plain decoding: ",
        " | with drafts: ",
        "tokens are the same, in all 5 repeats of both.",
        "Acceptance: ",
        "; time: ",
        "Speed: ",
        "(95 % interval ",
        "N = 10000, chi-square ",
        "is excluded: PASS",
        "PASS (alpha 1e-6, ",
    ] {
        assert!(ran.out.contains(part), "{part} is not in {}", ran.out);
    }
    assert_eq!(
        ran.out.matches("is excluded: PASS").count(),
        2,
        "{}",
        ran.out
    );
    assert!(!ran.out.contains(['\x1b', '\r']), "{:?}", ran.out);
    let columns = ran.out.lines().filter(|line| line.contains(" | "));
    assert!(columns.clone().count() > 1, "{}", ran.out);
    for line in columns {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// As JSON: the tokens of both sides, what `generate` gives for the same prompt, and every number.
#[test]
fn json_is_one_object_and_its_tokens_are_those_of_generate() {
    let prompt = ["--prompt", "the people"];
    let ran = small(&[&prompt[..], &["--json"]].concat());
    let (code, object) = (ran.code, ran.lines().remove(0));
    assert_eq!(ran.lines().len(), 1);
    // So few samples exclude nothing.
    assert_eq!(
        (code, &object["verdict"]),
        (3, &Value::from("UNDECIDED")),
        "{}",
        ran.err
    );
    assert_eq!(object["equal_tokens"], true);
    let tokens = &object["tokens"];
    assert!(tokens.as_array().is_some_and(|tokens| !tokens.is_empty()));
    assert_eq!(
        [&object["plain"]["tokens"], &object["drafted"]["tokens"]],
        [tokens, tokens]
    );
    let model = [
        "generate",
        "--model",
        "tiny",
        "--max-tokens",
        "24",
        "--json",
    ];
    let plain = eyrie(&[&model[..], &prompt].concat()).result();
    assert_eq!(
        (&plain["tokens"], &plain["text"]),
        (tokens, &object["text"])
    );
    let head = ["--draft", "embedded", "--drafter", "eagle"];
    let drafted = eyrie(&[&model[..], &prompt, &head].concat()).result();
    assert_eq!(drafted["tokens"], plain["tokens"]);
    let sides = object["law"]["sides"].as_array().expect("two sides");
    let names: Vec<_> = sides.iter().map(|side| &side["side"]).collect();
    assert_eq!(names, ["plain", "eagle"]);
    assert_eq!(sides[0]["drafted"], 0);
    assert!(sides[1]["drafted"].as_u64() > Some(0), "{object}");
    for side in sides {
        assert!(side["excluded_tv"].as_f64() > Some(0.05), "{side}");
    }
    assert!(
        object["drafted"]["speedup"]["interval"].is_array(),
        "{object}"
    );
    assert!(object["drafted"]["acceptance"]["unconditional"].is_array());
    assert_eq!(object["config"]["samples"], 300);
}

#[test]
fn models_of_ones_own_are_shown_too() {
    let ran = small(&["--model", "@tt", "--draft", "@td", "--prompt", "the cat"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.out.contains("(model, chains of 4)"), "{}", ran.out);
    assert!(ran.out.contains("tokens are the same"), "{}", ran.out);
}

#[test]
fn every_flag_changes_the_configuration() {
    let config = |args: &[&str]| {
        let ran = eyrie(&[&["demo", "--print-config"], args].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        serde_json::from_str::<Value>(&ran.out).expect("JSON")
    };
    let plain = config(&[]);
    assert_eq!(
        (&plain["model"], &plain["draft"]),
        (&"tiny".into(), &"embedded".into())
    );
    assert_eq!(plain["drafter"], "eagle");
    let cases = [
        ("model", &["--model", "@tt", "--draft", "@e3"][..]),
        ("draft", &["--draft", "@script.json"]),
        ("prompt", &["--prompt", "-x"]),
        ("max_tokens", &["--max-tokens", "7"]),
        ("samples", &["--samples", "7"]),
        ("threads", &["--threads", "97"]),
        ("plain_text", &["--plain-text"]),
        ("json", &["--json"]),
    ];
    for (key, args) in cases {
        assert_ne!(config(args)[key], plain[key], "{key}");
    }
    let command = eyrie::cli::Cli::command();
    let demo = command.find_subcommand("demo").expect("the command demo");
    let flags = demo.get_arguments().map(|arg| arg.get_id().as_str());
    let flags: BTreeSet<_> = flags
        .filter(|flag| !["print_config", "help"].contains(flag))
        .collect();
    assert_eq!(flags, cases.map(|(key, _)| key).into());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (args, words) in [
        (&["--model", "@tt"][..], "--draft: missing"),
        (&["--draft", "nowhere"], "nowhere"),
        (&["--samples", "0"], "--samples"),
        (&["--samples", "65537"], "--samples"),
        (&["--max-tokens", "0"], "--max-tokens"),
        (&["--threads", "0"], "--threads"),
        (&["--depth", "3"], "--depth"),
        (&["--model", "@tt", "--draft", "embedded"], "embedded"),
        (&["--model", "embedded", "--draft", "embedded"], "--model"),
    ] {
        let ran = small(args);
        assert!(
            [1, 2].contains(&ran.code),
            "{args:?}: {}{}",
            ran.code,
            ran.out
        );
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: "), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}
