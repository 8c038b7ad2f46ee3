//! Cases 35, 36, 56 and 60 to 65: what is measured, and what the numbers are called. No test here
//! asserts a time or a speed-up.

use eyrie::{
    draft::{Anchor, Drafter, Seen},
    error::Result,
    report::{Acceptance, Deliveries, RoundCount},
    tree::DraftTree,
};
use eyrie_fixtures::{Fixture, tt};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    cli::bench::{bench, on_tt, with},
    support::{Lab, Run, drafter, drawn, prompts, request, tt_target},
};

const TEXTS: &str = "{\"turns\": [\"the cat sat on the mat and the cat\"]}\n{\"turns\": [\"the dog ran\", \"and?\"]}\n";

/// Rounds that drafted 4 and accepted 4, 1 and 0.
fn three_rounds() -> Acceptance {
    let mut all = Acceptance::default();
    for accepted in [4, 1, 0] {
        let round = RoundCount {
            drafted: 4,
            accepted,
            emitted: accepted + 1,
        };
        all.count(round, 4);
    }
    all
}

fn near(found: Option<f64>, expected: f64) {
    let found = found.expect("observed");
    assert!((found - expected).abs() < 1e-3, "{found}, not {expected}");
}

fn counted(run: &Run) -> Acceptance {
    let mut all = Acceptance::default();
    for round in run.choices.iter().flat_map(|choice| &choice.rounds) {
        all.count(*round, round.drafted);
    }
    all
}

fn strings(value: &Value) -> Vec<&str> {
    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str).collect()
}

fn warned(result: &Value, part: &str) -> bool {
    strings(&result["warnings"])
        .iter()
        .any(|text| text.contains(part))
}

