//! Who runs: caches that are too small for everyone, and requests that fail in company.

use std::sync::Arc;

use eyrie::{
    accept::Match,
    draft::NoDrafter,
    report::{ChoiceReport, FinishReason},
    request::Request,
    schedule::{Engine, EngineOptions, Parts},
};

use crate::support::{Lab, Poisoned, drafter, drawn, prompts, request, tt_target};

fn tight(kv_tokens: usize) -> Lab {
    Lab::new(tt_target()).with(|lab| {
        lab.options = EngineOptions {
            kv_tokens,
            ..lab.options
        }
    })
}

/// Requests that only fit by turns: rows are taken away and fed again, and no token changes.
#[test]
fn a_cache_too_small_for_all_changes_no_token() {
    let requests: Vec<_> = (0..10)
        .map(|i| Request {
            max_tokens: 30,
            n: 1 + i % 3,
            ..drawn(&prompts(64)[i], [0.0, 0.9][i % 2], i as u64)
        })
        .collect();
    let base = Lab::new(tt_target()).base(&requests);
    for kv_tokens in [53, 60, 90, 150] {
        let lab = tight(kv_tokens);
        for name in ["none", "self", "ngram"] {
            let run = lab.run(drafter(&lab, name), &requests);
            assert_eq!(run.tokens(), base, "{name} with {kv_tokens} slots");
        }
    }
}

/// What one request alone cannot get is an error of that request, with the tokens that did fit; a
/// choice has what a request of one choice has, and the others go on.
#[test]
fn what_never_fits_fails_alone_and_names_the_cache() {
    let lab = tight(20);
    let large = Request {
        max_tokens: 40,
        n: 3,
        ..drawn(&[5, 6, 7, 8], 1.0, 3)
    };
    let small = Request {
        max_tokens: 6,
        ..request(&[9, 2])
    };
    let whole = Lab::new(tt_target()).base(&[large.clone(), small.clone()]);
    for name in ["none", "self"] {
        let run = lab.run(drafter(&lab, name), &[large.clone(), small.clone()]);
        for (choice, whole) in run.choices[..3].iter().zip(&whole) {
            assert_eq!(choice.finish_reason, FinishReason::Error);
            assert_eq!(
                choice.tokens,
                whole[..17],
                "rows 0 to 19, and the last token has none"
            );
            let error = choice.error.as_deref().expect("a reason");
            assert!(error.contains("kv-tokens 20"), "{error}");
        }
        assert_eq!(run.choices[3].tokens, whole[3], "{name}");
    }
}

/// Many choices in a cache that holds few: those begun are finished before others begin.
#[test]
fn suspended_choices_go_before_new_ones() {
    let lab = tight(40);
    let many = Request {
        max_tokens: 12,
        n: 200,
        ..drawn(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1.3, 4)
    };
    let mut engine = lab.engine(Box::new(NoDrafter));
    engine.submit(many.clone()).expect("a valid request");
    let (mut begun, mut done) = (0usize, Vec::<ChoiceReport>::new());
    while !engine.is_idle() {
        for event in engine.step() {
            match event {
                eyrie::schedule::Event::Piece { choice, .. } => begun = begun.max(choice + 1),
                eyrie::schedule::Event::Finished { report, .. } => done.push(report),
                eyrie::schedule::Event::Round { .. } => {}
            }
        }
        assert!(
            begun - done.len() <= lab.options.max_batch,
            "{begun} choices begun, {} done",
            done.len()
        );
    }
    done.sort_by_key(|report| report.choice);
    let tokens: Vec<_> = done.into_iter().map(|report| report.tokens).collect();
    assert_eq!(tokens, Lab::new(tt_target()).base(&[many]));
}

/// Logits that are not finite end their request at the first token that needs them, and no other.
#[test]
fn logits_that_are_no_numbers_end_one_request_at_its_position() {
    let clean = Lab::new(tt_target());
    let requests: Vec<_> = prompts(64)[..8].iter().map(|p| request(p)).collect();
    let base = clean.base(&requests);
    let after = base[2][9];
    let poisoned = Lab::new(Arc::new(Poisoned {
        inner: tt_target(),
        after,
    }));
    let clean_drafter = |name: &str| drafter(&clean, name);
    for name in ["none", "self", "ngram", "script"] {
        let run = poisoned.run(clean_drafter(name), &requests);
        let mut failed = 0;
        for ((request, whole), choice) in requests.iter().zip(&base).zip(&run.choices) {
            let in_prompt = request.prompt.last() == Some(&after);
            let hit = whole[..whole.len() - 1].iter().position(|t| *t == after);
            let kept = match (in_prompt, hit) {
                (true, _) => 0,
                (false, Some(at)) => at + 1,
                (false, None) => whole.len(),
            };
            assert_eq!(choice.tokens, whole[..kept], "{name}");
            if kept == whole.len() {
                assert_eq!(choice.error, None, "{name}");
                continue;
            }
            failed += 1;
            let position = request.prompt.len() + kept;
            let error = choice.error.as_deref().expect("a reason");
            assert!(
                error.ends_with(&format!("not finite at position {position}")),
                "{name}: {error}"
            );
        }
        assert!((1..requests.len()).contains(&failed), "{failed} failed");
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let lab = Lab::new(tt_target());
    type Set = fn(&mut EngineOptions, usize);
    let cases: [(&str, Set, &[usize]); 4] = [
        ("depth", |o, x| o.depth = x, &[0, 65]),
        ("max-batch", |o, x| o.max_batch = x, &[0]),
        ("kv-tokens", |o, x| o.kv_tokens = x, &[0, 1 << 32]),
        ("prefill-chunk", |o, x| o.prefill_chunk = x, &[0]),
    ];
    for (name, set, bad) in cases {
        for value in bad {
            let mut options = lab.options;
            set(&mut options, *value);
            let parts = Parts {
                target: Arc::clone(&lab.target),
                text: None,
                eos: Vec::new(),
                valid: 64,
                drafter: Box::new(NoDrafter),
                rule: Box::new(Match),
            };
            let error = Engine::new(parts, options).expect_err("out of range");
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("{name} {value}: ")),
                "{message}"
            );
        }
    }
}
