//! Case 17: every flag shows in the resolved configuration, and what cannot be meant is refused.

use std::collections::BTreeSet;

use clap::CommandFactory;
use serde_json::Value;

use super::{Ran, eyrie, generate};

/// A flag, the other arguments it needs, and two ways to give it.
pub(super) type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const PROMPT: &[&str] = &["--prompt", "the"];
const NGRAM: &[&str] = &["--prompt", "the", "--drafter", "ngram"];
const DRAFT: &[&str] = &["--prompt", "the", "--draft", "@td"];
const HEAD: &[&str] = &["--prompt", "the", "--draft", "@e3"];
const FILE: &[&str] = &["--requests", "@requests.jsonl"];

/// All flags of `generate` but `--print-config` itself.
const CASES: &[Case] = &[
    (
        "model",
        PROMPT,
        &["--model", "@tt"],
        &["--model", "@tt.gguf"],
    ),
    ("drafter", PROMPT, &[], &["--drafter", "ngram"]),
    (
        "draft",
        PROMPT,
        &["--draft", "@td"],
        &["--draft", "@script.json"],
    ),
    ("depth", NGRAM, &[], &["--depth", "5"]),
    ("tree", DRAFT, &[], &["--tree", "4x5x24"]),
    (
        "taps_convention",
        &["--prompt", "the", "--draft", "@e3-taps"],
        &["--taps-convention", "input"],
        &["--taps-convention", "output"],
    ),
    ("head_theta", HEAD, &[], &["--head-theta", "5000"]),
    ("head_context", HEAD, &[], &["--head-context", "100"]),
    (
        "head_norm_output",
        &["--prompt", "the", "--draft", "@e3-norm"],
        &["--head-norm-output", "head"],
        &["--head-norm-output", "feedback"],
    ),
    ("rule", DRAFT, &[], &["--rule", "rejection"]),
    ("pick", DRAFT, &[], &["--pick", "greedy"]),
    ("dtype", PROMPT, &[], &["--dtype", "q8_0"]),
    (
        "head_dtype",
        PROMPT,
        &["--head-dtype", "f16"],
        &["--head-dtype", "bf16"],
    ),
    ("threads", PROMPT, &["--threads", "1"], &["--threads", "3"]),
    ("max_batch", PROMPT, &[], &["--max-batch", "3"]),
    ("kv_tokens", PROMPT, &[], &["--kv-tokens", "300"]),
    ("prefill_chunk", PROMPT, &[], &["--prefill-chunk", "7"]),
    (
        "allow_tokenizer_mismatch",
        DRAFT,
        &[],
        &["--allow-tokenizer-mismatch"],
    ),
    ("requests", &[], FILE, &["--requests", "@other.jsonl"]),
    ("concurrency", FILE, &[], &["--concurrency", "2"]),
    ("json", PROMPT, &[], &["--json"]),
    ("trace", PROMPT, &[], &["--trace", "t.jsonl"]),
    (
        "seed",
        PROMPT,
        &["--seed", "0"],
        &["--seed", "18446744073709551615"],
    ),
    ("prompt", &[], PROMPT, &["--prompt", "-a"]),
    (
        "prompt_file",
        &[],
        PROMPT,
        &["--prompt-file", "@prompt.txt"],
    ),
    (
        "prompt_ids",
        &[],
        &["--prompt-ids", "1"],
        &["--prompt-ids", "1,2,63"],
    ),
    ("chat", PROMPT, &[], &["--chat"]),
    (
        "system",
        &["--prompt", "the", "--chat"],
        &[],
        &["--system", "be brief"],
    ),
    ("max_tokens", PROMPT, &[], &["--max-tokens", "3"]),
    ("temperature", PROMPT, &[], &["--temperature", "0.7"]),
    ("top_k", PROMPT, &[], &["--top-k", "3"]),
    ("top_p", PROMPT, &[], &["--top-p", "0.5"]),
    ("min_p", PROMPT, &[], &["--min-p", "0.5"]),
    (
        "repetition_penalty",
        PROMPT,
        &[],
        &["--repetition-penalty", "1.3"],
    ),
    (
        "presence_penalty",
        PROMPT,
        &[],
        &["--presence-penalty", "-2"],
    ),
    (
        "frequency_penalty",
        PROMPT,
        &[],
        &["--frequency-penalty", "2"],
    ),
    (
        "logit_bias",
        PROMPT,
        &["--logit-bias", "3=-100"],
        &["--logit-bias", "3=-inf"],
    ),
    (
        "stop",
        PROMPT,
        &["--stop", "a"],
        &["--stop", "a", "--stop", "-b"],
    ),
    (
        "stop_id",
        PROMPT,
        &["--stop-id", "4"],
        &["--stop-id", "4", "--stop-id", "5"],
    ),
    ("ignore_eos", PROMPT, &[], &["--ignore-eos"]),
    ("min_tokens", PROMPT, &[], &["--min-tokens", "2"]),
    ("n", PROMPT, &[], &["--n", "4"]),
    (
        "logprobs",
        &["--prompt", "the", "--json"],
        &[],
        &["--logprobs", "0"],
    ),
    ("drafter_off", NGRAM, &[], &["--drafter-off"]),
    ("host_semantics", PROMPT, &[], &["--host-semantics"]),
];

