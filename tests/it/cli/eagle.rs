//! Drafting with an EAGLE head.

use serde_json::json;
use tempfile::TempDir;

use super::{Ran, on_tt};
use crate::eagle::heads::{e3, random};

fn tokens(ran: &Ran) -> serde_json::Value {
    ran.result()["tokens"].clone()
}

#[test]
fn a_head_drafts_and_the_text_is_the_plain_one() {
    let prompt = ["--prompt", "the cat sat", "--max-tokens", "30"];
    for temperature in ["0", "1"] {
        let request = [&prompt[..], &["--temperature", temperature, "--seed", "4"]].concat();
        let plain = on_tt(&request);
        for more in [
            &["--draft", "@e3"][..],
            &["--drafter", "eagle", "--draft", "@e3", "--depth", "7"],
            &["--draft", "@e3", "--tree", "4x5x24"],
            &["--draft", "@e3", "--kv-tokens", "80", "--tree", "8x3x16"],
            &["--draft", "@e3", "--head-theta", "50"],
            &["--draft", "@e3", "--head-context", "20"],
            &["--draft", "@e3-taps", "--taps-convention", "output"],
        ] {
            let ran = on_tt(&[&request, more].concat());
            assert_eq!(tokens(&ran), tokens(&plain), "{more:?}");
            let result = ran.result();
            assert_eq!(result["config"]["drafter"], "eagle");
            let rounds = result["rounds"].as_array().expect("rounds");
            let drafted = rounds.iter().filter_map(|round| round["drafted"].as_u64());
            assert!(drafted.sum::<u64>() > 0, "{more:?}");
        }
    }
}

/// The same with `ngram` before it: in some rounds the one drafts, in some the other.
#[test]
fn a_head_behind_ngram_drafts_and_the_text_is_the_plain_one() {
    let prompt = [
        "--prompt",
        "the cat sat on the cat sat",
        "--max-tokens",
        "30",
    ];
    let behind = ["--drafter", "ngram+eagle", "--draft", "@e3"];
    for temperature in ["0", "1"] {
        let request = [&prompt[..], &["--temperature", temperature, "--seed", "4"]].concat();
        let plain = on_tt(&request);
        let rounds = |more: &[&str]| {
            let ran = on_tt(&[&request, more].concat());
            assert_eq!(tokens(&ran), tokens(&plain), "{more:?}");
            let result = ran.result();
            let drafted = result["rounds"].as_array().expect("rounds").iter();
            let drafted = drafted.filter_map(|round| round["drafted"].as_u64());
            (result["config"]["drafter"].clone(), drafted.sum::<u64>())
        };
        let (name, both) = rounds(&behind);
        assert_eq!(name, "ngram+eagle");
        let (_, ngram) = rounds(&["--drafter", "ngram"]);
        assert!(both > ngram, "{both} {ngram}");
        rounds(&[&behind[..], &["--tree", "4x5x24"]].concat());
        rounds(&[&behind[..], &["--head-theta", "50"]].concat());
    }
}

#[test]
fn what_a_head_leaves_open_or_does_not_fit_is_said_in_a_line() {
    let prompt = ["--prompt", "the"];
    for (more, code, parts) in [
        (
            &["--draft", "@e3-taps"][..],
            1,
            &["e3-taps", "--taps-convention input"][..],
        ),
        (&["--drafter", "eagle"], 2, &["--draft: missing"]),
        (&["--drafter", "ngram+eagle"], 2, &["--draft: missing"]),
        (
            &["--drafter", "eagle", "--draft", "@none"],
            1,
            &["--draft", "no such file"],
        ),
        (&["--drafter", "eagle", "--draft", "@td"], 1, &["td"]),
        (
            &["--draft", "@td", "--head-theta", "50"],
            2,
            &["--head-theta: needs --drafter eagle"],
        ),
        (
            &["--draft", "@e3", "--head-theta", "0.5"],
            2,
            &["--head-theta", "at least 1"],
        ),
        (
            &["--draft", "@e3", "--head-context", "0"],
            2,
            &["--head-context"],
        ),
        (
            &["--draft", "@e3", "--taps-convention", "input"],
            1,
            &["--taps-convention is input", "lists no taps"],
        ),
        (
            &["--draft", "@e3", "--tree", "4x5x24", "--rule", "block"],
            2,
            &["--tree: --rule block"],
        ),
    ] {
        let ran = on_tt(&[&prompt[..], more].concat());
        assert_eq!(ran.code, code, "{more:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{more:?}: {}", ran.err);
        }
    }
}

#[test]
fn a_head_of_no_numbers_drafts_nothing_and_says_so_once() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut broken = random(e3(), 12);
    let weights = broken.tensors.get_mut("norm.weight").expect("the norm");
    weights.fill(f32::NAN);
    broken.write_dir(dir.path(), &json!({}));
    let path = dir.path().display().to_string();
    let request = [
        "--prompt",
        "the cat sat",
        "--temperature",
        "1",
        "--seed",
        "4",
    ];
    let plain = on_tt(&request);
    for more in [&[][..], &["--tree", "4x5x24"]] {
        let ran = on_tt(&[&request[..], &["--draft", &path], more].concat());
        assert_eq!(tokens(&ran), tokens(&plain));
        let said = ran.err.lines().filter(|line| line.contains("not finite"));
        assert_eq!(said.count(), 1, "{}", ran.err);
    }
}

#[test]
#[cfg(unix)]
fn a_draft_that_would_be_waited_for_is_refused() {
    let ran = on_tt(&["--prompt", "the", "--draft", "/dev/zero"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("not a regular file"), "{}", ran.err);
}

#[test]
fn drafts_leave_room_for_tokens() {
    let wide = [
        "--draft",
        "@tt",
        "--tree",
        "64x64x1024",
        "--max-batch",
        "600",
    ];
    let ran = on_tt(&[&wide[..], &["--prompt", "the", "--print-config"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let config: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(config["kv_tokens"], 600 * 256);
}
