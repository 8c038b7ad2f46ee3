//! What `eyrie bench` keeps of runs that end early, and what it says of itself.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::{
    bench::{bench, on_tt},
    eyrie, file,
};

/// Two turns, the second of which is longer by what is answered to the first.
const TALK: &str = "{\"id\": \"talk\", \"turns\": [\"the cat\", \"and then the dog\"]}\n";

/// Tokens of an answer of 40 that need a place: all but the last.
const LAST: u64 = 39;

const NGRAM: [&str; 8] = [
    "--drafters",
    "ngram",
    "--max-tokens",
    "40",
    "--ignore-eos",
    "--repeats",
    "2",
    "--json",
];

/// A turn that fits behind no answer is refused before anything runs; the others are asked.
#[test]
fn a_turn_that_cannot_fit_is_refused_before_anything_runs() {
    let long = format!(
        "{{\"id\": \"long\", \"turns\": [\"the\", \"{}\"]}}",
        "the cat ".repeat(400)
    );
    let (ran, result) = bench(&file("tt"), &long, &["--drafters", "ngram"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    for part in ["error: --prompts: long turn 2", "prompt of"] {
        assert!(ran.err.contains(part), "{part} in {}", ran.err);
    }
    assert!(result.is_null());
}

/// Of two places the second has a turn whose answer does not fit: the first is kept.
#[test]
fn an_error_keeps_what_was_finished() {
    let all = on_tt(TALK, &[&NGRAM[..], &["--temperature", "0,1"]].concat());
    let asked = |at: f64| -> u64 {
        let runs = all["raw"]["runs"].as_array().expect("runs");
        let here = runs.iter().filter(|run| run["temperature"] == at);
        let turns = here.flat_map(|run| run["run"]["requests"].as_array().expect("requests"));
        let longest = turns
            .filter_map(|turn| turn["prompt_tokens"].as_u64())
            .max();
        longest.expect("turns")
    };
    let [cold, warm] = [asked(0.0), asked(1.0)];
    assert_ne!(cold, warm, "answers of one length; another seed has others");
    let (order, room) = if cold < warm {
        ("0,1", warm + LAST - 1)
    } else {
        ("1,0", cold + LAST - 1)
    };
    let room = room.to_string();
    let (ran, result) = bench(
        &file("tt"),
        TALK,
        &[&NGRAM[..], &["--temperature", order, "--kv-tokens", &room]].concat(),
    );
    assert_eq!(ran.code, 1, "{}", ran.err);
    for part in [
        "note: 2 of 4 repeats of all arms are in ",
        "\"complete\": false",
        "error: none at concurrency 1, temperature ",
        "request talk turn 2: kv-tokens",
    ] {
        assert!(ran.err.contains(part), "{part} in {}", ran.err);
    }
    assert_eq!(result["complete"], false);
    assert!(
        result["ended_by"]
            .as_str()
            .is_some_and(|words| words.contains("talk turn 2"))
    );
    let cells = result["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 1);
    assert_eq!(
        cells[0]["arms"][1]["repeats"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(result["raw"]["runs"].as_array().map(Vec::len), Some(4));
    let summary: Value = serde_json::from_str(&ran.out).expect("one object");
    assert_eq!(summary["complete"], false);
}

/// With nothing finished there is nothing to keep, and an older result stays.
#[test]
fn an_error_before_the_first_repeat_writes_nothing() {
    let dir = TempDir::new().expect("a folder");
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("talk.jsonl"), TALK).expect("a file");
    fs::write(at("result.json"), "older").expect("a file");
    let (prompts, out) = (at("talk.jsonl"), at(""));
    let args = [
        "bench",
        "--model",
        "@tt",
        "--prompts",
        &prompts,
        "--out",
        &out,
        "--kv-tokens",
        "75",
    ];
    let ran = eyrie(&[&args[..], &NGRAM[..]].concat());
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("request talk turn 2"), "{}", ran.err);
    assert!(ran.out.is_empty());
    assert_eq!(
        fs::read_to_string(at("result.json")).expect("a file"),
        "older"
    );
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 2);
}

/// The first Ctrl-C ends the runs, and what every arm has done is kept.
#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_was_finished() {
    use std::{
        io::{BufRead, BufReader, Read},
        process::{Command, Stdio},
        thread,
        time::Duration,
    };

    let dir = TempDir::new().expect("a folder");
    let prompts = dir.path().join("talk.jsonl");
    fs::write(&prompts, TALK).expect("a file");
    // However slow the machine is, one of these waits is long enough for a repeat.
    for wait in (0..12).map(|doublings| Duration::from_millis(50 << doublings)) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_eyrie"))
            .args([
                "bench",
                "--drafters",
                "ngram",
                "--max-tokens",
                "9",
                "--repeats",
                "60000",
            ])
            .arg("--model")
            .arg(file("tt"))
            .arg("--prompts")
            .arg(&prompts)
            .arg("--out")
            .arg(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut told = BufReader::new(child.stderr.take().expect("stderr"));
        let mut line = String::new();
        told.read_line(&mut line).expect("text");
        assert!(line.starts_with("warning: "), "{line}");
        thread::sleep(wait);
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(sent.expect("kill").success());
        let mut rest = String::new();
        told.read_to_string(&mut rest).expect("text");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1), "{rest}");
        assert!(rest.contains("stopped"), "{rest}");
        let Ok(text) = fs::read_to_string(dir.path().join("result.json")) else {
            continue;
        };
        assert!(rest.contains("repeats of all arms are in "), "{rest}");
        let result: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(result["complete"], false);
        let arms = result["cells"][0]["arms"].as_array().expect("arms");
        let repeats = |arm: &Value| arm["repeats"].as_array().map(Vec::len);
        assert!(repeats(&arms[0]) > Some(0));
        assert_eq!(repeats(&arms[0]), repeats(&arms[1]));
        let table = String::from_utf8(output.stdout).expect("text");
        assert!(
            table.contains("* not complete, only the repeats that every arm has: "),
            "{table}"
        );
        return;
    }
    panic!("no repeat in three minutes");
}

