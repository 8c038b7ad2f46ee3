//! Grammars with drafts: case 24, digits only and a script that proposes letters, and what follows.

use eyrie_host_client::{Outcome, Request};
use serde_json::{Value, json};

use crate::support::{DRAFTERS, Host, Models, NAME, PLAIN, speculative, texts, used};

fn under(kind: &str, grammar: impl Into<Value>) -> Request {
    let request = Request::completion(kind, "abababab").with("max_tokens", 24);
    request.with("grammar", json!({"type": kind, "value": grammar.into()}))
}

/// Checks the answer with and without drafts against each other, and gives it.
async fn both(host: &Host, request: &Request) -> Outcome {
    let outcome = host.one(NAME, request).await;
    let plain = host.one(PLAIN, request).await;
    assert_eq!(texts(&outcome), texts(&plain), "{request:?}");
    for (one, other) in outcome.choices.iter().zip(&plain.choices) {
        assert_eq!(one.finish_reason, other.finish_reason, "{request:?}");
        assert_eq!(one.logprobs, other.logprobs, "{request:?}");
    }
    let tokens = |outcome| used(outcome, "completion_tokens");
    assert_eq!(tokens(&outcome), tokens(&plain), "{request:?}");
    assert_eq!(speculative(&plain, "drafted"), 0);
    outcome
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Ids of the fixtures' tokens.
fn ids(text: &str) -> Vec<u32> {
    let tokens = eyrie_fixtures::tokenizer::tokens();
    let id = |letter: char| tokens.iter().position(|token| *token == letter.to_string());
    let ids = text.chars().map(|letter| id(letter).expect("a token"));
    ids.map(|id| u32::try_from(id).expect("a small number"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c24_digits_only_and_a_script_of_letters() {
    for (script, temperature) in [
        ("@letters.json", 0.0),
        ("@letters.json", 1.0),
        ("@script.json", 0.0),
        ("@script.json", 1.0),
    ] {
        let host = start_over(script).await;
        let request = under("regex", "[0-9]{18}").with("temperature", temperature);
        let request = request.with("logprobs", 3);
        let outcome = both(&host, &request).await;
        let text = texts(&outcome)[0];
        assert!(text.len() == 18 && digits(text), "{text}");
        assert!(speculative(&outcome, "drafted") > 0);
        if script == "@letters.json" {
            assert_eq!(speculative(&outcome, "accepted"), 0);
        }
        // The same without an end to the digits: the state is right after every rejection.
        let request = under("regex", "[0-9]+").with("temperature", temperature);
        let outcome = both(&host, &request).await;
        assert!(digits(texts(&outcome)[0]), "{outcome:?}");
        host.is_empty().await;
    }
}

async fn start_over(script: &str) -> Host {
    let models = Models::tt();
    // Letters; a digit before letters; an end token; ids that do not exist.
    let rounds = [
        ids("abc"),
        ids("7ab"),
        vec![2, 2],
        vec![61, 9_999],
        ids("0123"),
    ];
    models.script("script.json", &vec![rounds; 20].concat());
    models.script("letters.json", &vec![ids("abcd"); 50]);
    Host::start(
        models,
        &["--drafter", "script", "--draft", script, "--seed", "5"],
    )
    .await
}

/// What a grammar forces, a drafter under the same grammar guesses.
#[tokio::test(flavor = "multi_thread")]
async fn drafts_within_a_grammar_are_accepted() {
    for (name, flags) in &DRAFTERS[1..] {
        let host = Host::start(Models::tt(), &[flags, &["--seed", "9"][..]].concat()).await;
        for temperature in [0.0, 1.0] {
            let with = |request: Request| request.with("temperature", temperature);
            let outcome = both(&host, &with(under("regex", "(ab){8}"))).await;
            assert_eq!(texts(&outcome), ["ab".repeat(8)]);
            let accepted = speculative(&outcome, "accepted");
            assert!(accepted > 0, "{name} at {temperature}: {outcome:?}");

            let schema = json!({"type": "string", "enum": ["yes", "no"]});
            let outcome = both(&host, &with(under("json_schema", schema))).await;
            assert!(
                ["\"yes\"", "\"no\""].contains(&texts(&outcome)[0]),
                "{outcome:?}"
            );

            let outcome = both(
                &host,
                &with(under("lark", "start: /[a-c]{4}/ \"x\" /[0-9]/")),
            )
            .await;
            let text = texts(&outcome)[0].as_bytes();
            assert!(text.len() == 6 && text[4] == b'x' && text[5].is_ascii_digit());

            let request = with(under("regex", "[a-f]{10}")).with("n", 3);
            let outcome = both(&host, &request).await;
            for text in texts(&outcome) {
                assert!(text.len() == 10 && text.bytes().all(|b| (b'a'..=b'f').contains(&b)));
            }
            // Ends that are not the grammar's.
            let request = with(under("regex", "(abc){8}")).with("stop", json!(["ca"]));
            assert_eq!(texts(&both(&host, &request).await), ["ab"]);
            let request = with(under("regex", "(abc){8}")).with("max_tokens", 5);
            assert_eq!(texts(&both(&host, &request).await), ["abcab"]);
            let request = with(under("regex", "(abc){8}")).with("stop", json!(["c"]));
            assert_eq!(texts(&both(&host, &request).await), ["ab"]);
        }
        host.is_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_keep_the_law_alone_keep_the_grammar() {
    for (rule, drafter) in [("rejection", 3), ("rejection", 4), ("block", 3)] {
        let flags = [DRAFTERS[drafter].1, &["--rule", rule][..]].concat();
        let host = Host::start(Models::tt(), &flags).await;
        let request = under("regex", "[0-9]{18}")
            .with("temperature", 1.0)
            .with("n", 4);
        let outcome = host.one(NAME, &request).await;
        for text in texts(&outcome) {
            assert!(text.len() == 18 && digits(text), "{text}");
        }
        assert!(speculative(&outcome, "accepted") > 0, "{rule}: {outcome:?}");
        host.is_empty().await;
    }
}
