//! Cases 18 to 25: ends, limits, log-probabilities, usage.

use std::sync::{Arc, atomic::Ordering};

use eyrie::{
    TokenId,
    draft::NoDrafter,
    report::FinishReason,
    request::{Request, RequestSpec},
};
use eyrie_verifier::chi2;

use super::{ALPHA, assert_law};
use crate::support::{
    Lab, Seens, Spy, constant_target, drafter, drawn, request, table_target, tt_target,
};

/// A target that says " ha" for ever over the tiny tokenizer, and the lab around it.
fn laughing() -> (Lab, Vec<TokenId>) {
    let tokenizer = crate::support::tiny_tokenizer();
    let letters: Vec<TokenId> = [" ", "h", "a"]
        .map(|c| tokenizer.encode(c).unwrap()[0])
        .to_vec();
    let vocab = tokenizer.valid();
    let mut m = vec![vec![0.0; vocab]; vocab];
    for (i, letter) in letters.iter().enumerate() {
        m[*letter as usize][letters[(i + 1) % 3] as usize] = 9.0;
    }
    let lab = Lab::new(table_target(&m)).with(|lab| lab.text = Some(tokenizer));
    (lab, letters)
}

/// Case 18: a stop text cuts text, ids, log-probabilities, stream and usage at the same token.
#[test]
fn c18_a_stop_text_ends_everything_at_once() {
    let (lab, letters) = laughing();
    for depth in 1..=9 {
        let lab = Lab {
            options: eyrie::schedule::EngineOptions {
                depth,
                nodes: None,
                ..lab.options
            },
            ..laughing().0
        };
        let request = Request {
            stop: vec![" ha ha ha".to_owned()],
            logprobs: Some(2),
            max_tokens: 60,
            ..request(&[letters[1], letters[2]])
        };
        for name in ["self", "ngram", "none"] {
            let run = lab.run(drafter(&lab, name), std::slice::from_ref(&request));
            let choice = &run.choices[0];
            assert_eq!(choice.text.as_deref(), Some(""), "depth {depth} {name}");
            assert_eq!(choice.tokens.len(), 9);
            assert_eq!(choice.logprobs.as_ref().map(Vec::len), Some(9));
            assert_eq!(choice.usage.completion_tokens, 9);
            assert_eq!(choice.finish_reason, FinishReason::Stop);
        }
    }
}

/// Case 19: usage counts what was delivered, at every limit and wherever the end falls.
#[test]
fn c19_usage_is_what_was_delivered() {
    let base = Lab::new(tt_target());
    let long = base
        .base(&[Request {
            max_tokens: 24,
            ..drawn(&[4, 4], 1.0, 8)
        }])
        .remove(0);
    for end in [
        None,
        Some(long[1]),
        Some(long[6]),
        Some(long[13]),
        Some(long[20]),
    ] {
        let lab = Lab::new(tt_target()).with(|lab| {
            lab.eos = end.into_iter().collect();
            lab.options.depth = 5;
        });
        for max_tokens in 1..=16 {
            let request = Request {
                max_tokens,
                logprobs: Some(0),
                ..drawn(&[4, 4], 1.0, 8)
            };
            let run = lab.run(lab.self_drafter(), &[request]);
            let first = end.and_then(|end| long.iter().position(|token| *token == end));
            let ended = first.is_some_and(|at| at < max_tokens);
            let count = if ended {
                first.unwrap() + 1
            } else {
                max_tokens
            };
            let choice = &run.choices[0];
            assert_eq!(choice.tokens, long[..count]);
            assert_eq!(choice.usage.completion_tokens, count);
            assert_eq!(choice.logprobs.as_ref().map(Vec::len), Some(count));
            let reason = if ended {
                FinishReason::Stop
            } else {
                FinishReason::Length
            };
            assert_eq!(choice.finish_reason, reason);
        }
    }
}

