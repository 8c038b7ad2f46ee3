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
