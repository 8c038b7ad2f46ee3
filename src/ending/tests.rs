//! Stops and held-back text, against a twin that looks at the whole text every time.

use proptest::prelude::*;

use super::*;
use crate::{
    TokenId,
    report::FinishReason,
    request::Request,
    sample::{RawParams, SamplingParams, Semantics},
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
    request_of(stop, min_tokens, Semantics::Eyrie)
}

fn request_of(stop: Vec<String>, min_tokens: usize, semantics: Semantics) -> Request {
    let raw = RawParams {
        min_tokens,
        semantics,
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

/// The end of a host's choice: text, number of tokens and reason, by searching the whole text before
/// each token.
fn late_twin(
    tokens: &[TokenId],
    stops: &[String],
    end: TokenId,
    limit: usize,
) -> (String, usize, Option<FinishReason>) {
    let mut text = String::new();
    for (count, token) in (1..).zip(tokens) {
        if *token == end {
            return (text, count, Some(FinishReason::Stop));
        }
        let longer = text.clone() + TOKENS[*token as usize];
        if count == limit {
            return (longer, count, Some(FinishReason::Length));
        }
        if let Some(at) = stops.iter().find_map(|stop| text.find(stop.as_str())) {
            return (text[..at].to_owned(), count, Some(FinishReason::Stop));
        }
        text = longer;
    }
    (text, tokens.len(), None)
}

/// What was streamed, the number of tokens, and the reason.
fn driven(ending: &mut Ending, tokens: &[TokenId]) -> (String, usize, Option<FinishReason>) {
    let mut streamed = String::new();
    for (count, token) in (1..).zip(tokens) {
        let pushed = ending.push(*token).expect("decodes");
        streamed.push_str(&pushed.text);
        if pushed.reason.is_some() {
            return (streamed, count, pushed.reason);
        }
    }
    streamed.push_str(&ending.rest().expect("decodes"));
    (streamed, tokens.len(), None)
}

proptest! {
    #[test]
    fn a_host_sees_stops_one_token_late(
        tokens in prop::collection::vec(0u32..9, 1..30),
        stops in prop::collection::vec("[abcé]{1,3}", 0..3),
        end in 0u32..12,
        limit in 1usize..30,
    ) {
        let tokenizer = tokenizer();
        let request = request_of(stops.clone(), 0, Semantics::Host);
        let mut ending = Ending::new(&request, vec![end], limit, Some(&tokenizer));
        let found = driven(&mut ending, &tokens);
        let text = ending.text().map(str::to_owned);
        prop_assert_eq!(&found, &late_twin(&tokens, &stops, end, limit));
        prop_assert_eq!(text, Some(found.0));
    }
}

/// By hand, with 4 = "bca" as the end token: the stop text, then each of the ways to end.
#[test]
fn a_hosts_reasons_have_an_order() {
    let tokenizer = tokenizer();
    let case = |tokens: &[TokenId], limit| {
        let stops = ["bb", "ab"].map(str::to_owned).to_vec();
        let request = request_of(stops, 0, Semantics::Host);
        let mut ending = Ending::new(&request, vec![4], limit, Some(&tokenizer));
        let (text, count, reason) = driven(&mut ending, tokens);
        assert_eq!(ending.text(), Some(text.as_str()));
        (text, count, reason)
    };
    let stop = Some(FinishReason::Stop);
    let length = Some(FinishReason::Length);
    // The token after the stop text is counted and not in the text.
    assert_eq!(case(&[2, 8, 2, 2], 9), ("c".to_owned(), 3, stop));
    // It is an end token: nothing is cut.
    assert_eq!(case(&[2, 8, 4, 2], 9), ("cbb".to_owned(), 3, stop));
    // It is the last allowed one: nothing is cut.
    assert_eq!(case(&[2, 8, 2, 2], 3), ("cbbc".to_owned(), 3, length));
    // An end token goes before the limit.
    assert_eq!(case(&[2, 8, 4, 2], 3), ("cbb".to_owned(), 3, stop));
    // The stop text is complete with the last allowed token, and nobody looks.
    assert_eq!(case(&[2, 8], 2), ("cbb".to_owned(), 2, length));
    assert_eq!(case(&[2, 3, 8, 2], 9), ("c".to_owned(), 3, stop));
    // Two are complete at once: the first in order is cut, not the earliest.
    assert_eq!(case(&[0, 8, 2], 9), ("a".to_owned(), 3, stop));
}

/// A stop text in text that later tokens could change is held back, and cut all the same.
#[test]
fn a_host_cuts_a_stop_of_byte_tokens() {
    let decoders = serde_json::json!([{ "type": "ByteFallback" }, { "type": "Fuse" }]);
    let tokenizer = spelled(&["a", "<0x0A>", "<0xC3>", "<0xA9>"], &decoders);
    let case = |tokens: &[TokenId], stop: &str| {
        let request = request_of(vec![stop.to_owned()], 0, Semantics::Host);
        let mut ending = Ending::new(&request, vec![9], 100, Some(&tokenizer));
        let (text, count, reason) = driven(&mut ending, tokens);
        (text, count, reason.is_some())
    };
    assert_eq!(case(&[0, 1, 1, 0], "\n"), ("a".to_owned(), 3, true));
    assert_eq!(case(&[0, 2, 3, 0, 0], "é"), ("a".to_owned(), 4, true));
    assert_eq!(case(&[0, 2, 3, 9], "é"), ("aé".to_owned(), 4, true));
    assert_eq!(case(&[0, 1], "\n"), ("a\n".to_owned(), 2, false));
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
