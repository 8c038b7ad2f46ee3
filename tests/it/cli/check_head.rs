//! `eyrie check-head`.

use std::fs;

use clap::CommandFactory;
use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, eyrie, flags::Case};

const PROMPTS: &str = "{\"prompt_ids\": [3, 7]}\n\n{\"prompt_ids\": [40], \"id\": \"b\", \"max_tokens\": 1}\n{\"prompt_ids\": [21]}\n";

fn check_on(prompts: &str, model: &str, head: &str, more: &[&str]) -> Ran {
    let dir = TempDir::new().expect("a temporary folder");
    let path = dir.path().join("prompts.jsonl");
    fs::write(&path, prompts).expect("a file");
    let path = path.display().to_string();
    let args = [
        "check-head",
        "--model",
        model,
        "--draft",
        head,
        "--prompts",
        &path,
    ];
    eyrie(&[&args, more].concat())
}

#[test]
fn good_and_bad_heads_have_their_exit_status_and_words() {
    for (head, tokens, code, parts) in [
        (
            "@ring-head",
            "50",
            0,
            &["looks right (147 rows)", "100.0 %"][..],
        ),
        (
            "@rolled",
            "50",
            1,
            &[
                "below chance-adjusted floor, check mapping/taps",
                "d2t seems to be rolled",
                "WRONG (147 rows",
            ],
        ),
        (
            "@random",
            "50",
            1,
            &["below chance-adjusted floor, check mapping/taps"],
        ),
        ("@random", "10", 3, &["TOO SHORT"]),
    ] {
        let ran = check_on(PROMPTS, "@ring", head, &["--max-tokens", tokens]);
        assert_eq!(ran.code, code, "{head}: {}{}", ran.out, ran.err);
        for part in parts {
            assert!(ran.out.contains(part), "{head}: {part:?} in {}", ran.out);
        }
    }
}

#[test]
fn json_says_what_the_table_says() {
    let more = ["--max-tokens", "50", "--depth", "2", "--json"];
    let ran = check_on(PROMPTS, "@ring", "@ring-head", &more);
    let object: Value = serde_json::from_str(&ran.out).expect("one object");
    assert_eq!(object["verdict"], "right");
    assert_eq!(object["texts"], 3);
    assert_eq!(object["counts"], serde_json::json!([147, 144]));
    assert_eq!(
        object["standings"][0]["rates"],
        serde_json::json!([1.0, 1.0])
    );
    assert_eq!(object["config"]["max_tokens"], 50);
    let names = object["standings"].as_array().expect("a list").iter();
    let names: Vec<_> = names.filter_map(|one| one["name"].as_str()).collect();
    for part in [
        "as it is",
        "d2t rolled a row up",
        "random lm_head",
        "always token",
    ] {
        assert!(names.iter().any(|name| name.starts_with(part)), "{names:?}");
    }
}

#[test]
fn turns_and_texts_are_prompts_too() {
    let turns =
        "{\"id\": \"x\", \"domain\": \"chat\", \"turns\": [\"the cat sat\", \"and then?\"]}\n";
    let ran = check_on(turns, "@tt", "@e3", &["--max-tokens", "20", "--json"]);
    let object: Value = serde_json::from_str(&ran.out).expect("one object");
    let rows = object["counts"][0].as_u64().expect("a count");
    assert!((1..20).contains(&rows), "{rows} {}", ran.err);
    let words = "the cat sat on the mat and the dog ran ".repeat(40);
    let ran = check_on(&words, "@tt", "@e3", &["--text", "--json"]);
    let object: Value = serde_json::from_str(&ran.out).expect("one object");
    assert!(
        object["counts"][0].as_u64() > Some(200),
        "{} {}",
        ran.out,
        ran.err
    );
    assert_eq!(object["config"]["max_tokens"], Value::Null);
}

