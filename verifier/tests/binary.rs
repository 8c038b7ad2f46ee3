//! The binary on small files, the hostile ones included.

use std::{fs, process::Command};

use eyrie_verifier::rng::Rng;
use tempfile::TempDir;

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs a command line in a folder of these files.
fn ran(files: &[(&str, &str)], line: &str) -> Ran {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyrie-verifier"));
    let seen = command
        .args(line.split_whitespace())
        .current_dir(folder.path())
        .output()
        .unwrap();
    Ran {
        code: seen.status.code(),
        out: String::from_utf8(seen.stdout).unwrap(),
        err: String::from_utf8(seen.stderr).unwrap(),
    }
}

/// Runs what must fail, and gives its one line.
fn refused(files: &[(&str, &str)], line: &str) -> String {
    let seen = ran(files, line);
    assert_eq!(
        (seen.code, seen.out.as_str()),
        (Some(2), ""),
        "{}",
        seen.err
    );
    assert_eq!(seen.err.lines().count(), 1, "{}", seen.err);
    let problem = seen.err.strip_prefix("error: ").unwrap().trim_end();
    // Columns are serde's business.
    problem.split(" (column ").next().unwrap().to_owned()
}

const LAW: &str = r#"{"vocab":4,"length":2,"p":{"0,1":0.4,"1,0":0.3,"2,2":0.2,"3":0.1}}"#;

/// Samples of [`LAW`], or of one with a tenth more of "0,1" in place of "1,0".
fn samples(n: usize, seed: u64, broken: bool) -> String {
    let mut rng = Rng::new(seed);
    let law = if broken {
        [0.5, 0.7, 0.9, 1.0]
    } else {
        [0.4, 0.7, 0.9, 1.0]
    };
    let lists = ["[0,1,3]", "[1,0]", "[2,2,0,0]", "[3]"];
    let line = |_| {
        format!(
            "{{\"tokens\":{},\"seed\":{}}}\n",
            lists[rng.pick(&law)],
            rng.bits()
        )
    };
    (0..n).map(line).collect()
}

/// A trace over three tokens; the broken engine always keeps its draft.
fn trace(n: usize, broken: bool) -> String {
    let mut rng = Rng::new(3);
    let (p, q) = ([0.5, 0.8, 1.0], [0.2, 0.3, 1.0]);
    let line = |_| {
        let token = rng.pick(if broken { &q } else { &p });
        format!("{{\"p\":[0.5,0.3,0.2],\"q\":[0.2,0.1,0.7],\"token\":{token},\"row\":7}}\n")
    };
    (0..n).map(line).collect()
}

#[test]
fn gof_gives_all_three_verdicts() {
    for (n, broken, code, verdict) in [
        (20_000, false, 0, "PASS"),
        (20_000, true, 1, "FAIL"),
        (200, false, 3, "UNDECIDED"),
    ] {
        let text = samples(n, 1, broken);
        let files = [("law.json", LAW), ("s.jsonl", &text)];
        let seen = ran(&files, "gof --expected law.json --samples s.jsonl");
        assert_eq!(
            (seen.code, seen.err.as_str()),
            (Some(code), ""),
            "{}",
            seen.out
        );
        let last = seen.out.lines().last().unwrap();
        assert_eq!(last.split(' ').next(), Some(verdict), "{}", seen.out);
        assert!(
            seen.out
                .starts_with(&format!("gof: {n} samples, 4 cells of length 2")),
            "{}",
            seen.out
        );
        let seen = ran(&files, "gof --expected law.json --samples s.jsonl --json");
        assert_eq!(seen.code, Some(code));
        let json: serde_json::Value = serde_json::from_str(&seen.out).unwrap();
        assert_eq!(
            (json["verdict"].as_str(), json["samples"][0].as_u64()),
            (Some(verdict), Some(n as u64))
        );
        assert_eq!(seen.out.lines().count(), 1);
        assert_eq!(json["tests"].as_array().unwrap().len(), 3);
    }
}

