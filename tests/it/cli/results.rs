//! Results of `generate`: their JSON, the stream, traces, choices.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ran, generate, on_tt};

const KEYS: [&str; 12] = [
    "id",
    "choice",
    "tokens",
    "text",
    "finish_reason",
    "error",
    "seed",
    "logprobs",
    "rounds",
    "usage",
    "timing_s",
    "config",
];

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// What holds for every result.
pub(super) fn consistent(result: &Value) {
    let keys: Vec<_> = result
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, KEYS);
    let tokens = result["tokens"].as_array().unwrap().len() as u64;
    assert_eq!(number(&result["usage"]["completion_tokens"]), tokens);
    let mut emitted = 0;
    for round in result["rounds"].as_array().unwrap() {
        let [d, a, e] = ["drafted", "accepted", "emitted"].map(|key| number(&round[key]));
        assert!(a <= d && a <= e && e <= a + 1, "{round}");
        emitted += e;
    }
    if tokens > 0 {
        assert_eq!(emitted + 1, tokens, "the first token is the prefill's");
    } else {
        assert_eq!(emitted, 0);
    }
    let times = result["timing_s"].as_object().unwrap();
    let names: Vec<_> = times.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "prefill", "draft", "verify", "accept", "commit", "other", "total"
        ]
    );
    assert!(
        times.values().all(|time| time.as_f64().unwrap() >= 0.0),
        "{times:?}"
    );
    if !result["logprobs"].is_null() {
        let ids = result["logprobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| &entry["id"]);
        assert!(ids.eq(result["tokens"].as_array().unwrap()));
    }
}

#[test]
fn a_result_has_the_contracts_shape() {
    let args = ["--prompt", "the cat", "--max-tokens", "24", "--seed", "5"];
    for drafter in [
        &[][..],
        &["--drafter", "ngram"],
        &["--draft", "@td"],
        &["--draft", "@tt"],
    ] {
        let ran = on_tt(&[&args, drafter].concat());
        let result = ran.result();
        consistent(&result);
        assert_eq!(ran.err, "");
        assert_eq!(result["id"], "1");
        assert_eq!(result["choice"], 0);
        assert_eq!(result["seed"], 5);
        assert_eq!(result["error"], Value::Null);
        assert_eq!(result["config"]["request"]["max_tokens"], 24);
        assert!(["stop", "length"].contains(&result["finish_reason"].as_str().unwrap()));
        let drafted: u64 = result["rounds"]
            .as_array()
            .unwrap()
            .iter()
            .map(|round| number(&round["drafted"]))
            .sum();
        if !drafter.contains(&"ngram") {
            assert_eq!(drafted > 0, !drafter.is_empty(), "{drafter:?}");
        }
    }
}

#[test]
fn drafts_change_no_token() {
    for t in ["0", "1"] {
        let args = [
            "--prompt",
            "the cat",
            "--max-tokens",
            "32",
            "--ignore-eos",
            "--seed",
            "11",
            "--temperature",
            t,
        ];
        let base = on_tt(&args).result();
        assert_eq!(base["usage"]["completion_tokens"], 32);
        for drafter in [
            &["--drafter", "ngram"][..],
            &["--draft", "@td", "--depth", "7"],
            &["--draft", "@td", "--pick", "greedy"],
            &["--draft", "@tt", "--depth", "3"],
            &["--draft", "@td", "--tree", "4x5x24"],
            &["--draft", "@td", "--tree", "3x2x6", "--pick", "greedy"],
            &["--draft", "@script.json"],
        ] {
            let result = on_tt(&[&args, drafter].concat()).result();
            assert_eq!(
                result["tokens"], base["tokens"],
                "{drafter:?} at temperature {t}"
            );
            assert_eq!(result["text"], base["text"]);
        }
        let own = on_tt(&[&args[..], &["--draft", "@tt", "--depth", "3"]].concat()).result();
        let rounds = own["rounds"].as_array().unwrap();
        assert!(
            rounds
                .iter()
                .all(|round| round["accepted"] == round["drafted"]),
            "{rounds:?}"
        );
        assert_eq!(rounds.len(), 8, "31 tokens after the first, 4 a round");
    }
}

