//! Stops and held-back text, against a twin that looks at the whole text every time.

use proptest::prelude::*;

use super::*;
use crate::{
    TokenId,
    report::FinishReason,
    request::Request,
    sample::{RawParams, SamplingParams},
    text::Tokenizer,
};

/// Single characters and some longer tokens: stops can begin and end inside a token.
const TOKENS: [&str; 9] = ["a", "b", "c", "ab", "bca", "é", "éa", "cab", "bb"];

fn tokenizer() -> Tokenizer {
    let vocab: serde_json::Map<String, serde_json::Value> = (0..)
        .zip(TOKENS)
        .map(|(id, token): (u32, _)| (token.to_owned(), id.into()))
        .collect();
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": { "type": "Fuse" },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "a" },
    });
    let dir = tempfile::TempDir::new().expect("a folder");
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).expect("written");
    Tokenizer::from_json(&path).expect("a tokenizer")
}

fn request(stop: Vec<String>, min_tokens: usize) -> Request {
    let raw = RawParams {
        min_tokens,
        ..RawParams::default()
    };
    Request {
        id: String::new(),
        prompt: vec![0],
        params: SamplingParams::new(raw).expect("in range"),
        max_tokens: 100,
        stop,
        stop_ids: Vec::new(),
        ignore_eos: false,
        seed: 0,
        n: 1,
        logprobs: None,
        drafter_off: false,
        processors: Vec::new(),
    }
}

/// Text and number of tokens at the end, by looking at everything again after each token.
fn twin(tokens: &[TokenId], stops: &[String], min_tokens: usize, limit: usize) -> (String, usize) {
    let mut text = String::new();
    for (i, token) in tokens.iter().take(limit).enumerate() {
        let before = text.len();
        text.push_str(TOKENS[*token as usize]);
        let ends = |stop: &String| {
            let starts = (0..text.len()).filter(|at| text.is_char_boundary(*at));
            let new =
                |at: &usize| text[*at..].starts_with(stop.as_str()) && at + stop.len() > before;
            starts.into_iter().find(new)
        };
        let first = stops.iter().filter_map(ends).min();
        if let Some(cut) = first.filter(|_| i >= min_tokens) {
            return (text[..cut].to_owned(), i + 1);
        }
    }
    (text, tokens.len().min(limit))
}

proptest! {
    #[test]
    fn stops_cut_where_they_begin_and_nothing_is_taken_back(
        tokens in prop::collection::vec(0u32..9, 1..30),
        stops in prop::collection::vec("[abcé]{1,4}", 0..3),
        min_tokens in 0usize..6,
        limit in 1usize..30,
    ) {
        let tokenizer = tokenizer();
        let request = request(stops.clone(), min_tokens);
        let mut ending = Ending::new(&request, Vec::new(), limit, Some(&tokenizer));
        let (mut streamed, mut count, mut reason) = (String::new(), 0, None);
        for token in &tokens {
            let pushed = ending.push(*token).expect("decodes");
            streamed.push_str(&pushed.text);
            count += 1;
            reason = pushed.reason;
            if reason.is_some() {
                break;
            }
        }
        streamed.push_str(&ending.rest().expect("decodes"));
        let (text, length) = twin(&tokens, &stops, min_tokens, limit);
        prop_assert_eq!(&streamed, &text);
        prop_assert_eq!(ending.text(), Some(text.as_str()));
        prop_assert_eq!(count, length);
        if reason == Some(FinishReason::Length) {
            prop_assert_eq!(count, limit);
        }
    }
}

#[test]
fn a_text_that_may_begin_a_stop_is_held_back() {
    let tokenizer = tokenizer();
    let request = request(vec!["abc".to_owned()], 0);
    let mut ending = Ending::new(&request, vec![8], 50, Some(&tokenizer));
    let mut push = |token| ending.push(token).expect("decodes").text;
    assert_eq!(push(2), "c");
    assert_eq!(push(0), "");
    assert_eq!(push(1), "");
    assert_eq!(push(1), "abb");
    assert_eq!(push(3), "");
    let end = ending.push(8).expect("decodes");
    assert_eq!(
        (end.text.as_str(), end.reason),
        ("ab", Some(FinishReason::Stop))
    );
    assert_eq!(ending.text(), Some("cabbab"));
}