/// Case 35: the same prompts raw, with the model's template and with another model's: the result
/// says which, with the beginning of what the model was shown, and warns where there is none.
#[test]
fn c35_the_template_and_the_rendered_prompt_are_in_the_result() {
    let spoken = Fixture {
        tokenizer: true,
        ..tt()
    };
    let dir = TempDir::new().expect("a temporary folder");
    spoken.write_dir(dir.path()).expect("a model");
    let args = ["--drafters", "ngram", "--max-tokens", "4", "--repeats", "1"];
    let run = |more: &[&str]| {
        let (ran, result) = bench(dir.path(), TEXTS, &[&args, more].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        (ran, result)
    };
    let (_, own) = run(&[]);
    let (told, raw) = run(&["--raw"]);
    let other = "{% for m in messages %}the {{ m.content }} the {% endfor %}";
    std::fs::write(dir.path().join("chat_template.jinja"), other).expect("a template");
    let (_, others) = run(&["--chat"]);
    let head = |result: &Value| {
        result["prompts"]["rendered_head"]
            .as_str()
            .expect("a head")
            .to_owned()
    };
    assert_eq!(raw["prompts"]["template"], Value::Null);
    assert_eq!(head(&raw), "the cat sat on the mat and the cat");
    assert!(
        warned(&raw, "raw prompts: the model has a chat template"),
        "{}",
        told.err
    );
    assert!(told.err.contains("warning: raw prompts"), "{}", told.err);
    assert!(!warned(&own, "template") && !warned(&others, "template"));
    let name = |result: &Value| {
        result["prompts"]["template"]
            .as_str()
            .expect("a name")
            .to_owned()
    };
    assert!(
        name(&own).contains("tokenizer_config.json"),
        "{}",
        name(&own)
    );
    assert!(
        name(&others).ends_with("chat_template.jinja"),
        "{}",
        name(&others)
    );
    assert!(head(&own).contains("the cat sat") && head(&own) != head(&raw));
    assert_eq!(head(&others), "the the cat sat on the mat and the cat the ");
    // A tokenizer, and no template.
    std::fs::remove_file(dir.path().join("chat_template.jinja")).expect("it is there");
    std::fs::remove_file(dir.path().join("tokenizer_config.json")).expect("it is there");
    let (_, none) = run(&[]);
    assert!(
        warned(&none, "the model has no chat template"),
        "{}",
        none["warnings"]
    );
    assert_eq!(none["prompts"]["template"], Value::Null);
}

/// Case 36: depth, chain or tree, and how drafts are counted are beside every number.
#[test]
fn c36_the_shape_of_drafts_and_the_counting_rule_are_in_the_result() {
    let oracle = with("model", "tt");
    let shape = [
        "--drafters",
        &oracle,
        "--depths",
        "1,2,4",
        "--tree",
        "2x2x4",
    ];
    let args = ["--max-tokens", "16", "--repeats", "1", "--ignore-eos"];
    let result = on_tt(TEXTS, &[&shape[..], &args].concat());
    let counting = result["counting"].as_str().expect("words");
    for part in [
        "1 + accepted / drafting_rounds",
        "bonus",
        "all nodes of a tree",
    ] {
        assert!(counting.contains(part), "{part}");
    }
    let arms = result["cells"][0]["arms"].as_array().expect("arms");
    let shapes: Vec<_> = arms
        .iter()
        .map(|arm| json!([arm["drafts"], arm["depth"], arm["tree"]]))
        .collect();
    let expected = [
        json!(["none", null, null]),
        json!(["chain", 1, null]),
        json!(["chain", 2, null]),
        json!(["chain", 4, null]),
        json!(["tree", 2, "2x2x4"]),
    ];
    assert_eq!(shapes, expected);
    for (arm, levels) in arms.iter().zip([0, 1, 2, 4, 2]).skip(1) {
        let found = &arm["acceptance"];
        let rates = found["conditional"].as_array().expect("rates");
        assert_eq!(
            rates.len(),
            levels,
            "positions are levels, the bonus is none: {arm}"
        );
        assert!(
            rates.iter().all(|rate| rate == 1.0),
            "the target drafts for itself: {arm}"
        );
        let rate = found["draft_acceptance_rate"].as_f64().expect("a rate");
        // A tree of the target's own best tokens has siblings, of which one at most is taken.
        assert_eq!(rate < 1.0, arm["drafts"] == "tree", "{arm}");
    }
}

/// Case 56: a speed-up for every number of streams, and "slower" in words where it is below 1.
#[test]
fn c56_slower_is_said_for_each_number_of_streams() {
    let model = with("model", "td");
    let many: String = (0..16)
        .map(|i| format!("{{\"prompt_ids\": [{i}, 5, 9]}}\n"))
        .collect();
    let args = [
        "--drafters",
        &model,
        "--concurrency",
        "1,4,16",
        "--max-tokens",
        "6",
        "--repeats",
        "2",
    ];
    let result = on_tt(&many, &args);
    let cells = result["cells"].as_array().expect("cells");
    let streams: Vec<_> = cells.iter().map(|cell| &cell["concurrency"]).collect();
    assert_eq!(streams, [1, 4, 16]);
    for cell in cells {
        let arm = &cell["arms"][1];
        let ratio = arm["speedup"]["ratio"].as_f64().expect("a ratio");
        let [low, high] = [0, 1].map(|i| arm["speedup"]["interval"][i].as_f64().expect("a bound"));
        assert!(low <= ratio && ratio <= high, "{arm}");
        let word = if low <= 1.0 && 1.0 <= high {
            "not told apart"
        } else if ratio < 1.0 {
            "slower"
        } else {
            "faster"
        };
        let streams = &cell["concurrency"];
        let expected =
            format!("{word}: model depth 4 at concurrency {streams} and temperature 0 gives ");
        let said = arm["verdict"].as_str().expect("a sentence");
        assert!(said.starts_with(&expected), "{arm}");
        assert_eq!(cell["arms"][0]["verdict"], Value::Null);
    }
}

/// Case 60: the token that the target adds is in the length and not in the others, by name.
#[test]
fn c60_the_length_includes_the_bonus_and_says_so() {
    let all = three_rounds();
    near(all.mean_acceptance_length(), 2.667);
    near(all.accepted_per_drafting_round(), 1.667);
    near(all.draft_acceptance_rate(), 5.0 / 12.0);
    assert!(
        eyrie::report::COUNTING
            .contains("the token that the target adds (recovered or bonus) is included")
    );
    // Rounds without a draft are no drafts that failed.
    let mut with_plain = all.clone();
    let plain = RoundCount {
        drafted: 0,
        accepted: 0,
        emitted: 1,
    };
    with_plain.count(plain, 0);
    assert_eq!(
        with_plain.mean_acceptance_length(),
        all.mean_acceptance_length()
    );
    near(with_plain.tokens_per_round(), 9.0 / 4.0);
}

/// Case 61: both rates by position, under their names, and `null` where nothing was drafted.
#[test]
fn c61_rates_by_position_are_conditional_and_not() {
    let mut all = three_rounds();
    let third = [2.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0];
    for (found, expected) in all.unconditional().into_iter().zip(third) {
        near(found, expected);
    }
    for (found, expected) in all
        .conditional()
        .into_iter()
        .zip([2.0 / 3.0, 0.5, 1.0, 1.0])
    {
        near(found, expected);
    }
    // Position 6 is drafted once, behind a draft that was rejected: nobody knows.
    let long = RoundCount {
        drafted: 6,
        accepted: 4,
        emitted: 5,
    };
    all.count(long, 6);
    let written = serde_json::to_value(&all).expect("JSON");
    assert_eq!(written["conditional"][5], Value::Null);
    assert_eq!(written["position_drafted"], json!([4, 4, 4, 4, 1, 1]));
    assert_eq!(written["conditional"].as_array().map(Vec::len), Some(6));
}

proptest! {
    /// Case 62: whatever the rounds are (no draft, a short one, cut by an end), no rate is above 1 and
    /// no count goes back.
    #[test]
    fn c62_rates_are_shares_and_counts_only_grow(
        rounds in prop::collection::vec((0usize..9, 0usize..9, any::<bool>(), 0usize..4), 0..40)
    ) {
        let mut all = Acceptance::default();
        for (levels, accepted, cut, siblings) in rounds {
            let before = serde_json::to_value(&all).unwrap();
            let accepted = accepted.min(levels);
            let cut = cut && accepted > 0;
            let drafted = if levels == 0 { 0 } else { levels + siblings };
            let emitted = accepted + usize::from(!cut);
            all.count(RoundCount { drafted, accepted, emitted }, levels);
            let after = serde_json::to_value(&all).unwrap();
            for key in ["rounds", "drafting_rounds", "drafted", "accepted", "emitted"] {
                prop_assert!(before[key].as_u64() <= after[key].as_u64(), "{}", key);
            }
            for key in ["position_drafted", "position_judged", "position_accepted"] {
                let pairs = before[key].as_array().unwrap().iter().zip(after[key].as_array().unwrap());
                for (old, new) in pairs {
                    prop_assert!(old.as_u64() <= new.as_u64(), "{}", key);
                }
            }
        }
        prop_assert!(all.accepted() <= all.drafted());
        let rates = all.unconditional().into_iter().chain(all.conditional());
        for rate in rates.chain([all.draft_acceptance_rate()]).flatten() {
            prop_assert!((0.0..=1.0).contains(&rate), "{}", rate);
        }
        let unconditional: Vec<f64> = all.unconditional().into_iter().flatten().collect();
        prop_assert!(unconditional.is_sorted_by(|a, b| a >= b), "{:?}", unconditional);
        let length = 1.0 + unconditional.iter().sum::<f64>();
        if let Some(found) = all.mean_acceptance_length() {
            prop_assert!((found - length).abs() < 1e-9, "{} {}", found, length);
        }
    }
}

/// Case 62, of what the engine itself counts, with drafters that fail, stop short and are cut.
#[test]
fn c62_the_engines_own_rounds_are_consistent() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = (prompts(64).iter().take(3).zip(1..))
        .map(|(prompt, seed)| drawn(prompt, 0.9, seed))
        .collect();
    for name in ["none", "ngram", "td", "broken", "script"] {
        let run = lab.run(drafter(&lab, name), &requests);
        let all = counted(&run);
        assert!(all.accepted() <= all.drafted(), "{name}");
        assert_eq!(
            all.draft_acceptance_rate().is_none(),
            name == "none",
            "{name}"
        );
        let tokens: usize = run.tokens().iter().map(Vec::len).sum();
        assert_eq!(all.emitted() + requests.len(), tokens, "{name}");
    }
}

