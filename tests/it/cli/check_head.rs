//! `eyrie check-head`.

use std::{fs, path::Path};

use clap::CommandFactory;
use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, eyrie, flags::Case, shipped::shipped};

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

/// Beginnings for a model that only goes on with a text.
fn beginnings() -> String {
    let of = [
        "The President",
        "The Congress",
        "Our country",
        "The Treasury",
        "This Government",
        "The people",
    ];
    let goes_on = ["has", "will", "of the United States", "must", "and"];
    let all = of
        .iter()
        .flat_map(|of| goes_on.map(|on| format!("{{\"prompt\": \"{of} {on}\"}}\n")));
    all.collect()
}

/// Questions whose answers are guessed often. Taps of the next layer, whose streams are much the same, are
/// told by a thousand rows.
fn questions() -> String {
    let prompts = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/prompts");
    let lines = ["code.jsonl", "maths.jsonl"].map(|name| {
        let text = fs::read_to_string(prompts.join(name)).expect("prompts");
        let lines = text.lines().take(8).map(|line| format!("{line}\n"));
        lines.collect::<String>()
    });
    lines.concat()
}

/// A copy of a head with a file changed.
fn changed(head: &Path, name: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(head.join(file), dir.path().join(file)).expect("a copy");
    }
    let path = dir.path().join(name);
    let bytes = fs::read(&path).expect("the file");
    fs::write(&path, change(bytes)).expect("the changed file");
    dir
}

/// Row i of the head is said to be the token of row i + 1.
fn rolled(mut file: Vec<u8>) -> Vec<u8> {
    let (len, _) = file.split_first_chunk::<8>().expect("the header's length");
    let begin = 8 + usize::try_from(u64::from_le_bytes(*len)).expect("a length");
    let header: Value = serde_json::from_slice(&file[8..begin]).expect("JSON");
    let at = |i: usize| header["d2t"]["data_offsets"][i].as_u64().expect("d2t");
    let [from, to] = [0, 1].map(|i| begin + usize::try_from(at(i)).expect("an offset"));
    let words = file[from..to].as_chunks::<8>().0.iter().zip(0..);
    let mut ids: Vec<i64> = words
        .map(|(word, row)| i64::from_le_bytes(*word) + row)
        .collect();
    ids.rotate_left(1);
    let offsets = ids.into_iter().zip(0..).map(|(id, row)| id - row);
    let offsets: Vec<u8> = offsets.flat_map(i64::to_le_bytes).collect();
    file[from..to].copy_from_slice(&offsets);
    file
}

/// The heads that are shipped look right, and each of them says so with its map rolled by a row and with
/// its taps a boundary lower and higher.
#[test]
fn shipped_heads_look_right_and_changed_ones_do_not() {
    for one in shipped() {
        let (prompts, tokens) = if one.large {
            (questions(), "64")
        } else {
            (beginnings(), "96")
        };
        let target = one.target.display().to_string();
        let check = |head: &Path| {
            let head = head.display().to_string();
            let more = ["--max-tokens", tokens, "--depth", "1"];
            check_on(&prompts, &target, &head, &more)
        };
        let name = one.head.display().to_string();
        let ran = check(&one.head);
        assert_eq!(ran.code, 0, "{name}: {}{}", ran.out, ran.err);
        let inspect = ["inspect", &name, "--model", &target, "--json"];
        let taps = eyrie(&inspect).result()["taps"].clone();
        let moved = |by: i64| {
            let taps = taps.as_array().expect("taps").iter();
            let taps: Vec<i64> = taps.filter_map(|tap| Some(tap.as_i64()? + by)).collect();
            changed(&one.head, "config.json", |text| {
                let mut config: Value = serde_json::from_slice(&text).expect("JSON");
                config["eagle_aux_hidden_state_layer_ids"] = serde_json::json!(taps);
                config.to_string().into_bytes()
            })
        };
        for (what, head, words) in [
            (
                "rolled",
                changed(&one.head, "model.safetensors", rolled),
                "d2t seems to be rolled",
            ),
            ("lower", moved(-1), "taps seem to be"),
            ("higher", moved(1), "taps seem to be"),
        ] {
            let ran = check(head.path());
            assert_eq!(ran.code, 1, "{name}, {what}: {}{}", ran.out, ran.err);
            assert!(ran.out.contains(words), "{name}, {what}: {}", ran.out);
        }
    }
}

/// What the test above does to a map is what it says.
#[test]
fn a_map_that_is_rolled_in_the_file_is_noticed() {
    let head = changed(&super::file("ring-head"), "model.safetensors", rolled);
    let path = head.path().display().to_string();
    let ran = check_on(PROMPTS, "@ring", &path, &["--max-tokens", "50"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("d2t seems to be rolled"), "{}", ran.out);
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