/// The draft model's cache has room for trees beside the tokens that `--kv-tokens` speaks of.
#[test]
fn trees_have_their_own_room() {
    let args = [
        "--prompt-ids",
        "1,2,3",
        "--max-tokens",
        "32",
        "--ignore-eos",
    ];
    let run = |more: &[&str]| on_tt(&[&args[..], more].concat()).result();
    let base = run(&[]);
    let small = ["--max-batch", "1", "--kv-tokens", "35", "--draft", "@tt"];
    let grown = run(&[&small[..], &["--tree", "4x5x24"]].concat());
    assert_eq!(grown["tokens"], base["tokens"]);
    assert_eq!(
        (&grown["config"]["tree"], &grown["config"]["depth"]),
        (&json!("4x5x24"), &json!(5))
    );
    let rounds = grown["rounds"].as_array().unwrap();
    let (last, before) = rounds.split_last().unwrap();
    assert!(
        before.iter().all(|round| number(&round["drafted"]) > 0),
        "{rounds:?}"
    );
    assert_eq!(rounds[0]["drafted"], 24);
    assert!(number(&last["emitted"]) > 0);
}

#[test]
fn what_streams_is_the_text_of_the_result() {
    let args = [
        "--model",
        "@tt",
        "--prompt",
        "the cat",
        "--max-tokens",
        "40",
        "--seed",
        "3",
        "--temperature",
        "1",
    ];
    let text = generate(&[&args[..], &["--json"]].concat()).result()["text"].clone();
    let text = text.as_str().unwrap();
    assert!(!text.is_empty());
    let ran = generate(&args);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, ""),
        "nothing on stderr when piped"
    );
    assert_eq!(ran.out.trim_end_matches('\n'), text.trim_end_matches('\n'));
    assert!(ran.out.ends_with('\n'));
}