/// Alpha and the total variation asked for decide.
#[test]
fn alpha_and_tv_are_heard() {
    let [few, many] = [300, 2_000].map(|n| samples(n, 1, true));
    let run = |text: &str, options: &str| {
        let line = format!("gof --expected law.json --samples s.jsonl {options}");
        ran(&[("law.json", LAW), ("s.jsonl", text)], &line).code
    };
    assert_eq!(run(&few, "--alpha 1e-12"), Some(3));
    assert_eq!(run(&few, "--alpha 1e-12 --tv 0.9"), Some(0));
    assert_eq!(run(&many, "--alpha 1e-3 --tv 0.9"), Some(1));
}

#[test]
fn an_impossible_sample_fails_and_is_named() {
    let text = samples(20_000, 1, false) + "{\"tokens\":[0]}\n";
    let files = [("law.json", LAW), ("s.jsonl", &text)];
    let seen = ran(&files, "gof --expected law.json --samples s.jsonl");
    assert_eq!(seen.code, Some(1));
    assert!(
        seen.out.contains("s.jsonl:20001: [0] has probability 0"),
        "{}",
        seen.out
    );
    let json = ran(&files, "gof --expected law.json --samples s.jsonl --json").out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["tests"][0]["statistic"].is_null() && json["tests"][0]["p_value"] == 0.0);
}

/// Single tokens: a list alone, a list as p, and an object are one law. Blank lines are nothing.
#[test]
fn lists_are_laws_of_length_one() {
    let mut rng = Rng::new(6);
    let text: String = (0..10_000)
        .map(|_| format!("{{\"tokens\":[{}]}}\r\n\n", rng.below(2)))
        .collect();
    let laws = [
        "[0.5, 0.5]",
        r#"{"vocab":2,"length":1,"p":[0.5,0.5]}"#,
        r#"{"vocab":2,"length":1,"p":{"0":0.5,"1":0.5}}"#,
    ];
    let outs = laws.map(|law| {
        let files = [("law.json", law), ("s.jsonl", &text)];
        let seen = ran(&files, "gof --expected law.json --samples s.jsonl");
        assert_eq!(seen.code, Some(0), "{}{}", seen.out, seen.err);
        seen.out
    });
    assert!(outs.iter().all(|out| *out == outs[0]));
}

#[test]
fn two_sample_gives_all_three_verdicts() {
    let line = "two-sample --a A.jsonl --b B.jsonl --length 2";
    for (n, broken, code) in [(40_000, false, 0), (40_000, true, 1), (200, false, 3)] {
        let (a, b) = (samples(n, 1, false), samples(n, 2, broken));
        let seen = ran(&[("A.jsonl", &a), ("B.jsonl", &b)], line);
        assert_eq!(
            (seen.code, seen.err.as_str()),
            (Some(code), ""),
            "{}",
            seen.out
        );
    }
}

#[test]
fn samples_in_pairs_are_refused() {
    let a = samples(100, 1, false);
    let problem = refused(
        &[("A.jsonl", &a), ("B.jsonl", &a)],
        "two-sample --a A.jsonl --b B.jsonl --length 2",
    );
    assert!(problem.starts_with("B.jsonl: 100 seeds, "), "{problem}");
    assert!(
        problem.ends_with("the first, are in A.jsonl too: each sample must have its own"),
        "{problem}"
    );
}

#[test]
fn pit_gives_all_three_verdicts() {
    for (n, broken, code) in [(10_000, false, 0), (10_000, true, 1), (100, false, 3)] {
        let seen = ran(&[("T.jsonl", &trace(n, broken))], "pit --trace T.jsonl");
        assert_eq!(
            (seen.code, seen.err.as_str()),
            (Some(code), ""),
            "{}",
            seen.out
        );
        assert!(seen.out.contains("every draft accepted"), "{}", seen.out);
    }
    let seen = ran(
        &[("T.jsonl", &trace(10_000, false))],
        "pit --trace T.jsonl --alpha 1e-7 --json",
    );
    let json: serde_json::Value = serde_json::from_str(&seen.out).unwrap();
    assert_eq!(
        (seen.code, json["rows_needed"].is_null()),
        (Some(3), true),
        "no table for that alpha"
    );
    assert_eq!(json["power_table"].as_array().unwrap().len(), 7);
}