/// Flags that have one accepted value in this version.
const CONSTANT: [(&str, &str); 1] = [("device", "cpu")];

fn config(args: &[&[&str]]) -> Value {
    let args: Vec<&str> = args.concat();
    let model: &[&str] = if args.contains(&"--model") {
        &[]
    } else {
        &["--model", "@tt"]
    };
    let ran = generate(&[&args[..], model, &["--print-config"]].concat());
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    serde_json::from_str(&ran.out).expect("the configuration is JSON")
}

/// Case 17.
pub(crate) fn every_flag_changes_the_configuration() {
    let show = |config: &Value, flag: &str| {
        let own = config
            .get(flag)
            .filter(|_| flag != "requests" || !config["requests"].is_null());
        own.or_else(|| config["request"].get(flag))
            .cloned()
            .unwrap_or(Value::Null)
    };
    for (flag, base, one, two) in CASES {
        let (one, two) = (config(&[base, one]), config(&[base, two]));
        assert_ne!(show(&one, flag), show(&two, flag), "--{flag}");
    }
    for (flag, value) in CONSTANT {
        let config = config(&[PROMPT, &[&format!("--{flag}"), value]]);
        assert_eq!(config[flag], value);
        assert_eq!(config["row_invariant"], "yes");
    }
}

/// Case 17: the flags tested are all there are.
pub(crate) fn no_flag_is_left_out() {
    let command = eyrie::cli::Cli::command();
    let generate = command
        .find_subcommand("generate")
        .expect("the command generate");
    let flags = generate.get_arguments().map(|arg| arg.get_id().as_str());
    let flags: BTreeSet<&str> = flags
        .filter(|flag| !["print_config", "help"].contains(flag))
        .collect();
    let tested = CASES
        .iter()
        .map(|case| case.0)
        .chain(CONSTANT.map(|(flag, _)| flag));
    assert_eq!(flags, tested.collect());
    let names: Vec<_> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    assert_eq!(
        names,
        [
            "demo",
            "generate",
            "bench",
            "inspect",
            "judge",
            "check-head",
            "convert",
            "distill",
            "train"
        ]
    );
}

#[test]
fn a_rule_that_judges_drawn_drafts_implies_the_pick() {
    for rule in ["rejection", "block"] {
        for drafter in [DRAFT, NGRAM] {
            let implied = config(&[drafter, &["--rule", rule]]);
            assert_eq!(
                (&implied["rule"], &implied["pick"]),
                (&rule.into(), &"drawn".into())
            );
            let given = config(&[drafter, &["--rule", rule, "--pick", "drawn"]]);
            assert_eq!(implied, given);
        }
        let plain = config(&[PROMPT, &["--rule", rule]]);
        assert_eq!(
            (&plain["rule"], &plain["pick"]),
            (&rule.into(), &Value::Null)
        );
    }
    assert_eq!(config(&[DRAFT])["pick"], "coupled");
}

