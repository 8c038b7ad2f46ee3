//! `eyrie bench`. Nothing here asserts a time or a speed-up.

use std::{fs, path::Path};

use clap::CommandFactory;
use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, eyrie, file};

/// Two conversations, one of two turns, and a prompt of tokens.
const PROMPTS: &str = r#"{"id": "a", "domain": "x", "turns": ["the cat sat on the", "and then?"]}

{"id": "b", "prompt": "the dog ran and the dog ran and the dog", "category": "free"}
{"prompt_ids": [3, 7, 3, 7, 3, 7, 3]}
"#;

/// Runs the command on `model` with these prompts; what came and result.json, if it is there.
pub(crate) fn bench(model: &Path, prompts: &str, args: &[&str]) -> (Ran, Value) {
    let dir = TempDir::new().expect("a temporary folder");
    let path = dir.path().join("talk.jsonl");
    fs::write(&path, prompts).expect("a file");
    let out = dir.path().join("made/out");
    let [model, path, to] = [model, &path, &out].map(|path| path.display().to_string());
    let base = [
        "bench",
        "--model",
        &model,
        "--prompts",
        &path,
        "--out",
        &to,
        "--threads",
        "1",
    ];
    let ran = eyrie(&[&base, args].concat());
    let text = fs::read_to_string(out.join("result.json"));
    let result = text.map_or(Value::Null, |text| {
        serde_json::from_str(&text).expect("result.json is JSON")
    });
    (ran, result)
}

/// The path of a file of these tests behind a drafter's name.
pub(crate) fn with(kind: &str, name: &str) -> String {
    format!("{kind}={}", file(name).display())
}

