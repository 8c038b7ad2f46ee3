//! Many requests in one run.

use serde_json::Value;
use tempfile::TempDir;

use super::{on_tt, requests_file, results::consistent};

#[test]
fn bad_lines_fail_alone_and_results_keep_the_order() {
    let dir = TempDir::new().unwrap();
    let lines = [
        r#"{"prompt":"the cat","max_tokens":30,"ignore_eos":true}"#,
        r#"{"prompt":"the"#,
        r#"{"id":"two","prompt":"the","max_tokens":2,"n":3}"#,
        "",
        r#"{"id":"bad","prompt":"the","top_q":1}"#,
        r#"{"prompt":"the","temperature":-1}"#,
        r#"{"id":"ids","prompt_ids":[64]}"#,
        r#"{"messages":[{"role":"user","content":"the cat"}],"max_tokens":1}"#,
    ];
    let file = requests_file(dir.path(), &lines);
    let ran = on_tt(&["--requests", &file, "--concurrency", "3", "--draft", "@td"]);
    assert_eq!(ran.code, 1);
    let results = ran.lines();
    let shown: Vec<_> = results
        .iter()
        .map(|r| {
            (
                r["id"].as_str().unwrap(),
                r["choice"].as_u64().unwrap(),
                r["finish_reason"] == "error",
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("1", 0, false),
            ("2", 0, true),
            ("two", 0, false),
            ("two", 1, false),
            ("two", 2, false),
            ("bad", 0, true),
            ("6", 0, true),
            ("ids", 0, true),
            ("8", 0, false),
        ]
    );
    results.iter().for_each(consistent);
    for (id, part) in [
        ("2", "JSON"),
        ("bad", "top_q"),
        ("6", "temperature -1"),
        ("ids", "prompt_ids 64"),
    ] {
        let prefix = format!("error: request {id}: ");
        let line = ran
            .err
            .lines()
            .find(|line| line.starts_with(&prefix))
            .expect("a line on stderr");
        assert!(line.contains(part), "{line}");
        let record = results.iter().find(|r| r["id"] == id).unwrap();
        assert!(line.ends_with(record["error"].as_str().unwrap()), "{line}");
        assert_eq!(record["tokens"], Value::Array(Vec::new()));
    }
    assert_eq!(ran.err.lines().count(), 4, "{}", ran.err);
}

/// A result's reason is one line on stderr even if its id or its field is not.
#[test]
fn names_with_line_breaks_stay_in_their_line() {
    let dir = TempDir::new().unwrap();
    let lines = [
        r#"{"id":"a\nerror: b","prompt":"the","top\nq":1}"#,
        "{\"id\":\"c\",\"prompt\":3}",
    ];
    let file = requests_file(dir.path(), &lines);
    let ran = on_tt(&["--requests", &file]);
    assert_eq!(ran.code, 1);
    let errors: Vec<_> = ran.err.lines().collect();
    assert_eq!(errors.len(), 2, "{}", ran.err);
    assert!(errors[0].starts_with("error: request a error: b: top q: unknown field"));
    assert!(errors[1].starts_with("error: request c: prompt 3: "));
    assert_eq!(ran.lines()[0]["id"], "a\nerror: b");
}

#[test]
fn a_request_gives_the_same_tokens_alone_and_in_company() {
    let dir = TempDir::new().unwrap();
    let lines: Vec<String> = (0..7)
        .map(|i| {
            let t = [0.0, 0.7, 1.3][i % 3];
            format!(
                r#"{{"prompt":"the cat {i}","temperature":{t},"max_tokens":{},"seed":{i},"ignore_eos":true}}"#,
                5 + 4 * i
            )
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let file = requests_file(dir.path(), &lines);
    let together = on_tt(&["--requests", &file, "--draft", "@td", "--concurrency", "5"]);
    assert_eq!(together.code, 0, "{}", together.err);
    for (line, result) in lines.iter().zip(together.lines()) {
        consistent(&result);
        let alone = TempDir::new().unwrap();
        let file = requests_file(alone.path(), &[line]);
        let alone = on_tt(&["--requests", &file, "--concurrency", "1"]).result();
        assert_eq!(alone["tokens"], result["tokens"], "{line}");
    }
}

#[test]
fn a_global_seed_gives_every_line_its_own() {
    let dir = TempDir::new().unwrap();
    let line = r#"{"prompt":"the","temperature":1,"max_tokens":12,"ignore_eos":true}"#;
    let own = r#"{"prompt":"the","temperature":1,"max_tokens":12,"seed":5}"#;
    let file = requests_file(dir.path(), &[line, line, own]);
    let run = |seed| on_tt(&["--requests", &file, "--seed", seed]).lines();
    let results = run("1");
    let seeds: Vec<_> = results
        .iter()
        .map(|result| result["seed"].as_u64().unwrap())
        .collect();
    assert_ne!(seeds[0], seeds[1]);
    assert_eq!(seeds[2], 5);
    assert!(seeds.iter().all(|seed| *seed < 1 << 53));
    assert_eq!(seeds[0], eyrie::sample::derive_line(1, 1));
    let tokens = |results: &[Value]| {
        results
            .iter()
            .map(|r| r["tokens"].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(tokens(&run("1")), tokens(&results));
    assert_ne!(tokens(&run("2"))[0], tokens(&results)[0]);
}

#[test]
fn case_59_a_request_can_opt_out() {
    let dir = TempDir::new().unwrap();
    let lines = [
        r#"{"prompt":"the cat","max_tokens":20,"ignore_eos":true,"drafter_off":true}"#,
        r#"{"prompt":"the cat","max_tokens":20,"ignore_eos":true}"#,
    ];
    let file = requests_file(dir.path(), &lines);
    let results = on_tt(&["--requests", &file, "--draft", "@tt"]).lines();
    let drafted = |result: &Value| {
        let rounds = result["rounds"].as_array().unwrap();
        rounds
            .iter()
            .map(|round| round["drafted"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(drafted(&results[0]), 0);
    assert!(drafted(&results[1]) > 0);
    assert_eq!(results[0]["tokens"], results[1]["tokens"]);
}

#[test]
fn without_json_every_result_has_a_header() {
    let dir = TempDir::new().unwrap();
    let lines = [
        r#"{"prompt":"the","max_tokens":3}"#,
        r#"{"id":"x","prompt":"a","max_tokens":2,"n":2,"temperature":1}"#,
        "nonsense",
    ];
    let file = requests_file(dir.path(), &lines);
    let ran = super::generate(&["--model", "@tt", "--requests", &file]);
    assert_eq!(ran.code, 1);
    let headers: Vec<_> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("== "))
        .collect();
    assert_eq!(headers, ["== 1", "== x choice 0", "== x choice 1", "== 3"]);
}

#[test]
fn a_conversation_is_the_chat_flags_spelled_out() {
    let dir = TempDir::new().unwrap();
    let lines = [
        r#"{"prompt":"the cat","system":"be brief","chat":true,"max_tokens":8}"#,
        r#"{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"the cat"}],"max_tokens":8}"#,
        r#"{"messages":[{"role":"user","content":"the cat"}],"system":"be brief","max_tokens":8}"#,
        r#"{"prompt":"the cat","max_tokens":8}"#,
    ];
    let file = requests_file(dir.path(), &lines);
    let results = on_tt(&["--requests", &file]).lines();
    let flags = [
        "--prompt",
        "the cat",
        "--chat",
        "--system",
        "be brief",
        "--max-tokens",
        "8",
    ];
    let by_flags = on_tt(&flags).result();
    let spoken = |result: &Value| {
        (
            result["usage"]["prompt_tokens"].as_u64(),
            result["tokens"].to_string(),
        )
    };
    for result in &results[..3] {
        assert_eq!(spoken(result), spoken(&by_flags));
    }
    assert!(spoken(&results[3]).0 < spoken(&by_flags).0);
}