/// At temperature 0 the rules give the tokens of plain decoding; above, the target as its own
/// drafter is accepted whole. The result says which rule ran.
#[test]
pub(crate) fn the_rules_run() {
    let run = |args: &[&str]| {
        let common = [
            "--model",
            "@tt",
            "--prompt",
            "the",
            "--max-tokens",
            "20",
            "--ignore-eos",
        ];
        let ran = generate(&[&common[..], args, &["--json", "--seed", "3"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str::<Value>(&ran.out).expect("one result")
    };
    let base = run(&[]);
    for rule in ["rejection", "block"] {
        for drafter in [
            &["--draft", "@td"][..],
            &["--drafter", "ngram"],
            &["--draft", "@script.json"],
        ] {
            let result = run(&[drafter, &["--rule", rule]].concat());
            assert_eq!(result["tokens"], base["tokens"], "{rule} with {drafter:?}");
            assert_eq!(result["config"]["rule"], rule);
        }
        let own = ["--draft", "@tt", "--temperature", "0.9", "--rule", rule];
        let own = run(&own);
        for round in own["rounds"].as_array().expect("rounds") {
            assert_eq!(round["accepted"], round["drafted"], "{own}");
        }
        assert_eq!(own["tokens"].as_array().map(Vec::len), Some(20));
    }
}

#[test]
fn the_same_request_gives_the_same_configuration() {
    assert_eq!(config(&[NGRAM]), config(&[NGRAM]));
}

/// `refused` holds if the run failed with `code` and one line that has all `parts`.
pub(super) fn refused(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(
        ran.err.starts_with("error: ") && ran.err.ends_with('\n'),
        "{ran:?}"
    );
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    for part in parts {
        assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
    }
}

#[test]
fn wrong_usage_is_one_line_that_names_the_flag() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--frobnicate"], &["--frobnicate"]),
        (
            &["--prompt", "x", "--tree", "4x5x24"],
            &["--tree", "needs a drafter"],
        ),
        (
            &["--prompt", "x", "--drafter", "ngram", "--tree", "4x5x24"],
            &["--tree: --drafter ngram"],
        ),
        (
            &[
                "--prompt",
                "x",
                "--draft",
                "@script.json",
                "--tree",
                "4x5x24",
            ],
            &["--tree: --drafter script"],
        ),
        (
            &[
                "--prompt", "x", "--draft", "@td", "--tree", "4x5x24", "--rule", "block",
            ],
            &["--tree: --rule block", "rejection"],
        ),
        (
            &[
                "--prompt", "x", "--draft", "@td", "--tree", "4x5x24", "--depth", "5",
            ],
            &["--tree", "--depth"],
        ),
        (
            &["--prompt", "x", "--draft", "@td", "--tree", "4x5"],
            &["--tree", "4x5", "TOPKxDEPTHxNODES"],
        ),
        (
            &["--prompt", "x", "--draft", "@td", "--tree", "65x5x24"],
            &["--tree", "65x5x24", "1..=64"],
        ),
        (
            &["--prompt", "x", "--draft", "@td", "--tree", "4x5x1025"],
            &["--tree", "4x5x1025", "1..=1024"],
        ),
        (
            &["--prompt", "x", "--drafter", "medusa"],
            &["--drafter", "ngram"],
        ),
        (
            &["--prompt", "x", "--drafter", "none", "--draft", "@td"],
            &["--draft:", "none"],
        ),
        (
            &["--prompt", "x", "--drafter", "ngram", "--draft", "@td"],
            &["--draft:", "ngram"],
        ),
        (
            &["--prompt", "x", "--drafter", "model"],
            &["--draft:", "missing"],
        ),
        (
            &["--prompt", "x", "--drafter", "script"],
            &["--draft:", "missing"],
        ),
        (
            &["--prompt", "x", "--draft", "@prompt.txt"],
            &["--draft", "prompt.txt", "neither"],
        ),
        (&["--prompt", "x", "--depth", "4"], &["--depth"]),
        (
            &["--prompt", "x", "--drafter", "ngram", "--depth", "0"],
            &["--depth", "1..=64"],
        ),
        (
            &["--prompt", "x", "--drafter", "ngram", "--depth", "65"],
            &["--depth", "1..=64"],
        ),
        (
            &["--prompt", "x", "--drafter", "ngram", "--depth", "auto"],
            &["--depth", "auto"],
        ),
        (&["--prompt", "x", "--pick", "greedy"], &["--pick"]),
        (
            &["--prompt", "x", "--rule", "typical"],
            &["--rule", "match", "rejection", "block"],
        ),
        (
            &[
                "--prompt", "x", "--draft", "@td", "--rule", "block", "--pick", "coupled",
            ],
            &["--pick", "drawn"],
        ),
        (
            &[
                "--prompt",
                "x",
                "--drafter",
                "ngram",
                "--rule",
                "rejection",
                "--pick",
                "greedy",
            ],
            &["--pick", "drawn"],
        ),
        (
            &["--prompt", "x", "--draft", "@td", "--pick", "drawn"],
            &["--pick", "--rule rejection or block"],
        ),
        (&["--prompt", "x", "--dtype", "q3_k"], &["--dtype", "q8_0"]),
        #[cfg(not(feature = "cuda"))]
        (
            &["--prompt", "x", "--device", "cuda"],
            &["--device", "no CUDA"],
        ),
        #[cfg(not(feature = "cuda"))]
        (
            &["--prompt", "x", "--device", "cuda:1"],
            &["--device", "no CUDA"],
        ),
        (&["--prompt", "x", "--device", "tpu"], &["--device", "cpu"]),
        (
            &["--prompt", "x", "--device", "cuda:x"],
            &["--device", "cpu"],
        ),
        (&["--prompt", "x", "--threads", "0"], &["--threads"]),
        (
            &["--prompt", "x", "--threads", "1025"],
            &["--threads", "1..=1024"],
        ),
        (
            &[
                "--prompt",
                "x",
                "--logit-bias",
                "5=1",
                "--logit-bias",
                "5=2",
            ],
            &["--logit-bias: token 5 is given twice"],
        ),
        (&["--prompt", "x", "--max-batch", "0"], &["--max-batch"]),
        (
            &["--prompt", "x", "--kv-tokens", "16777217"],
            &["--kv-tokens", "1..=16777216"],
        ),
        (&["--prompt", "x", "--kv-tokens", "0"], &["--kv-tokens"]),
        (
            &["--prompt", "x", "--prefill-chunk", "0"],
            &["--prefill-chunk"],
        ),
        (
            &["--prompt", "x", "--allow-tokenizer-mismatch"],
            &["--allow-tokenizer-mismatch"],
        ),
        (
            &["--prompt", "x", "--concurrency", "2"],
            &["--concurrency: needs --requests"],
        ),
        (
            &["--requests", "@requests.jsonl", "--concurrency", "17"],
            &["--concurrency", "17", "--max-batch 16"],
        ),
        (
            &["--requests", "@requests.jsonl", "--prompt", "x"],
            &["--requests", "--prompt"],
        ),
        (
            &["--requests", "@requests.jsonl", "--top-k", "2"],
            &["--requests", "--top-k"],
        ),
        (
            &["--requests", "@requests.jsonl", "--chat"],
            &["--requests", "--chat"],
        ),
        (
            &["--requests", "@blank.jsonl"],
            &["--requests", "blank.jsonl", "no request"],
        ),
        (&[], &["--prompt", "--prompt-ids", "--requests"]),
        (
            &["--prompt", "x", "--prompt-ids", "1"],
            &["--prompt", "--prompt-ids"],
        ),
        (
            &["--prompt", "x", "--prompt-file", "@prompt.txt"],
            &["--prompt", "--prompt-file"],
        ),
        (
            &["--prompt-ids", "1", "--chat"],
            &["--prompt-ids", "--chat"],
        ),
        (&["--prompt-ids", "1,x"], &["--prompt-ids", "x"]),
        (&["--prompt", "x", "--system", "s"], &["--chat"]),
        (&["--prompt", "x", "--logprobs", "2"], &["--json"]),
        (
            &["--prompt", "x", "--json", "--logprobs", "257"],
            &["--logprobs 257", "0..=256"],
        ),
        (
            &["--prompt", "x", "--max-tokens", "0"],
            &["--max-tokens 0", "at least 1"],
        ),
        (&["--prompt", "x", "--n", "0"], &["--n 0"]),
        (&["--prompt", "x", "--n", "65537"], &["--n 65537", "65536"]),
        (&["--prompt", "x", "--stop", ""], &["--stop"]),
        (&["--prompt", "x", "--seed", "-1"], &["--seed"]),
        (
            &["--prompt", "x", "--temperature", "-1"],
            &["--temperature -1"],
        ),
        (
            &["--prompt", "x", "--temperature", "NaN"],
            &["--temperature NaN"],
        ),
        (
            &["--prompt", "x", "--temperature", "inf"],
            &["--temperature inf"],
        ),
        (
            &["--prompt", "x", "--temperature", "101"],
            &["--temperature 101"],
        ),
        (&["--prompt", "x", "--top-p", "0"], &["--top-p 0"]),
        (&["--prompt", "x", "--top-p", "1.1"], &["--top-p 1.1"]),
        (&["--prompt", "x", "--min-p", "1"], &["--min-p 1"]),
        (&["--prompt", "x", "--min-p", "-0.1"], &["--min-p -0.1"]),
        (
            &["--prompt", "x", "--repetition-penalty", "0"],
            &["--repetition-penalty 0"],
        ),
        (
            &["--prompt", "x", "--presence-penalty", "2.1"],
            &["--presence-penalty 2.1"],
        ),
        (
            &["--prompt", "x", "--frequency-penalty", "NaN"],
            &["--frequency-penalty NaN"],
        ),
        (
            &["--prompt", "x", "--logit-bias", "3"],
            &["--logit-bias", "ID=V"],
        ),
        (
            &[
                "--prompt",
                "x",
                "--logit-bias",
                "3=1",
                "--logit-bias",
                "3=2",
            ],
            &["--logit-bias: token 3 is given twice"],
        ),
        (
            &["--prompt", "x", "--logit-bias", "3=101"],
            &["--logit-bias 3=101"],
        ),
        (
            &["--prompt", "x", "--logit-bias", "3=inf"],
            &["--logit-bias 3=inf"],
        ),
    ];
    for (args, parts) in cases {
        let ran = generate(&[&["--model", "@tt"], *args].concat());
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        refused(&ran, 2, parts);
    }
    refused(&generate(&["--prompt", "x"]), 2, &["--model"]);
    refused(&eyrie(&["brew"]), 2, &["brew"]);
    refused(&eyrie(&["inspect"]), 2, &["PATH"]);
}

#[test]
fn a_negative_number_is_refused_by_the_flag_it_was_given_to() {
    for flag in [
        "--depth",
        "--threads",
        "--max-batch",
        "--kv-tokens",
        "--prefill-chunk",
        "--concurrency",
        "--seed",
        "--max-tokens",
        "--temperature",
        "--top-k",
        "--top-p",
        "--min-p",
        "--repetition-penalty",
        "--min-tokens",
        "--n",
        "--logprobs",
        "--stop-id",
        "--prompt-ids",
        "--logit-bias",
    ] {
        let value = if flag == "--logit-bias" { "-1=1" } else { "-1" };
        let prompt: &[&str] = if flag == "--prompt-ids" { &[] } else { PROMPT };
        let given = [&["--model", "@tt", "--json", flag, value], prompt].concat();
        refused(&generate(&given), 2, &[flag, "-1"]);
    }
}

#[test]
fn a_failed_run_is_one_line_too() {
    refused(
        &generate(&["--model", "@nowhere", "--prompt", "x"]),
        1,
        &["--model", "nowhere", "no such"],
    );
    refused(&eyrie(&["inspect", "@nowhere"]), 1, &["nowhere"]);
    refused(&eyrie(&["inspect", "@prompt.txt"]), 1, &["prompt.txt"]);
    let on_tt = |args: &[&str]| generate(&[&["--model", "@tt"], args].concat());
    refused(
        &on_tt(&["--prompt", "x", "--draft", "@nowhere"]),
        1,
        &["--draft", "nowhere"],
    );
    refused(
        &on_tt(&["--requests", "@nowhere"]),
        1,
        &["--requests", "nowhere"],
    );
    refused(
        &on_tt(&["--prompt-file", "@nowhere"]),
        1,
        &["--prompt-file", "nowhere"],
    );
    refused(
        &on_tt(&["--prompt", "x", "--trace", "@nowhere/t"]),
        1,
        &["--trace", "nowhere"],
    );
    let script = [
        "--prompt",
        "x",
        "--drafter",
        "script",
        "--draft",
        "@requests.jsonl",
    ];
    refused(&on_tt(&script), 1, &["--draft", "requests.jsonl", "list"]);
    let width = ["--prompt", "x", "--dtype", "q4_k"];
    refused(&on_tt(&width), 1, &["weight"]);
}

#[test]
fn help_states_the_sampling_order() {
    let ran = eyrie(&["generate", "--help"]);
    assert_eq!(ran.code, 0);
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = text.as_str();
    for word in [
        "in this order",
        "logit bias",
        "repetition",
        "frequency",
        "presence",
        "masks",
        "temperature",
        "top-k",
        "top-p",
        "min-p",
    ] {
        let at = rest
            .find(word)
            .unwrap_or_else(|| panic!("{word} is not in place in {text}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn flags_without_a_command_are_refused_in_one_line() {
    for args in [&["--json"][..], &["--model", "tiny"], &["tiny"]] {
        let ran = eyrie(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(args[0]), "{args:?}: {}", ran.err);
    }
}