/// A run that must have gone well.
pub(crate) fn on_tt(prompts: &str, args: &[&str]) -> Value {
    let (ran, result) = bench(&file("tt"), prompts, args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    result
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn every_arm_gives_plain_decodings_tokens_and_the_result_has_it_all() {
    let drafters = [
        "ngram".to_owned(),
        with("model", "td"),
        with("eagle", "e3"),
        with("ngram+eagle", "e3"),
        with("script", "script.json"),
    ];
    let args = [
        "--drafters",
        &drafters.join(","),
        "--depths",
        "1,3",
        "--tree",
        "2x2x4",
        "--concurrency",
        "1,2",
        "--temperature",
        "0,1",
        "--max-tokens",
        "9",
        "--repeats",
        "2",
    ];
    let result = on_tt(PROMPTS, &args);
    let names: Vec<_> = list(&result["config"]["arms"])
        .iter()
        .map(|arm| &arm["name"])
        .collect();
    let expected = "none|ngram depth 1|ngram depth 3|model depth 1|model depth 3|model tree 2x2x4|\
         eagle depth 1|eagle depth 3|eagle tree 2x2x4|ngram+eagle depth 1|ngram+eagle depth 3|\
         ngram+eagle tree 2x2x4|script depth 1|script depth 3";
    assert_eq!(names, expected.split('|').collect::<Vec<_>>());
    let cells = list(&result["cells"]);
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert_eq!(cell["equal_tokens_checked"], true);
        let arms = list(&cell["arms"]);
        assert_eq!(arms.len(), names.len());
        let emitted = |arm: &Value| arm["acceptance"]["emitted"].as_u64().expect("a count");
        for arm in arms {
            assert_eq!(emitted(arm), emitted(&arms[0]), "{arm}");
            assert_eq!(arm["repeats"].as_array().map(Vec::len), Some(2));
            let plain = arm["arm"] == "none";
            assert_eq!(arm["speedup"].is_null(), plain, "{arm}");
            assert_eq!(arm["acceptance"]["mean_acceptance_length"].is_null(), plain);
            for key in ["ttft_s", "latency_s", "tpot_by_request_s"] {
                assert!(
                    arm[key]["p50"].as_f64() <= arm[key]["p99"].as_f64(),
                    "{key} {arm}"
                );
                assert!(arm[key]["p50"].as_f64() > Some(0.0), "{key} {arm}");
            }
            let shares: f64 = (arm["stage_share"].as_object().expect("shares").values())
                .filter_map(Value::as_f64)
                .sum();
            assert!((shares - 1.0).abs() < 1e-6, "{shares}");
            let rows = arm["rows"].as_u64().expect("rows");
            let drafted = arm["acceptance"]["drafted"].as_u64().expect("a count");
            let rounds = arm["acceptance"]["rounds"].as_u64().expect("a count");
            assert_eq!(rows, drafted + rounds, "an anchor and its drafts are rows");
            let domains: Vec<_> = arm["by_domain"]
                .as_object()
                .expect("domains")
                .keys()
                .collect();
            assert_eq!(domains, ["talk", "x"]);
        }
    }
    let requests = list(&result["requests"]);
    assert_eq!(requests.len(), 4 * names.len());
    let ids: Vec<_> = requests[0]["acceptance"]
        .as_object()
        .expect("requests")
        .keys()
        .collect();
    assert_eq!(ids, ["a turn 1", "a turn 2", "b", "talk:4"]);
    let runs = list(&result["raw"]["runs"]);
    assert_eq!(runs.len(), 4 * names.len() * 2);
    for run in runs {
        let requests = list(&run["run"]["requests"]);
        assert_eq!(requests.len(), 4, "all turns are counted");
        for request in requests {
            let sum = |key: &str, at: usize| -> u64 {
                let rows = list(&request[key]).iter();
                rows.filter_map(|row| row[at].as_u64()).sum()
            };
            let tokens = request["completion_tokens"].as_u64().expect("a count");
            assert_eq!(sum("deliveries", 1), tokens);
            assert_eq!(sum("rounds", 3) + 1, tokens);
        }
        let width = result["raw"]["step_columns"].as_array().map(Vec::len);
        let steps = list(&run["run"]["steps"]);
        assert!(
            !steps.is_empty()
                && steps
                    .iter()
                    .all(|step| step.as_array().map(Vec::len) == width)
        );
    }
    for (cell, rest) in list(&result["outputs"]).iter().zip(cells) {
        assert_eq!(cell["temperature"], rest["temperature"]);
        assert_eq!(
            cell["tokens"].as_object().map(serde_json::Map::len),
            Some(4)
        );
    }
    let provenance = &result["provenance"];
    assert_eq!(provenance["command"][1], "bench");
    assert!(provenance["unix_time_s"].as_u64() > Some(0));
    assert!(result["files"]["prompts"][0]["sha256"].is_string());
    assert_eq!(result["complete"], true);
    assert!(
        list(&result["files"]["model"])
            .iter()
            .all(|file| file["bytes"].is_u64())
    );
    assert!(result["bandwidth"]["read_bytes_per_s_before"].as_f64() > Some(0.0));
    // Seven layers of f32 and a head of its own: bytes by the shapes of the fixture, keys and values
    // of 16 outputs in panels of 32.
    let layer = 32 * 32 * 2 + 32 * 32 * 2 + 64 * 32 * 3 + 2 * 32;
    assert_eq!(
        result["bandwidth"]["weight_bytes_per_pass"],
        (7 * layer + 64 * 32 + 32) * 4
    );
}

#[test]
fn the_table_and_the_summary_say_the_same() {
    let args = [
        "--drafters",
        "ngram,none",
        "--max-tokens",
        "6",
        "--repeats",
        "1",
    ];
    let (ran, _) = bench(&file("tt"), PROMPTS, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "# eyrie bench\n",
        "## Concurrency 1, temperature 0\n",
        "| none | ",
        "| ngram depth 4 | ",
        "through the template",
        "accepted / drafting_rounds",
        "GB/s before",
    ] {
        assert!(ran.out.contains(part), "{part:?} in {}", ran.out);
    }
    let (ran, result) = bench(&file("tt"), PROMPTS, &[&args[..], &["--json"]].concat());
    let summary: Value = serde_json::from_str(&ran.out).expect("one object");
    for key in ["config", "cells", "prompts", "warnings", "provenance"] {
        assert_eq!(summary[key], result[key], "{key}");
    }
    for key in ["raw", "outputs", "requests"] {
        assert!(summary[key].is_null() && !result[key].is_null(), "{key}");
    }
}

#[test]
fn the_same_prompts_have_the_same_tokens_in_every_repeat_and_at_every_concurrency() {
    let args = [
        "--drafters",
        "ngram",
        "--temperature",
        "1",
        "--max-tokens",
        "9",
    ];
    let more = ["--concurrency", "1,3", "--repeats", "1", "--raw"];
    let result = on_tt(PROMPTS, &[&args[..], &more[..]].concat());
    let [one, three] = list(&result["outputs"]) else {
        panic!("two cells");
    };
    assert_eq!(one["tokens"], three["tokens"]);
    let other = on_tt(PROMPTS, &[&args[..], &more[..], &["--seed", "1"]].concat());
    assert_ne!(other["outputs"][0]["tokens"], one["tokens"]);
}

#[test]
fn rules_that_keep_the_law_only_are_not_held_to_the_tokens() {
    let model = with("model", "td");
    let args = [
        "--drafters",
        &model,
        "--rule",
        "rejection",
        "--temperature",
        "0,1",
    ];
    let result = on_tt(
        PROMPTS,
        &[&args[..], &["--max-tokens", "9", "--repeats", "1"]].concat(),
    );
    let checked: Vec<_> = list(&result["cells"])
        .iter()
        .map(|cell| &cell["equal_tokens_checked"])
        .collect();
    assert_eq!(checked, [true, false]);
    assert_eq!(result["config"]["arms"][1]["pick"], "drawn");
}

#[test]
fn what_cannot_be_meant_is_refused_in_a_line() {
    let model = with("model", "nowhere");
    let head = with("eagle", "td");
    for (prompts, args, code, parts) in [
        (
            PROMPTS,
            &["--drafters", "lookahead"][..],
            2,
            &["--drafters", "lookahead", "accepted are none, ngram"][..],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram=x"],
            2,
            &["ngram reads no file"],
        ),
        (
            PROMPTS,
            &["--drafters", "model"],
            2,
            &["--drafters", "model=PATH or --draft"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram,ngram"],
            2,
            &["ngram is given twice"],
        ),
        (
            PROMPTS,
            &["--drafters", "none,none"],
            2,
            &["none is given twice"],
        ),
        (
            PROMPTS,
            &["--drafters", &model],
            1,
            &["--drafters model=", "no such file"],
        ),
        (PROMPTS, &["--drafters", &head], 1, &["--drafters eagle="]),
        (
            PROMPTS,
            &["--drafters", "ngram", "--draft", "x"],
            2,
            &["--draft", "without a file"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--depths", "0"],
            2,
            &["--depths", "0"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--depths", "2,65"],
            2,
            &["--depths", "65"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--depths", "2,2"],
            2,
            &["--depths", "given twice"],
        ),
        (
            PROMPTS,
            &["--drafters", "none", "--depths", "2"],
            2,
            &["--depths", "needs a drafter"],
        ),
        (
            PROMPTS,
            &["--drafters", "none", "--pick", "greedy"],
            2,
            &["--pick", "needs a drafter"],
        ),
        (
            PROMPTS,
            &[
                "--drafters",
                "ngram",
                "--pick",
                "greedy",
                "--temperature",
                "1",
            ],
            2,
            &["--pick", "model or eagle"],
        ),
        (
            PROMPTS,
            &["--drafters", "model", "--draft", "@td", "--pick", "greedy"],
            2,
            &["--pick", "--temperature above 0"],
        ),
        (
            PROMPTS,
            &["--drafters", "none", "--rule", "block"],
            2,
            &["--rule", "needs a drafter"],
        ),
        (
            "{\"prompt_ids\": [3]}",
            &["--drafters", "ngram", "--chat"],
            2,
            &["--chat", "all are token ids"],
        ),
        (
            "{\"prompt_ids\": [3]}",
            &["--drafters", "ngram", "--raw"],
            2,
            &["--raw", "all are token ids"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--tree", "2x2x4"],
            2,
            &["--tree", "model, eagle or ngram+eagle"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--head-theta", "3"],
            2,
            &["--head-theta", "eagle"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--allow-tokenizer-mismatch"],
            2,
            &["needs the drafter model"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--temperature", "-1"],
            2,
            &["--temperature", "0..=100"],
        ),
        (
            PROMPTS,
            &[
                "--drafters",
                "ngram",
                "--concurrency",
                "4",
                "--max-batch",
                "2",
            ],
            2,
            &["--max-batch", "2 is less than --concurrency 4"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--repeats", "0"],
            2,
            &["--repeats"],
        ),
        (
            PROMPTS,
            &["--drafters", "ngram", "--chat", "--raw"],
            2,
            &["--raw"],
        ),
        (
            "\n \n",
            &["--drafters", "ngram"],
            2,
            &["--prompts", "has no prompt"],
        ),
        (
            "{\"prompt\": \"a\", \"promt\": 1}",
            &["--drafters", "ngram"],
            1,
            &["line 1", "promt"],
        ),
        (
            "{\"turns\": []}",
            &["--drafters", "ngram"],
            1,
            &["line 1", "one of turns, prompt and prompt_ids"],
        ),
        (
            "{\"id\":\"a\",\"prompt\":\"a\"}\n{\"id\":\"a\",\"prompt\":\"b\"}",
            &["--drafters", "ngram"],
            1,
            &["line 2", "\"a\" is given twice"],
        ),
        (
            "{\"prompt_ids\": [99]}",
            &["--drafters", "ngram"],
            1,
            &["talk:1", "99"],
        ),
        ("not json", &["--drafters", "ngram"], 1, &["line 1"]),
    ] {
        let (ran, result) = bench(&file("tt"), prompts, args);
        assert_eq!(ran.code, code, "{prompts} {args:?}: {}", ran.err);
        let errors = ran.err.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "{args:?}: {}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "{part} in {}", ran.err);
        }
        assert!(result.is_null() && ran.out.is_empty(), "{args:?}");
    }
    let bare = bench(&file("bare"), PROMPTS, &["--drafters", "ngram", "--chat"]).0;
    assert_eq!(bare.code, 2);
    assert!(
        bare.err.contains("--chat: the model has no chat template"),
        "{}",
        bare.err
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_told_before_anything_runs() {
    let args = [
        "bench",
        "--model",
        "@tt",
        "--drafters",
        "ngram",
        "--prompts",
        "@requests.jsonl",
        "--out",
        "@prompt.txt",
    ];
    let ran = eyrie(&args);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("error: --out "), "{}", ran.err);
    assert!(ran.err.contains("is no folder; accepted is"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

/// A flag, where it shows, the other arguments it needs, and two ways to give it.
type Case = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const NGRAM: &[&str] = &["--drafters", "ngram"];
const MODEL: &[&str] = &["--drafters", "model", "--draft", "@td"];
const HEAD: &[&str] = &["--drafters", "eagle", "--draft", "@e3"];

/// All flags but `--print-config`.
const CASES: &[Case] = &[
    (
        "model",
        "/arms/0/model",
        NGRAM,
        &[],
        &["--model", "@tt.gguf"],
    ),
    ("drafters", "/drafters", &[], NGRAM, &["--drafters", "none"]),
    (
        "draft",
        "/drafters",
        &["--drafters", "model"],
        &["--draft", "@td"],
        &["--draft", "@tt"],
    ),
    ("depths", "/arms/1/depth", NGRAM, &[], &["--depths", "5"]),
    ("tree", "/arms/1/tree", MODEL, &[], &["--tree", "2x2x4"]),
    (
        "taps_convention",
        "/arms/1/taps_convention",
        &["--drafters", "eagle", "--draft", "@e3-taps"],
        &["--taps-convention", "input"],
        &["--taps-convention", "output"],
    ),
    (
        "head_theta",
        "/arms/1/head_theta",
        HEAD,
        &[],
        &["--head-theta", "5000"],
    ),
    (
        "head_context",
        "/arms/1/head_context",
        HEAD,
        &[],
        &["--head-context", "100"],
    ),
    (
        "head_norm_output",
        "/arms/1/head_norm_output",
        &["--drafters", "eagle", "--draft", "@e3-norm"],
        &["--head-norm-output", "head"],
        &["--head-norm-output", "feedback"],
    ),
    ("rule", "/rule", MODEL, &[], &["--rule", "block"]),
    (
        "pick",
        "/arms/1/pick",
        MODEL,
        &["--temperature", "1"],
        &["--temperature", "1", "--pick", "greedy"],
    ),
    (
        "concurrency",
        "/concurrency",
        NGRAM,
        &[],
        &["--concurrency", "2,1"],
    ),
    (
        "temperature",
        "/temperature",
        NGRAM,
        &[],
        &["--temperature", "0.5"],
    ),
    (
        "prompts",
        "/prompts",
        NGRAM,
        &[],
        &["--prompts", "@other.jsonl", "@requests.jsonl"],
    ),
    ("take", "/take", NGRAM, &[], &["--take", "2"]),
    ("chat", "/chat", NGRAM, &[], &["--chat"]),
    ("raw", "/chat", NGRAM, &[], &["--raw"]),
    (
        "max_tokens",
        "/max_tokens",
        NGRAM,
        &[],
        &["--max-tokens", "3"],
    ),
    ("ignore_eos", "/ignore_eos", NGRAM, &[], &["--ignore-eos"]),
    ("repeats", "/repeats", NGRAM, &[], &["--repeats", "5"]),
    ("warm_up", "/warm_up", NGRAM, &[], &["--warm-up", "0"]),
    ("seed", "/seed", NGRAM, &[], &["--seed", "9"]),
    ("dtype", "/arms/0/dtype", NGRAM, &[], &["--dtype", "q8_0"]),
    (
        "head_dtype",
        "/arms/0/head_dtype",
        NGRAM,
        &[],
        &["--head-dtype", "f16"],
    ),
    (
        "threads",
        "/arms/0/threads",
        NGRAM,
        &["--threads", "1"],
        &["--threads", "3"],
    ),
    (
        "max_batch",
        "/arms/0/max_batch",
        NGRAM,
        &[],
        &["--max-batch", "3"],
    ),
    (
        "kv_tokens",
        "/arms/0/kv_tokens",
        NGRAM,
        &[],
        &["--kv-tokens", "300"],
    ),
    (
        "prefill_chunk",
        "/arms/0/prefill_chunk",
        NGRAM,
        &[],
        &["--prefill-chunk", "7"],
    ),
    (
        "allow_tokenizer_mismatch",
        "/arms/1/allow_tokenizer_mismatch",
        MODEL,
        &[],
        &["--allow-tokenizer-mismatch"],
    ),
    ("out", "/out", NGRAM, &[], &["--out", "elsewhere"]),
    ("json", "/json", NGRAM, &[], &["--json"]),
];

#[test]
fn every_flag_shows_in_the_configuration() {
    let config = |args: &[&str]| -> Value {
        let mut all = vec!["bench"];
        for (flag, value) in [
            ("--model", "@tt"),
            ("--prompts", "@requests.jsonl"),
            ("--out", "nowhere"),
        ] {
            if !args.contains(&flag) {
                all.extend([flag, value]);
            }
        }
        let ran = eyrie(&[&all[..], args, &["--print-config"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        serde_json::from_str(&ran.out).expect("the configuration is JSON")
    };
    for (flag, at, base, one, two) in CASES {
        let (one, two) = (
            config(&[*base, one].concat()),
            config(&[*base, two].concat()),
        );
        assert!(one.pointer(at).is_some(), "--{flag} at {at}");
        assert_ne!(one.pointer(at), two.pointer(at), "--{flag}");
    }
    let device = config(&["--drafters", "none", "--device", "cpu"]);
    assert_eq!(device["arms"][0]["device"], "cpu");
    let command = eyrie::cli::Cli::command();
    let command = command.find_subcommand("bench").expect("the command");
    let flags = command.get_arguments().map(|arg| arg.get_id().as_str());
    let mut flags: Vec<&str> = flags
        .filter(|flag| !["print_config", "help", "device"].contains(flag))
        .collect();
    let mut tested: Vec<&str> = CASES.iter().map(|case| case.0).collect();
    flags.sort_unstable();
    tested.sort_unstable();
    assert_eq!(flags, tested);
}