#[test]
fn what_cannot_be_checked_is_said_in_a_line() {
    for (prompts, model, head, more, code, parts) in [
        (
            "",
            "@ring",
            "@ring-head",
            &[][..],
            2,
            &["--prompts", "has no prompt"][..],
        ),
        (
            "{\"prompt\": \"x\"}",
            "@ring",
            "@ring-head",
            &[],
            1,
            &["line 1", "no tokenizer"],
        ),
        ("{\"turns\": 3}", "@tt", "@e3", &[], 1, &["turns is 3"]),
        ("{\"promt\": \"x\"}", "@tt", "@e3", &[], 1, &["promt"]),
        ("x", "@tt", "@e3", &[], 1, &["line 1", "JSON"]),
        (
            "x",
            "@ring",
            "@ring-head",
            &["--text"],
            2,
            &["--text", "no tokenizer"],
        ),
        ("x", "@tt", "@none", &[], 1, &["--draft", "no such file"]),
        (
            PROMPTS,
            "@tt",
            "@e3-taps",
            &[],
            1,
            &["--taps-convention input"],
        ),
        (
            "x",
            "@tt",
            "@e3",
            &["--text", "--max-tokens", "3"],
            2,
            &["--max-tokens"],
        ),
        ("x", "@tt", "@e3", &["--depth", "0"], 2, &["--depth"]),
    ] {
        let ran = check_on(prompts, model, head, more);
        assert_eq!(ran.code, code, "{prompts} {more:?}: {}", ran.err);
        let errors = ran.err.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{part} in {}", ran.err);
        }
    }
}

/// All flags but `--print-config`, and two ways to give each.
const CASES: &[Case] = &[
    ("model", &[], &[], &["--model", "@td"]),
    ("draft", &[], &[], &["--draft", "@e3-norm"]),
    ("prompts", &[], &[], &["--prompts", "@other.jsonl"]),
    ("text", &[], &[], &["--text"]),
    ("max_tokens", &[], &[], &["--max-tokens", "3"]),
    ("depth", &[], &[], &["--depth", "5"]),
    (
        "taps_convention",
        &[],
        &["--taps-convention", "input"],
        &["--taps-convention", "output"],
    ),
    ("head_theta", &[], &[], &["--head-theta", "5000"]),
    ("head_context", &[], &[], &["--head-context", "100"]),
    (
        "head_norm_output",
        &[],
        &["--head-norm-output", "head"],
        &["--head-norm-output", "feedback"],
    ),
    ("dtype", &[], &[], &["--dtype", "q8_0"]),
    ("threads", &[], &["--threads", "1"], &["--threads", "3"]),
    ("seed", &[], &[], &["--seed", "9"]),
    ("json", &[], &[], &["--json"]),
];

#[test]
fn every_flag_shows_in_the_configuration() {
    let config = |args: &[&str]| -> Value {
        let mut all = vec!["check-head"];
        for (flag, value) in [
            ("--model", "@tt"),
            ("--draft", "@e3"),
            ("--prompts", "@requests.jsonl"),
        ] {
            if !args.contains(&flag) {
                all.extend([flag, value]);
            }
        }
        let ran = eyrie(&[&all[..], args, &["--print-config"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        serde_json::from_str(&ran.out).expect("the configuration is JSON")
    };
    for (flag, base, one, two) in CASES {
        let (one, two) = (
            config(&[*base, one].concat()),
            config(&[*base, two].concat()),
        );
        assert_ne!(one[flag], two[flag], "--{flag}");
    }
    assert_eq!(config(&["--device", "cpu"])["device"], "cpu");
    let command = eyrie::cli::Cli::command();
    let command = command.find_subcommand("check-head").expect("the command");
    let flags = command.get_arguments().map(|arg| arg.get_id().as_str());
    let mut flags: Vec<&str> = flags
        .filter(|flag| !["print_config", "help", "device"].contains(flag))
        .collect();
    let mut tested: Vec<&str> = CASES.iter().map(|case| case.0).collect();
    flags.sort_unstable();
    tested.sort_unstable();
    assert_eq!(flags, tested);
}