/// The short form says the same as the lists: order 2, 0, 1 by p/q.
#[test]
fn pit_takes_places() {
    let long = trace(2_000, false);
    let short: String = long
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let token = usize::try_from(line["token"].as_u64().unwrap()).unwrap();
            format!(
                "{{\"below\":{},\"p\":{}}}\n",
                [0.2, 0.7, 0.0][token],
                [0.5, 0.3, 0.2][token]
            )
        })
        .collect();
    let outs = [long, short].map(|text| ran(&[("T.jsonl", &text)], "pit --trace T.jsonl").out);
    assert_eq!(outs[0], outs[1]);
    let seen = ran(
        &[("T.jsonl", "{\"below\":0.5,\"p\":0}\n")],
        "pit --trace T.jsonl",
    );
    assert_eq!(seen.code, Some(1));
    assert!(
        seen.out.contains("T.jsonl:1: the token has probability 0"),
        "{}",
        seen.out
    );
}

#[test]
fn bad_laws_are_named() {
    for (law, problem) in [
        ("", "law.json:1: EOF while parsing a value"),
        (
            "7",
            "law.json:1: invalid type: integer `7`, expected an object with vocab, length and p, or a list of probabilities",
        ),
        ("[]", "law.json: vocab 0: must lie in 1..=2^32"),
        ("[0.5, 0.4]", "law.json: the law sums to 0.9: must be 1"),
        ("[1.5, -0.5]", "law.json: p \"0\" = 1.5: must lie in 0..=1"),
        ("[0.5, 1e999]", "law.json:1: number out of range"),
        (
            r#"{"vocab":2,"length":0,"p":{}}"#,
            "law.json: length 0: must be at least 1",
        ),
        (r#"{"vocab":2,"length":1}"#, "law.json:1: missing field `p`"),
        (
            r#"{"vocab":2,"length":1,"p":[1,0],"q":1}"#,
            "law.json:1: unknown field `q`, expected one of `vocab`, `length`, `p`",
        ),
        (
            r#"{"vocab":2,"length":2,"p":[1,0]}"#,
            "law.json: p is a list and length 2: a list needs length 1",
        ),
        (
            r#"{"vocab":3,"length":1,"p":[1,0]}"#,
            "law.json: p has 2 numbers: must be vocab, 3",
        ),
        (
            r#"{"vocab":2,"length":1,"p":{"0":0.5,"0":0.5}}"#,
            "law.json: p \"0\" stands twice: each cell once",
        ),
        (
            r#"{"vocab":2,"length":1,"p":{"2":1}}"#,
            "law.json: p \"2\": \"2\" must be a token id below vocab, 2",
        ),
        (
            r#"{"vocab":2,"length":1,"p":{"0,":1}}"#,
            "law.json: p \"0,\": \"\" must be a token id below vocab, 2",
        ),
        (
            r#"{"vocab":2,"length":1,"p":{"0,1":1}}"#,
            "law.json: p \"0,1\" has 2 tokens: must be at most length, 1",
        ),
    ] {
        let files = [("law.json", law), ("s.jsonl", "{\"tokens\":[0]}")];
        assert_eq!(
            refused(&files, "gof --expected law.json --samples s.jsonl"),
            problem
        );
    }
}

#[test]
fn bad_samples_are_named() {
    for (line, problem) in [
        (
            "{\"tokens\":[0,-1]}",
            "s.jsonl:2: invalid value: integer `-1`, expected u32",
        ),
        (
            "{\"tokens\":[0,4]}",
            "s.jsonl:2: tokens[1] = 4: must be below vocab, 4",
        ),
        (
            "{\"tokens\":[0.5]}",
            "s.jsonl:2: invalid type: floating point `0.5`, expected u32",
        ),
        (
            "{\"tokens\":\"0\"}",
            "s.jsonl:2: invalid type: string \"0\", expected a sequence",
        ),
        (
            "{\"tokens\":[0],\"tokens\":[1]}",
            "s.jsonl:2: duplicate field `tokens`",
        ),
        ("{}", "s.jsonl:2: missing field `tokens`"),
        ("{\"tokens\":[0]", "s.jsonl:2: EOF while parsing an object"),
        ("{\"tokens\":[]} {}", "s.jsonl:2: trailing characters"),
        (
            "{\"tokens\":[0],\"finish_reason\":\"error\"}",
            "s.jsonl:2: finish_reason \"error\": the request failed and is no sample; must be another reason",
        ),
    ] {
        let text = format!("{{\"tokens\":[0,1]}}\n{line}");
        let files = [("law.json", LAW), ("s.jsonl", text.as_str())];
        assert_eq!(
            refused(&files, "gof --expected law.json --samples s.jsonl"),
            problem
        );
    }
    let files = [("law.json", LAW), ("s.jsonl", "\n \n")];
    let problem = "s.jsonl: no samples: must have a line {\"tokens\":[…]} for each";
    assert_eq!(
        refused(&files, "gof --expected law.json --samples s.jsonl"),
        problem
    );
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("T.jsonl");
    fs::write(&path, b"{\"below\":0.5,\"p\":0.1,\"\xff\":1}\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyrie-verifier"));
    let seen = command
        .args(["pit", "--trace"])
        .arg(&path)
        .output()
        .unwrap();
    let err = String::from_utf8(seen.stderr).unwrap();
    assert!(
        seen.status.code() == Some(2) && err.contains("T.jsonl:1: invalid unicode"),
        "{err}"
    );
}