#[test]
fn a_stop_on_the_last_allowed_token_is_a_stop() {
    let tokenizer = tokenizer();
    let request = request(vec!["bb".to_owned()], 0);
    let mut ending = Ending::new(&request, vec![5], 2, Some(&tokenizer));
    assert_eq!(ending.push(1).expect("decodes").reason, None);
    assert_eq!(
        ending.push(1).expect("decodes").reason,
        Some(FinishReason::Stop)
    );
    assert_eq!(ending.text(), Some(""));
    let mut ending = Ending::new(&request, vec![5], 1, None);
    assert_eq!(
        ending.push(5).expect("no text").reason,
        Some(FinishReason::Stop)
    );
    assert_eq!(ending.text(), None);
}

/// A tokenizer of these tokens with another decoder.
fn spelled(tokens: &[&str], decoders: &serde_json::Value) -> Tokenizer {
    let vocab: serde_json::Map<String, serde_json::Value> = (0..)
        .zip(tokens)
        .map(|(id, token): (u32, _)| ((*token).to_owned(), id.into()))
        .collect();
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": tokens[0] },
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), json.to_string()).expect("written");
    Tokenizer::from_json(file.path()).expect("a tokenizer")
}

/// The text and the number of tokens after which a stop ended it, if one did.
fn stopped(
    tokenizer: &Tokenizer,
    tokens: &[TokenId],
    stop: &str,
    min_tokens: usize,
) -> (String, Option<usize>) {
    let request = request(vec![stop.to_owned()], min_tokens);
    let mut ending = Ending::new(&request, Vec::new(), 100, Some(tokenizer));
    let mut streamed = String::new();
    for (i, token) in tokens.iter().enumerate() {
        let pushed = ending.push(*token).expect("it decodes");
        streamed.push_str(&pushed.text);
        if pushed.reason.is_some() {
            assert_eq!(ending.text(), Some(streamed.as_str()));
            return (streamed, Some(i + 1));
        }
    }
    streamed.push_str(&ending.rest().expect("it decodes"));
    (streamed, None)
}

/// The text of a byte token is held until its run ends, but a stop text ends with the token that
/// completes it.
#[test]
fn a_byte_token_can_complete_a_stop() {
    let decoders = serde_json::json!([{ "type": "ByteFallback" }, { "type": "Fuse" }]);
    let tokenizer = spelled(&["a", "<0x0A>", "<0xC3>", "<0xA9>"], &decoders);
    let case = |tokens: &[TokenId], stop, min| stopped(&tokenizer, tokens, stop, min);
    assert_eq!(case(&[0, 1, 0], "\n", 0), ("a".to_owned(), Some(2)));
    assert_eq!(case(&[0, 1, 1, 0], "\n\n", 0), ("a".to_owned(), Some(3)));
    assert_eq!(case(&[0, 2, 3, 0], "é", 0), ("a".to_owned(), Some(3)));
    assert_eq!(case(&[0, 2, 3, 0], "aé", 0), (String::new(), Some(3)));
    assert_eq!(case(&[1, 0, 0], "\na", 0), (String::new(), Some(2)));
    // Completed too early, it does not count when the run ends.
    assert_eq!(case(&[1, 0, 0], "\n", 1), ("\naa".to_owned(), None));
    assert_eq!(case(&[1, 0, 1], "\n", 1), ("\na".to_owned(), Some(3)));
}

/// Where nothing is certain before the end, stops are found all the same.
#[test]
fn a_decoder_of_unknown_reach_has_stops_too() {
    let replace =
        serde_json::json!({ "type": "Replace", "pattern": { "String": "aa" }, "content": "b" });
    let tokenizer = spelled(
        &["a", "c"],
        &serde_json::json!([{ "type": "Fuse" }, replace]),
    );
    assert_eq!(
        stopped(&tokenizer, &[1, 0, 0, 1], "b", 0),
        ("c".to_owned(), Some(3))
    );
    assert_eq!(
        stopped(&tokenizer, &[1, 0, 1, 0], "b", 0),
        ("caca".to_owned(), None)
    );
}