/// Drafts only where it is sure: in one round of four.
#[derive(Debug)]
struct Sure(Box<dyn Drafter>);

impl Drafter for Sure {
    fn name(&self) -> &'static str {
        "sure"
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        self.0.observe(seen)
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        self.0.propose(anchors, trees)?;
        for (anchor, tree) in anchors.iter().zip(trees) {
            if !anchor.round.is_multiple_of(4) {
                *tree = DraftTree::default();
            }
        }
        Ok(())
    }
}

/// Case 63: a rate of 1 whatever the drafter does; what tells them apart stands beside it.
#[test]
fn c63_sure_drafts_show_in_drafted_per_round_and_tokens_per_round() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = prompts(64)[..3]
        .iter()
        .map(|prompt| request(prompt))
        .collect();
    let always = counted(&lab.run(lab.self_drafter(), &requests));
    let sure = counted(&lab.run(Box::new(Sure(lab.self_drafter())), &requests));
    for all in [&always, &sure] {
        near(all.draft_acceptance_rate(), 1.0);
    }
    assert!(sure.drafted_per_round() < always.drafted_per_round().map(|n| n / 2.0));
    assert!(sure.tokens_per_round() < always.tokens_per_round());
    let written = serde_json::to_value(&sure).expect("JSON");
    for key in [
        "draft_acceptance_rate",
        "drafted_per_round",
        "tokens_per_round",
    ] {
        assert!(written[key].is_f64(), "{key}");
    }
}