/// With answers of one token no round is run: there is no such number, and it is not 0.
#[test]
fn without_rounds_there_is_no_rate_of_them() {
    let args = ["--drafters", "ngram", "--max-tokens", "1", "--repeats", "2"];
    let (ran, result) = bench(&file("tt"), TALK, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for arm in result["cells"][0]["arms"].as_array().expect("arms") {
        for key in [
            "round_tokens_per_s",
            "round_speedup",
            "tokens_per_pass",
            "tpot_s",
        ] {
            assert!(arm[key].is_null(), "{key} {arm}");
        }
        assert!(arm["tokens_per_s"].as_f64() > Some(0.0), "{arm}");
    }
    let row = ran.out.lines().find(|line| line.starts_with("| none |"));
    let cells: Vec<_> = row.expect("a row").split('|').map(str::trim).collect();
    assert_eq!((cells[3], cells[4], cells[5]), ("-", "-", "-"));
    assert!(
        ran.out
            .contains(", 2 repeats, warm-up 1, at most 1 token\n"),
        "{}",
        ran.out
    );
}

/// The table and `--help` say what the heads stand for; passes are those that sequences share.
#[test]
fn heads_are_spelled_out_and_a_shared_pass_is_one() {
    let help = eyrie(&["bench", "--help"]).out;
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let many: String = (0..4)
        .map(|i| format!("{{\"prompt_ids\": [{i}, 5, 9]}}\n"))
        .collect();
    let args = [
        "--drafters",
        "ngram",
        "--concurrency",
        "4",
        "--max-tokens",
        "9",
        "--repeats",
        "1",
        "--ignore-eos",
    ];
    let (ran, result) = bench(&file("tt"), &many, &args);
    for text in [&help, &ran.out] {
        for part in [
            "TTFT: time to the first token.",
            "TPOT: time per output token after the first delivery.",
            "gap: time between deliveries",
        ] {
            assert!(words(text).contains(part), "{part} in {text}");
        }
    }
    let plain = &result["cells"][0]["arms"][0];
    assert!(
        (plain["acceptance"]["tokens_per_round"]
            .as_f64()
            .expect("a rate")
            - 1.0)
            .abs()
            < 1e-9
    );
    assert!(plain["tokens_per_pass"].as_f64() > Some(2.0), "{plain}");
}

/// What is hashed is what was read.
#[test]
fn prompts_are_known_by_the_bytes_that_were_read() {
    let result = on_tt(
        "{\"prompt_ids\": [1]}",
        &["--drafters", "ngram", "--max-tokens", "2", "--repeats", "1"],
    );
    let known = &result["files"]["prompts"][0];
    assert_eq!(known["bytes"], 19);
    let hash = "627f3771ac3d627e2ac783c9c8d50a11a36cc139a4da9c4ea6601c7bff7ccbce";
    assert_eq!(known["sha256"], hash);
    assert!(result["provenance"]["commit"].is_string());
}