/// Case 20: a log-probability for every token, equal to plain decoding's, bit for bit.
#[test]
fn c20_logprobs_are_those_of_plain_decoding() {
    let lab = Lab::new(tt_target());
    for t in [0.0, 1.0] {
        let request = Request {
            logprobs: Some(5),
            ..drawn(&[5, 1, 5], t, 2)
        };
        let plain = lab.run(Box::new(NoDrafter), std::slice::from_ref(&request));
        let want = plain.choices[0].logprobs.clone().unwrap();
        assert!(
            want.iter()
                .all(|entry| entry.top.len() == 5 && entry.logprob < 0.0)
        );
        for name in ["self", "script", "td"] {
            let run = lab.run(drafter(&lab, name), std::slice::from_ref(&request));
            assert_eq!(
                run.choices[0].logprobs.as_ref(),
                Some(&want),
                "{name} at {t}"
            );
        }
        // The truth, from one pass over the finished text.
        let tokens = [&[5, 1, 5][..], &plain.choices[0].tokens].concat();
        let logits = crate::support::all_logits(&*lab.target, &tokens);
        for (i, entry) in want.iter().enumerate() {
            let row = logits.row(2 + i);
            let max = row.iter().fold(f64::MIN, |m, x| m.max(f64::from(*x)));
            let sum: f64 = row.iter().map(|x| (f64::from(*x) - max).exp()).sum();
            let truth = f64::from(row[entry.id as usize]) - max - sum.ln();
            assert!((truth - entry.logprob).abs() < 1e-9, "{truth} {entry:?}");
        }
    }
}

/// Case 21: asking for log-probabilities does not switch speculation off.
#[test]
fn c21_logprobs_do_not_stop_drafting() {
    let lab = Lab::new(tt_target());
    let plain = lab.run(lab.self_drafter(), &[request(&[6, 2])]);
    let with = Request {
        logprobs: Some(3),
        ..request(&[6, 2])
    };
    let with = lab.run(lab.self_drafter(), &[with]);
    assert!(plain.drafted_accepted().0 > 0);
    assert_eq!(with.choices[0].rounds, plain.choices[0].rounds);
}

/// Case 22: log-probabilities of the prompt are not offered, and said not to be.
#[test]
fn c22_prompt_logprobs_are_refused_by_name() {
    let error = RequestSpec::from_line(r#"{"prompt_ids":[1],"prompt_logprobs":3}"#).unwrap_err();
    assert!(error.to_string().contains("prompt_logprobs"), "{error}");
}

/// Case 23: n choices are n independent samples; beams are refused by name.
#[test]
fn c23_choices_are_independent() {
    let lab = Lab::new(constant_target(&[0.125; 8]));
    let requests: Vec<_> = (0..500)
        .map(|seed| Request {
            n: 4,
            max_tokens: 2,
            ..drawn(&[0], 1.0, seed)
        })
        .collect();
    let tokens = lab.run(lab.self_drafter(), &requests).tokens();
    assert_eq!(tokens.len(), 2000);
    for index in 0..2 {
        assert_law(&tokens, index, &[0.125; 8]);
    }
    let mut cells = vec![0u64; 64];
    for request in tokens.chunks(4) {
        for (a, b) in [(0, 1), (2, 3)] {
            cells[(request[a][1] * 8 + request[b][1]) as usize] += 1;
        }
    }
    let test = chi2::goodness_of_fit(&cells, &[1.0 / 64.0; 64]).unwrap();
    assert!(test.p_value > ALPHA, "{test:?}");
    for field in ["num_beams", "best_of", "use_beam_search"] {
        let line = format!(r#"{{"prompt_ids":[1],"{field}":2}}"#);
        let error = RequestSpec::from_line(&line).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}

/// Case 25: no draft for a last token, and never more drafts than can be delivered before it.
#[test]
fn c25_the_last_token_is_not_drafted_for() {
    let lab = Lab::new(tt_target()).with(|lab| lab.options.depth = 6);
    for max_tokens in 1..=9 {
        let seen = Arc::new(Seens::default());
        let spy = Spy {
            inner: lab.self_drafter(),
            seen: Arc::clone(&seen),
        };
        let run = lab.run(
            Box::new(spy),
            &[Request {
                max_tokens,
                ..request(&[3, 3])
            }],
        );
        if max_tokens == 1 {
            assert_eq!(seen.calls.load(Ordering::Relaxed), 0);
            assert_eq!(seen.observed.load(Ordering::Relaxed), 0);
        }
        for trace in &run.traces {
            let left = max_tokens - (trace.position + 1 - 2);
            assert!(
                trace.drafted.len() < left,
                "{left} left, {} drafted",
                trace.drafted.len()
            );
        }
    }
}
