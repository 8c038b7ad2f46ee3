use super::{spec::FIELDS, *};

fn refusal(line: &str) -> String {
    match RequestSpec::from_line(line) {
        Ok(spec) => panic!("{line} was accepted: {spec:?}"),
        Err(error) => error.to_string(),
    }
}

/// A value of every field that differs from the default and fits a text prompt, and what else the
/// line needs.
const VALUES: [(&str, &str, &str); 24] = [
    ("id", "\"a\"", r#","prompt":"x""#),
    ("prompt", "\"y\"", ""),
    ("prompt_ids", "[3,4294967295]", ""),
    ("messages", r#"[{"role":"user","content":"x"}]"#, ""),
    ("chat", "true", r#","prompt":"x""#),
    ("system", "\"s\"", r#","prompt":"x","chat":true"#),
    ("max_tokens", "7", r#","prompt":"x""#),
    ("temperature", "0.5", r#","prompt":"x""#),
    ("top_k", "3", r#","prompt":"x""#),
    ("top_p", "0.25", r#","prompt":"x""#),
    ("min_p", "0.25", r#","prompt":"x""#),
    ("repetition_penalty", "1.5", r#","prompt":"x""#),
    ("presence_penalty", "-2", r#","prompt":"x""#),
    ("frequency_penalty", "2", r#","prompt":"x""#),
    ("logit_bias", r#"{"7":-100,"8":"-inf"}"#, r#","prompt":"x""#),
    ("stop", "[\"b\"]", r#","prompt":"x""#),
    ("stop_id", "[9]", r#","prompt":"x""#),
    ("ignore_eos", "true", r#","prompt":"x""#),
    ("min_tokens", "5", r#","prompt":"x""#),
    ("seed", "18446744073709551615", r#","prompt":"x""#),
    ("n", "65536", r#","prompt":"x""#),
    ("logprobs", "0", r#","prompt":"x""#),
    ("drafter_off", "true", r#","prompt":"x""#),
    ("host_semantics", "true", r#","prompt":"x""#),
];

#[test]
fn every_field_is_read_and_shown_again() {
    assert_eq!(VALUES.map(|(field, ..)| field), FIELDS);
    let plain = serde_json::to_value(RequestSpec::default()).unwrap();
    for (field, value, rest) in VALUES {
        let line = format!("{{\"{field}\":{value}{rest}}}");
        let spec = RequestSpec::from_line(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let shown = serde_json::to_value(&spec).unwrap();
        assert_ne!(shown[field], plain[field], "{field}");
        let mut again = shown.clone();
        let fields = again.as_object_mut().unwrap();
        fields.retain(|_, value| !value.is_null());
        assert_eq!(RequestSpec::from_line(&again.to_string()).unwrap(), spec);
        if !value.contains("-100") {
            let given: serde_json::Value = serde_json::from_str(value).unwrap();
            let same = shown[field] == given || shown[field].as_f64() == given.as_f64();
            assert!(same && !given.is_null(), "{field}: {}", shown[field]);
        }
    }
    let shown = serde_json::to_value(
        RequestSpec::from_line(r#"{"prompt":"x","logit_bias":{"7":-100,"8":"-inf"}}"#).unwrap(),
    );
    assert_eq!(
        shown.unwrap()["logit_bias"].to_string(),
        r#"{"7":-100.0,"8":"-inf"}"#
    );
}

#[test]
fn a_wrong_type_names_the_field_the_value_and_what_is_accepted() {
    for (field, ..) in VALUES {
        for value in ["null", "{\"z\":1}", "[[]]", "-1.5"] {
            let message = refusal(&format!("{{\"{field}\":{value}}}"));
            let numeric =
                ["temperature", "top_p", "min_p"].contains(&field) || field.ends_with("penalty");
            if numeric && value == "-1.5" {
                continue; // a number: refused for its range, or for the missing prompt
            }
            assert!(message.starts_with(field), "{field} {value}: {message}");
            assert!(message.contains("must be"), "{field} {value}: {message}");
        }
    }
}

#[test]
fn refusals() {
    for (line, parts) in [
        ("", &["not a JSON object"][..]),
        ("[1]", &["[1] is not a JSON object"]),
        ("{\"prompt\":\"x\"", &["not a JSON object", "EOF"]),
        (
            r#"{"prompt":"x","seed":1,"seed":1}"#,
            &["\"seed\" is given twice"],
        ),
        (
            r#"{"prompt":"x","topp":1}"#,
            &["topp", "unknown field", "top_p"],
        ),
        (
            r#"{"prompt":"x","prompt_logprobs":3}"#,
            &["prompt_logprobs", "unknown field"],
        ),
        (
            r#"{"prompt":"x","best_of":2}"#,
            &["best_of", "unknown field"],
        ),
        (r#"{"seed":1}"#, &["prompt: missing"]),
        (
            r#"{"prompt":"x","prompt_ids":[1]}"#,
            &["prompt_ids: cannot be used with prompt"],
        ),
        (
            r#"{"prompt_ids":[]}"#,
            &["prompt_ids []: ", "at least one token"],
        ),
        (
            r#"{"prompt_ids":[1,-1]}"#,
            &["prompt_ids[1] -1: must be a token id"],
        ),
        (
            r#"{"prompt_ids":[4294967296]}"#,
            &["4294967296: must be a token id"],
        ),
        (r#"{"messages":[]}"#, &["messages []"]),
        (
            r#"{"messages":[{"role":"user"}]}"#,
            &["messages[0]", "role and content"],
        ),
        (
            r#"{"messages":[{"role":"a","content":"b","name":"c"}]}"#,
            &["messages[0]"],
        ),
        (
            r#"{"chat":true,"prompt_ids":[1]}"#,
            &["chat: ", "prompt_ids"],
        ),
        (
            r#"{"prompt":"x","system":"s"}"#,
            &["system: needs chat or messages"],
        ),
        (
            r#"{"messages":[{"role":"system","content":"b"}],"system":"s"}"#,
            &["system: ", "already"],
        ),
        (
            r#"{"prompt":"x","max_tokens":0}"#,
            &["max_tokens 0: must be at least 1"],
        ),
        (
            r#"{"prompt":"x","max_tokens":1.0}"#,
            &["max_tokens 1.0: must be a whole number"],
        ),
        (r#"{"prompt":"x","n":0}"#, &["n 0: must lie in 1..=65536"]),
        (
            r#"{"prompt":"x","n":65537}"#,
            &["n 65537: must lie in 1..=65536"],
        ),
        (
            r#"{"prompt":"x","logprobs":257}"#,
            &["logprobs 257: must lie in 0..=256"],
        ),
        (r#"{"prompt":"x","stop":[""]}"#, &["stop \"\": "]),
        (
            r#"{"prompt":"x","stop":"a"}"#,
            &["stop \"a\": must be a list of texts"],
        ),
        (r#"{"prompt":"x","temperature":-1}"#, &["temperature -1: "]),
        (
            r#"{"prompt":"x","temperature":1e400}"#,
            &["number out of range"],
        ),
        (
            r#"{"prompt":"x","temperature":NaN}"#,
            &["not a JSON object"],
        ),
        (
            r#"{"prompt":"x","temperature":"1"}"#,
            &["temperature \"1\": must be a number"],
        ),
        (r#"{"prompt":"x","top_p":0}"#, &["top_p 0: "]),
        (r#"{"prompt":"x","min_p":1}"#, &["min_p 1: "]),
        (
            r#"{"prompt":"x","repetition_penalty":0}"#,
            &["repetition_penalty 0: "],
        ),
        (
            r#"{"prompt":"x","presence_penalty":2.5}"#,
            &["presence_penalty 2.5: "],
        ),
        (
            r#"{"prompt":"x","logit_bias":{"7":101}}"#,
            &["logit_bias 7=101: "],
        ),
        (
            r#"{"prompt":"x","logit_bias":{"07":1}}"#,
            &["logit_bias[\"07\"] 1: ", "key"],
        ),
        (
            r#"{"prompt":"x","logit_bias":{"7":"inf"}}"#,
            &["logit_bias[\"7\"] \"inf\": "],
        ),
        (
            r#"{"prompt":"x","logit_bias":[1]}"#,
            &["logit_bias [1]: must be an object"],
        ),
        (r#"{"prompt":"x","seed":-1}"#, &["seed -1: "]),
        (
            r#"{"prompt":"x","seed":18446744073709551616}"#,
            &["seed 1.844674407370955"],
        ),
        (
            r#"{"prompt":"x","ignore_eos":1}"#,
            &["ignore_eos 1: must be true or false"],
        ),
    ] {
        let message = refusal(line);
        for part in parts {
            assert!(message.contains(part), "{line}: {message}");
        }
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_bad_line_keeps_a_readable_id() {
    let id = |line| RequestSpec::id_of(line);
    assert_eq!(id(r#"{"id":"a","id2":3}"#).as_deref(), Some("a"));
    assert_eq!(id(r#"{"id":"a","seed":1,"seed":2}"#).as_deref(), Some("a"));
    assert_eq!(id(r#"{"id":7,"prompt":"x"}"#), None);
    assert_eq!(id(r#"{"id":"a""#), None);
    assert_eq!(id("3"), None);
}

mod resolving {
    use super::*;

    fn resolver() -> Resolver {
        Resolver {
            tokenizer: None,
            chat: None,
            valid: 60,
            context: 8,
            kv_tokens: 6,
        }
    }

    fn resolve(line: &str) -> Result<Request, RequestError> {
        resolver().resolve(&RequestSpec::from_line(line).unwrap(), "3", 42)
    }

    #[test]
    fn defaults_fill_what_the_line_leaves_open() {
        let request = resolve(r#"{"prompt_ids":[1,59]}"#).unwrap();
        assert_eq!((request.id.as_str(), request.seed, request.n), ("3", 42, 1));
        assert_eq!(request.prompt, [1, 59]);
        assert_eq!(
            request.max_tokens, 8,
            "more than the context is never generated"
        );
        let request = resolve(r#"{"prompt_ids":[1],"id":"a","seed":7,"max_tokens":2}"#).unwrap();
        assert_eq!(
            (request.id.as_str(), request.seed, request.max_tokens),
            ("a", 7, 2)
        );
    }

    #[test]
    fn what_this_model_cannot_do_is_refused_by_name() {
        for (line, expected) in [
            (
                r#"{"prompt_ids":[60]}"#,
                "prompt_ids 60: token ids lie in 0..60",
            ),
            (
                r#"{"prompt_ids":[1],"stop_id":[99]}"#,
                "stop_id 99: token ids lie in 0..60",
            ),
            (
                r#"{"prompt_ids":[1],"logit_bias":{"60":1}}"#,
                "logit_bias 60: token ids lie in 0..60",
            ),
            (
                r#"{"prompt_ids":[1,1,1,1,1,1,1,1,1]}"#,
                "prompt of 9 tokens: a prompt has 1..=6 tokens (positions of the model 8, kv_tokens 6)",
            ),
            (
                r#"{"prompt_ids":[1,1,1,1,1,1,1]}"#,
                "prompt of 7 tokens: a prompt has 1..=6 tokens (positions of the model 8, kv_tokens 6)",
            ),
            (
                r#"{"prompt":"x"}"#,
                "prompt: the model has no tokenizer; only prompt_ids can be used",
            ),
            (
                r#"{"prompt_ids":[1],"stop":["x"]}"#,
                "stop \"x\": stop texts need a tokenizer",
            ),
            (
                r#"{"prompt":"x","chat":true}"#,
                "prompt: the model has no chat template",
            ),
            (
                r#"{"messages":[{"role":"user","content":"x"}]}"#,
                "messages: the model has no chat template",
            ),
        ] {
            assert_eq!(resolve(line).unwrap_err().to_string(), expected);
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_line_panics(line in "\\PC{0,80}") {
        let _ = RequestSpec::from_line(&line);
        let _ = RequestSpec::id_of(&line);
    }

    #[test]
    fn no_value_panics(field in 0..FIELDS.len(), value in r#"-?[0-9.e+\-\[\]{}":,a-z]{0,24}"#) {
        let _ = RequestSpec::from_line(&format!("{{\"{}\":{value}}}", FIELDS[field]));
    }
}