#[test]
fn bad_traces_are_named() {
    let form = "must have lists \"p\" and \"q\" and a \"token\", or numbers \"below\" and \"p\"";
    for (line, problem) in [
        ("{\"p\":[1],\"q\":[1]}", form),
        ("{\"p\":[1],\"token\":0}", form),
        ("{\"p\":0.5}", form),
        (
            "{\"p\":\"x\",\"below\":0}",
            "p must be a list of numbers or a number",
        ),
        (
            "{\"p\":[0.5,0.5],\"q\":[1,0],\"token\":2}",
            "token 2: must be below 2, the length of p",
        ),
        (
            "{\"p\":[0.5,0.5],\"q\":[1],\"token\":0}",
            "p has 2 numbers and q 1: must be as many",
        ),
        (
            "{\"p\":[0.5,0.4],\"q\":[1,0],\"token\":0}",
            "p sums to 0.9: must be 1",
        ),
        (
            "{\"below\":0.9,\"p\":0.2}",
            "below + p = 1.1: must be at most 1",
        ),
        (
            "{\"below\":-0.1,\"p\":0.2}",
            "below = -0.1: must lie in 0..=1",
        ),
    ] {
        assert_eq!(
            refused(&[("T.jsonl", line)], "pit --trace T.jsonl"),
            format!("T.jsonl:1: {problem}")
        );
    }
    assert_eq!(
        refused(&[("T.jsonl", "")], "pit --trace T.jsonl"),
        "T.jsonl: no rows: must have a line for each token"
    );
}

#[test]
fn wrong_usage_is_one_line() {
    let files = [("law.json", LAW), ("s.jsonl", "{\"tokens\":[0]}")];
    for (line, part) in [
        ("", "requires a subcommand"),
        ("gof --expected law.json", "--samples <FILE>"),
        (
            "gof --expected law.json --samples s.jsonl --alpha 2",
            "invalid value '2' for '--alpha <A>': must be a number in 1e-12..=0.5",
        ),
        (
            "gof --expected law.json --samples s.jsonl --alpha NaN",
            "must be a number in 1e-12..=0.5",
        ),
        (
            "gof --expected law.json --samples s.jsonl --tv 1",
            "must be a number above 0 and below 1",
        ),
        (
            "two-sample --a s.jsonl --b s.jsonl --length 0",
            "invalid value '0' for '--length <L>'",
        ),
        ("pit --trace s.jsonl --tv 0.1", "unexpected argument '--tv'"),
        (
            "gof --expected none.json --samples s.jsonl",
            "none.json: No such file or directory",
        ),
        (
            "gof --expected . --samples s.jsonl",
            ".: is a folder: must be a file",
        ),
    ] {
        let problem = refused(&files, line);
        assert!(problem.contains(part), "{line}: {problem}");
    }
    assert_eq!(ran(&[], "--version").code, Some(0));
}