#[test]
fn a_model_without_a_tokenizer_works_with_ids() {
    let args = [
        "--model",
        "@bare",
        "--prompt-ids",
        "1,2,3",
        "--max-tokens",
        "5",
    ];
    let result = generate(&[&args[..], &["--json"]].concat()).result();
    consistent(&result);
    assert_eq!(result["text"], Value::Null);
    assert_eq!(
        result["usage"],
        json!({"prompt_tokens": 3, "completion_tokens": 5})
    );
    let ids: Vec<_> = result["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    assert_eq!(generate(&args).out, format!("{}\n", ids.join(" ")));

    let refused = generate(&["--model", "@bare", "--prompt", "x", "--json"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.starts_with("error: request 1: prompt: ") && refused.err.contains("prompt_ids")
    );
    let record = &refused.lines()[0];
    consistent(record);
    assert_eq!(record["finish_reason"], "error");
    assert_eq!(record["seed"], Value::Null);
}

#[test]
fn requests_that_this_model_cannot_serve_are_results_of_their_own() {
    let long = vec!["5"; 257].join(",");
    for (args, part) in [
        (&["--prompt-ids", "64"][..], "prompt_ids 64"),
        (&["--prompt-ids", &long], "257"),
        (&["--prompt-ids", "1", "--stop-id", "99"], "stop_id 99"),
        (
            &["--prompt-ids", "1", "--logit-bias", "99=1"],
            "logit_bias 99",
        ),
        (&["--prompt", ""], "prompt"),
    ] {
        let ran = on_tt(args);
        assert_eq!(ran.code, 1, "{args:?}");
        let record = &ran.lines()[0];
        consistent(record);
        assert_eq!(record["finish_reason"], "error");
        assert!(record["error"].as_str().unwrap().contains(part), "{record}");
        assert!(
            ran.err.starts_with("error: request 1: ") && ran.err.contains(part),
            "{}",
            ran.err
        );
    }
    let longest = vec!["5"; 256].join(",");
    let result = on_tt(&["--prompt-ids", &longest, "--ignore-eos"]).result();
    assert_eq!(
        result["usage"]["completion_tokens"], 1,
        "a prompt of the whole context has one token"
    );
    assert_eq!(result["finish_reason"], "length");
}

#[test]
fn case_15_temperatures() {
    let at = |t| {
        on_tt(&[
            "--prompt",
            "the",
            "--max-tokens",
            "16",
            "--seed",
            "9",
            "--temperature",
            t,
        ])
    };
    let greedy = at("0").result();
    assert_eq!(at("1e-9").result()["tokens"], greedy["tokens"]);
    consistent(&at("1e-4").result());
    assert_ne!(at("1.3").result()["tokens"], greedy["tokens"]);
}

#[test]
fn case_21_logprobs_leave_the_drafts_alone() {
    let args = [
        "--prompt",
        "the cat",
        "--max-tokens",
        "20",
        "--temperature",
        "0.7",
        "--seed",
        "4",
        "--draft",
        "@tt",
    ];
    let plain = on_tt(&args).result();
    let result = on_tt(&[&args[..], &["--logprobs", "3"]].concat()).result();
    consistent(&result);
    assert_eq!(plain["rounds"], result["rounds"]);
    assert_eq!(plain["tokens"], result["tokens"]);
    assert_eq!(plain["logprobs"], Value::Null);
    for entry in result["logprobs"].as_array().unwrap() {
        let top = entry["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        assert!(top[0][1].as_f64() >= top[1][1].as_f64());
    }
}

#[test]
fn case_22_prompt_logprobs_are_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let file = super::requests_file(dir.path(), &[r#"{"prompt":"the","prompt_logprobs":3}"#]);
    let ran = on_tt(&["--requests", &file]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.lines()[0]["error"]
            .as_str()
            .unwrap()
            .contains("prompt_logprobs")
    );
}

#[test]
fn case_23_each_choice_is_replayed_by_its_seed() {
    let args = [
        "--prompt",
        "the cat",
        "--max-tokens",
        "12",
        "--temperature",
        "1",
        "--draft",
        "@td",
    ];
    let ran = on_tt(&[&args[..], &["--n", "4", "--seed", "77"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let choices = ran.lines();
    assert_eq!(choices.len(), 4);
    assert_eq!(choices[0]["seed"], 77);
    for (j, choice) in choices.iter().enumerate() {
        consistent(choice);
        assert_eq!(choice["choice"], j);
        let seed = choice["seed"].to_string();
        let alone = on_tt(&[&args[..], &["--seed", &seed]].concat()).result();
        assert_eq!(alone["tokens"], choice["tokens"]);
    }
    let mut outputs: Vec<_> = choices
        .iter()
        .map(|choice| choice["tokens"].to_string())
        .collect();
    outputs.sort();
    outputs.dedup();
    assert!(
        outputs.len() > 1,
        "four choices at temperature 1 are not all equal"
    );
}

#[test]
fn an_unseeded_request_reports_a_seed_that_replays_it() {
    let args = [
        "--prompt",
        "the cat",
        "--max-tokens",
        "12",
        "--temperature",
        "1",
    ];
    let first = on_tt(&args).result();
    let seed = number(&first["seed"]);
    assert!(seed < 1 << 53);
    assert_eq!(first["config"]["request"]["seed"], seed);
    let again = on_tt(&[&args[..], &["--seed", &seed.to_string()]].concat()).result();
    assert_eq!(again["tokens"], first["tokens"]);
    assert_ne!(number(&on_tt(&args).result()["seed"]), seed);
}

fn traced(args: &[&str]) -> (Ran, Vec<Value>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("trace.jsonl").display().to_string();
    let ran = on_tt(&[args, &["--trace", &path]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (ran, lines)
}

#[test]
fn a_trace_says_what_happened_and_can_be_replayed() {
    let args = [
        "--prompt",
        "the cat",
        "--max-tokens",
        "24",
        "--temperature",
        "0.7",
        "--seed",
        "8",
        "--ignore-eos",
    ];
    let (ran, trace) = traced(&[&args[..], &["--draft", "@td", "--depth", "5"]].concat());
    let result = ran.result();
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(trace.len(), rounds.len());
    let prompt = number(&result["usage"]["prompt_tokens"]);
    let mut position = prompt;
    for ((i, line), round) in trace.iter().enumerate().zip(rounds) {
        let keys: Vec<_> = line
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let expected = [
            "request", "choice", "round", "position", "drafted", "parents", "accepted", "next",
            "ms",
        ];
        assert_eq!(keys, expected);
        assert_eq!(
            (&line["request"], &line["choice"], &line["round"]),
            (&json!("1"), &json!(0), &json!(i))
        );
        assert_eq!(number(&line["position"]), position, "{line}");
        position += number(&round["emitted"]);
        let drafted = line["drafted"].as_array().unwrap().len();
        assert_eq!(drafted as u64, number(&round["drafted"]));
        let chain: Vec<Value> = (0..drafted).map(|i| json!(i as i64 - 1)).collect();
        assert_eq!(line["parents"], Value::Array(chain));
        assert_eq!(line["accepted"], round["accepted"]);
        assert!(
            ["draft", "verify", "accept", "commit"]
                .iter()
                .all(|stage| line["ms"][stage].is_f64())
        );
    }

    let dir = TempDir::new().unwrap();
    let script = dir.path().join("script.json");
    let lists: Vec<&Value> = trace.iter().map(|line| &line["drafted"]).collect();
    std::fs::write(&script, json!(lists).to_string()).unwrap();
    let script = script.display().to_string();
    let again = on_tt(&[&args[..], &["--draft", &script, "--depth", "5"]].concat()).result();
    assert_eq!(again["config"]["drafter"], "script");
    assert_eq!(again["tokens"], result["tokens"]);
    assert_eq!(again["rounds"], result["rounds"]);
}

#[test]
fn plain_decoding_has_rounds_without_drafts() {
    let (ran, trace) = traced(&["--prompt", "the", "--max-tokens", "6", "--ignore-eos"]);
    let plain = json!({"drafted": 0, "accepted": 0, "emitted": 1});
    assert_eq!(
        ran.result()["rounds"],
        json!([plain, plain, plain, plain, plain])
    );
    assert_eq!(trace.len(), 5);
}

#[test]
fn a_stop_text_is_cut_from_the_text_and_stays_in_the_tokens() {
    let args = [
        "--prompt",
        "the cat",
        "--max-tokens",
        "40",
        "--ignore-eos",
        "--temperature",
        "1",
        "--seed",
        "2",
    ];
    let whole = on_tt(&args).result();
    let text = whole["text"].as_str().unwrap();
    let stop: String = text.chars().skip(6).take(3).collect();
    let cut = &text[..text.find(&stop).unwrap()];
    for drafter in [&[][..], &["--draft", "@tt", "--depth", "6"]] {
        let result = on_tt(&[&args, drafter, &["--stop", &stop]].concat()).result();
        consistent(&result);
        assert_eq!(result["text"], cut);
        assert_eq!(result["finish_reason"], "stop");
        let tokens = result["tokens"].as_array().unwrap();
        assert!(whole["tokens"].as_array().unwrap().starts_with(tokens));
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_eyrie"))
        .args([
            "generate",
            "--prompt",
            "the",
            "--max-tokens",
            "200",
            "--ignore-eos",
            "--model",
        ])
        .arg(super::file("tt"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(
        (
            ended.status.code(),
            String::from_utf8_lossy(&ended.stderr).as_ref()
        ),
        (Some(0), "")
    );
}
