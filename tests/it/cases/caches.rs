//! Cases 49 to 59: caches, batches and who runs when.

use std::sync::Arc;

use eyrie::{
    TokenId,
    draft::{Ngram, NoDrafter},
    kernels::Format,
    model::load::Checkpoint,
    request::Request,
};
use eyrie_fixtures::tt;

use crate::support::{
    Lab, Seens, Spy, drafter, drawn, prompts, request, take, target_of, td_target, to, tt_target,
};

/// Case 50: a cache that forgets is not there: a sliding window is refused at load, by name.
#[test]
fn c50_a_sliding_window_is_refused_at_load() {
    let dir = tempfile::TempDir::new().unwrap();
    tt().write_dir(dir.path()).unwrap();
    let path = dir.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["sliding_window"] = 16.into();
    std::fs::write(&path, config.to_string()).unwrap();
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(
        message.contains("sliding_window") && message.contains("16"),
        "{message}"
    );
}

/// Case 51: a pass of many tokens after a cached prefix sees the whole prefix.
#[test]
fn c51_many_tokens_after_a_prefix_equal_one_at_a_time() {
    for dtype in [
        to(Format::F32),
        to(Format::F16),
        to(Format::Q8_0),
        to(Format::Q4_0),
    ] {
        let target = target_of(&tt(), dtype, 2);
        let tokens: Vec<TokenId> = (0..8).map(|i| i * 5 % 64).collect();
        let one_by_one = crate::support::logits_in_chunks(&*target, &tokens, &[1; 8]);
        for chunks in [&[5, 3][..], &[8], &[1, 7], &[2, 2, 2, 2]] {
            let got = crate::support::logits_in_chunks(&*target, &tokens, chunks);
            assert_eq!(
                got.as_slice(),
                one_by_one.as_slice(),
                "{dtype:?} {chunks:?}"
            );
        }
    }
}

/// Case 53: requests that vanish mid-way take nothing with them.
#[test]
fn c53_cancelling_leaves_the_others_alone() {
    let lab = Lab::new(td_target()).with(|lab| lab.options.max_batch = 6);
    let requests: Vec<_> = (0..8)
        .map(|i| Request {
            max_tokens: 12,
            n: 1 + i % 2,
            ..drawn(&prompts(64)[i], 1.0, i as u64)
        })
        .collect();
    let base: Vec<_> = requests
        .iter()
        .map(|request| {
            lab.run(Box::new(NoDrafter), std::slice::from_ref(request))
                .tokens()
        })
        .collect();
    for round in 0..100usize {
        let mut engine = lab.engine(if round % 2 == 0 {
            lab.self_drafter()
        } else {
            Box::new(Ngram)
        });
        let handles: Vec<_> = requests
            .iter()
            .map(|r| engine.submit(r.clone()).unwrap())
            .collect();
        let gone = [round % 8, (round / 8 + 3) % 8, (round * 3 + 1) % 8];
        let (mut cancelled, mut finished) = (Vec::new(), Vec::new());
        let mut step = |engine: &mut eyrie::schedule::Engine, cancelled: &[usize]| {
            for event in engine.step() {
                if let eyrie::schedule::Event::Finished { request, report } = event {
                    let at = handles.iter().position(|handle| *handle == request);
                    let at = at.expect("a request of ours");
                    assert!(!cancelled.contains(&at), "a ghost finished");
                    assert_eq!(report.tokens, base[at][report.choice]);
                    finished.push((at, report.choice));
                }
            }
        };
        for (i, victim) in gone.iter().enumerate() {
            for _ in 0..(round * (i + 1)) % 4 {
                step(&mut engine, &cancelled);
            }
            engine.cancel(handles[*victim]);
            cancelled.push(*victim);
        }
        while !engine.is_idle() {
            step(&mut engine, &cancelled);
        }
        finished.retain(|(at, _)| !gone.contains(at));
        finished.sort_unstable();
        let left = (0..requests.len()).filter(|at| !gone.contains(at));
        let choices = left.flat_map(|at| (0..requests[at].n).map(move |choice| (at, choice)));
        assert_eq!(
            finished,
            choices.collect::<Vec<_>>(),
            "every survivor ends once"
        );
        assert_eq!(engine.cache().free(), engine.cache().capacity());
    }
}

/// Case 54: every prompt's tokens are its own at every batch size and with staggered arrivals.
#[test]
fn c54_batches_do_not_mix() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = (0..16)
        .map(|i| Request {
            max_tokens: 10 + i,
            ..drawn(&prompts(64)[i], [0.0, 0.7, 1.3][i % 3], i as u64)
        })
        .collect();
    let base = lab.base(&requests);
    for batch in [1, 2, 3, 8, 16] {
        let lab = Lab::new(tt_target()).with(|lab| lab.options.max_batch = batch);
        for name in ["td", "ngram", "script"] {
            let mut engine = lab.engine(drafter(&lab, name));
            let (mut run, mut done) = Default::default();
            for request in &requests {
                engine.submit(request.clone()).unwrap();
                for event in engine.step() {
                    take(&mut run, &mut done, event);
                }
            }
            let rest = finish_with(&mut engine, run, done);
            assert_eq!(rest, base, "{name} at batch {batch}");
        }
    }
}

/// Steps to the end and returns the tokens in order of submission.
fn finish_with(
    engine: &mut eyrie::schedule::Engine,
    mut run: crate::support::Run,
    mut done: Vec<(
        eyrie::schedule::RequestHandle,
        usize,
        eyrie::report::ChoiceReport,
    )>,
) -> Vec<Vec<TokenId>> {
    while !engine.is_idle() {
        for event in engine.step() {
            take(&mut run, &mut done, event);
        }
    }
    done.sort_by_key(|entry| (entry.0, entry.1));
    done.into_iter()
        .map(|(_, _, report)| report.tokens)
        .collect()
}

/// Case 59: a request that opts out is never drafted for, and says zero drafts.
#[test]
fn c59_a_request_can_opt_out() {
    let lab = Lab::new(tt_target());
    let requests = [
        request(&[11, 2]),
        Request {
            drafter_off: true,
            processors: Vec::new(),
            ..request(&[12, 2])
        },
    ];
    let seen = Arc::new(Seens::default());
    let spy = Spy {
        inner: lab.self_drafter(),
        seen: Arc::clone(&seen),
    };
    let run = lab.run(Box::new(spy), &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    assert!(
        seen.prompts
            .lock()
            .unwrap()
            .iter()
            .all(|first| *first == 11)
    );
    assert!(run.choices[0].rounds.iter().any(|round| round.accepted > 0));
    assert!(run.choices[1].rounds.iter().all(|round| round.drafted == 0));
}
