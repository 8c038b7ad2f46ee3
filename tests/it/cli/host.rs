//! `--host-semantics`: parameters and stop texts as mistral.rs has them.

use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, on_tt, requests_file, results::consistent};

const ARGS: [&str; 8] = [
    "--prompt",
    "the cat",
    "--ignore-eos",
    "--temperature",
    "1",
    "--seed",
    "2",
    "--host-semantics",
];

fn run(more: &[&str]) -> Value {
    let result = on_tt(&[&ARGS, more].concat()).result();
    consistent(&result);
    result
}

/// The token after the one that completed the stop text ends the choice and is counted; the text is cut.
/// On the last allowed token it is not.
#[test]
fn a_stop_text_is_seen_one_token_late() {
    let whole = run(&["--max-tokens", "40"]);
    let (text, ids) = (whole["text"].as_str().unwrap(), &whole["tokens"]);
    let ids = ids.as_array().unwrap();
    let stop: String = text.chars().skip(6).take(3).collect();
    let cut = &text[..text.find(&stop).unwrap()];
    let early = on_tt(&[&ARGS[..7], &["--max-tokens", "40", "--stop", &stop]].concat()).result();
    let early = early["tokens"].as_array().unwrap().len();
    for drafter in [
        &[][..],
        &["--draft", "@tt", "--depth", "6"],
        &["--drafter", "ngram"],
    ] {
        let stopped = |max: usize| {
            run(&[
                drafter,
                &["--max-tokens", &max.to_string(), "--stop", &stop],
            ]
            .concat())
        };
        let result = stopped(40);
        assert_eq!(result["text"], cut);
        assert_eq!(result["finish_reason"], "stop");
        assert_eq!(result["tokens"].as_array().unwrap(), &ids[..=early]);
        assert_eq!(result["usage"]["completion_tokens"], early + 1);
        assert_eq!(result["config"]["request"]["host_semantics"], true);
        for last in [early, early + 1] {
            let result = stopped(last);
            assert_eq!(result["finish_reason"], "length");
            assert_eq!(result["tokens"].as_array().unwrap(), &ids[..last]);
            assert!(result["text"].as_str().unwrap().contains(&stop));
        }
        // A stop id there goes before both, and cuts no text.
        let id = ids[early].to_string();
        let more = ["--max-tokens", "40", "--stop", &stop, "--stop-id", &id];
        let result = run(&[drafter, &more].concat());
        if !ids[..early].contains(&ids[early]) {
            assert_eq!(result["finish_reason"], "stop");
            assert_eq!(result["tokens"].as_array().unwrap(), &ids[..=early]);
            assert!(result["text"].as_str().unwrap().ends_with(&stop));
        }
    }
}

/// Penalties of the prompt's tokens change the tokens, and drafts do not.
#[test]
fn penalties_are_the_hosts() {
    let penalties = ["--max-tokens", "30", "--frequency-penalty", "2"];
    let host = run(&penalties);
    let own = on_tt(&[&ARGS[..7], &penalties].concat()).result();
    assert_ne!(host["tokens"], own["tokens"]);
    let drafted = run(&[&penalties[..], &["--draft", "@tt"]].concat());
    assert_eq!(host["tokens"], drafted["tokens"]);
}

#[test]
fn a_line_has_the_hosts_ranges_if_it_says_so() {
    let dir = TempDir::new().unwrap();
    let line =
        |more: &str| format!("{{\"prompt\":\"the\",\"max_tokens\":3,\"temperature\":-1{more}}}");
    let lines = [
        line(",\"host_semantics\":true"),
        line(""),
        line(",\"host_semantics\":false"),
    ];
    let file = requests_file(dir.path(), &lines.each_ref().map(String::as_str));
    let ran: Ran = on_tt(&["--requests", &file]);
    assert_eq!(ran.code, 1);
    let reasons: Vec<_> = ran.lines().iter().map(|r| r["error"].clone()).collect();
    assert_eq!(reasons[0], Value::Null);
    for reason in &reasons[1..] {
        assert_eq!(reason, "temperature -1: must lie in 0..=100");
    }
}