/// Case 64: a stub that delivers 3 tokens every 30 ms after 500 ms of reading the prompt.
#[test]
fn c64_time_per_token_goes_by_tokens_and_leaves_the_prompt_out() {
    let mut stub = Deliveries::default();
    for chunk in 0..10 {
        stub.push(0.5 + 0.03 * f64::from(chunk), 3);
    }
    let pace = stub.pace();
    let milli = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    near(milli(stub.first()), 500.0);
    near(milli(pace.per_token()), 10.0);
    near(milli(pace.chunk_gap()), 30.0);
    near(pace.decode_rate(), 100.0);
}

/// Case 65: the result says what was asked and how, and warns of what misleads.
#[test]
fn c65_prompts_ends_warm_up_and_repeats_are_recorded_and_warned_of() {
    let base = ["--drafters", "ngram", "--max-tokens", "6"];
    let run = |prompts: &str, more: &[&str]| on_tt(prompts, &[&base, more].concat());
    let texts = run(TEXTS, &["--repeats", "3"]);
    assert_eq!(texts["prompts"]["source"], "text");
    assert_eq!(texts["prompts"]["conversations"], 2);
    assert_eq!(texts["prompts"]["turns"], 3, "all turns are asked");
    for part in ["token ids", "ignore_eos", "warm-up", "repeats"] {
        assert!(!warned(&texts, part), "{part}: {}", texts["warnings"]);
    }
    assert_eq!(texts["config"]["warm_up"], 1);
    let arms = texts["cells"][0]["arms"].as_array().expect("arms");
    for arm in arms {
        // Ratio of sums: the rate of an arm is made of its repeats' sums, not of their rates.
        let repeats = arm["repeats"].as_array().expect("repeats");
        assert_eq!(repeats.len(), 3);
        let sum = |at: usize| {
            repeats
                .iter()
                .filter_map(|repeat| repeat[at].as_f64())
                .sum::<f64>()
        };
        near(
            arm["tokens_per_s"]
                .as_f64()
                .map(|rate| rate * sum(1) / sum(0)),
            1.0,
        );
    }
    assert!(
        arms[1]["speedup"]["interval"].is_array(),
        "the spread of the repeats"
    );
    let runs = texts["raw"]["runs"].as_array().expect("runs");
    let asked = |run: &Value| -> Vec<String> {
        let requests = run["run"]["requests"].as_array().expect("requests");
        requests
            .iter()
            .map(|request| format!("{} {}", request["request"], request["prompt_tokens"]))
            .collect()
    };
    assert!(
        runs.iter().all(|run| asked(run) == asked(&runs[0])),
        "the same prompts"
    );

    // Interleaved: every arm ran once before any ran twice, and another one was first each time.
    let arm_of = |order: usize| {
        let run = runs.iter().find(|run| run["order"] == order);
        run.map(|run| (run["arm"].as_str(), run["repeat"].as_u64()))
    };
    let order: Vec<_> = (0..6).filter_map(arm_of).collect();
    let (none, ngram) = (Some("none"), Some("ngram depth 4"));
    let expected = [
        (none, 0),
        (ngram, 0),
        (ngram, 1),
        (none, 1),
        (none, 2),
        (ngram, 2),
    ];
    assert_eq!(order, expected.map(|(arm, repeat)| (arm, Some(repeat))));

    let ids = run("{\"prompt_ids\": [40, 2, 51, 17]}", &["--repeats", "1"]);
    assert_eq!(ids["prompts"]["source"], "ids");
    assert!(warned(
        &ids,
        "1 of 1 prompt given as token ids: if they are random"
    ));
    assert!(warned(&ids, "1 repeat: "));
    assert!(warned(&ids, "1 conversation: an interval tells"));
    let enough = TEXTS.repeat(4);
    let enough: String = (0..)
        .zip(enough.lines())
        .map(|(i, line)| line.replacen('{', &format!("{{\"id\": \"{i}\", "), 1) + "\n")
        .collect();
    let many = run(&enough, &["--warm-up", "9", "--concurrency", "1,12"]);
    assert!(!warned(&many, "an interval tells"), "{}", many["warnings"]);
    assert!(warned(&many, "--warm-up 9: only 8 conversations"));
    assert!(warned(&many, "--concurrency 12: only 8 conversations"));
    assert_eq!(
        ids["cells"][0]["arms"][1]["speedup"]["interval"],
        Value::Null
    );

    let endless = run(TEXTS, &["--ignore-eos", "--temperature", "0.5"]);
    assert!(warned(&endless, "ignore_eos"));
    assert_eq!(endless["config"]["ignore_eos"], true);
    assert_eq!(endless["cells"][0]["temperature"], 0.5);

    let cold = run(TEXTS, &["--warm-up", "0"]);
    assert!(warned(&cold, "warm-up 0"));
    assert_eq!(cold["config"]["warm_up"], 0);
}
