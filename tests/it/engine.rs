//! The engine when something runs out or breaks: memory, positions, the target itself.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eyrie::{
    TokenId,
    accept::Match,
    cache::{KvCache, Txn},
    draft::{Drafter, ModelDrafter, Ngram, NoDrafter, Pick},
    error::{ErrorKind, Result},
    model::{Forward, Rows, Target},
    report::{ChoiceReport, FinishReason},
    request::Request,
    schedule::{Engine, EngineOptions, Event, Parts},
};

use crate::support::{
    Lab, Seens, Spy, constant_target, drafter, drawn, finish, params, prompts, request, take,
    tt_target,
};

/// The tiny target, with a fault.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Target>,
    /// Passes until one fails.
    passes: AtomicUsize,
    /// Logits after this token are not finite.
    poison: Option<TokenId>,
}

impl Faulty {
    pub(crate) fn new(passes: usize, poison: Option<TokenId>) -> Arc<Self> {
        Arc::new(Self {
            inner: tt_target(),
            passes: AtomicUsize::new(passes),
            poison,
        })
    }
}

impl Target for Faulty {
    fn vocab(&self) -> usize {
        self.inner.vocab()
    }

    fn context(&self) -> usize {
        self.inner.context()
    }

    fn layers(&self) -> usize {
        self.inner.layers()
    }

    fn hidden(&self) -> usize {
        self.inner.hidden()
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        self.inner.new_cache(slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> eyrie::Matrix {
        self.inner.embed(tokens)
    }

    fn final_norm(&self, x: &mut eyrie::Matrix) {
        self.inner.final_norm(x);
    }

    fn head(&self, normed: &eyrie::Matrix) -> eyrie::Matrix {
        self.inner.head(normed)
    }

    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward> {
        let mut out = self.inner.forward(rows, txn, taps)?;
        if self.passes.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(ErrorKind::Rows("the device is lost".to_owned()).into());
        }
        for (logits, row) in rows.wanted().iter().enumerate() {
            if Some(rows.tokens()[*row]) == self.poison {
                out.logits.row_mut(logits)[3] = f32::NAN;
            }
        }
        Ok(out)
    }
}

/// Requests of different lengths and parameters.
fn mixed(count: usize) -> Vec<Request> {
    let one = |i: usize| Request {
        max_tokens: 16 + i,
        n: 1 + i % 3,
        ..drawn(&prompts(64)[i + 2], [0.0, 0.8][i % 2], i as u64)
    };
    (0..count).map(one).collect()
}

/// Tokens of every choice when its request is alone, undrafted and has all the room it wants.
fn alone(lab: &Lab, requests: &[Request]) -> Vec<Vec<TokenId>> {
    let run = |request| {
        lab.run(Box::new(NoDrafter), std::slice::from_ref(request))
            .tokens()
    };
    requests.iter().flat_map(run).collect()
}

#[test]
fn c52_a_cache_that_is_too_small_for_all_changes_no_token() {
    let requests = mixed(6);
    let base = alone(&Lab::new(tt_target()), &requests);
    let longest = requests
        .iter()
        .map(|r| r.prompt.len() + r.max_tokens)
        .max()
        .unwrap();
    for kv_tokens in [longest, longest * 3 / 2, longest * 3] {
        for name in ["none", "self", "ngram", "script"] {
            for chunk in [3, 64] {
                let lab = Lab::new(tt_target()).with(|lab| {
                    lab.options.kv_tokens = kv_tokens;
                    lab.options.prefill_chunk = chunk;
                });
                let seen = Arc::new(Seens::default());
                let spy = Spy {
                    inner: drafter(&lab, name),
                    seen: Arc::clone(&seen),
                };
                let run = lab.run(Box::new(spy), &requests);
                assert_eq!(
                    run.tokens(),
                    base,
                    "{name} with {kv_tokens} tokens, chunk {chunk}"
                );
                let ends = base.len() + requests.len();
                let preempted = seen.forgotten.load(Ordering::Relaxed) - ends;
                assert!(
                    preempted > 0 || kv_tokens > longest * 2,
                    "nobody had to give way"
                );
            }
        }
    }
}

#[test]
fn c52_a_request_that_never_fits_fails_alone() {
    let lab = Lab::new(tt_target()).with(|lab| lab.options.kv_tokens = 30);
    let big = Request {
        max_tokens: 60,
        ..request(&[1; 20])
    };
    let small = Request {
        max_tokens: 5,
        ..request(&[2; 9])
    };
    let mut engine = lab.engine(Box::new(Ngram));
    for request in [&small, &big, &small] {
        engine.submit(request.clone()).unwrap();
    }
    let run = finish(&mut engine);
    assert_eq!(engine.cache().free(), 30);
    let plain = Lab::new(tt_target()).base(&[small, big]);
    assert_eq!(
        (&run.choices[0].tokens, &run.choices[2].tokens),
        (&plain[0], &plain[0])
    );
    let failed = &run.choices[1];
    assert_eq!(failed.finish_reason, FinishReason::Error);
    assert_eq!(
        failed.tokens,
        plain[1][..11],
        "29 tokens and the one that cannot be fed"
    );
    let error = failed.error.as_deref().unwrap();
    assert!(error.contains("kv-tokens 30"), "{error}");

    let error = engine.submit(request(&[1; 31])).unwrap_err().to_string();
    assert!(error.contains("31") && error.contains("30"), "{error}");
}

/// A choice that cannot go on beside the prompt it shares has what a request of one choice has.
#[test]
fn choices_that_never_fit_fail_one_by_one() {
    let lab = Lab::new(tt_target()).with(|lab| lab.options.kv_tokens = 20);
    let large = Request {
        max_tokens: 40,
        n: 3,
        ..drawn(&[5, 6, 7, 8], 1.0, 3)
    };
    let whole = Lab::new(tt_target()).base(std::slice::from_ref(&large));
    for name in ["none", "self"] {
        let run = lab.run(drafter(&lab, name), std::slice::from_ref(&large));
        for (choice, whole) in run.choices.iter().zip(&whole) {
            assert_eq!(choice.finish_reason, FinishReason::Error);
            assert_eq!(choice.tokens, whole[..17], "{name}");
        }
    }
}

/// Many choices in a cache that holds few: those begun are finished before others begin.
#[test]
fn suspended_choices_go_before_new_ones() {
    let lab = Lab::new(tt_target()).with(|lab| lab.options.kv_tokens = 40);
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
                Event::Piece { choice, .. } => begun = begun.max(choice + 1),
                Event::Finished { report, .. } => done.push(report),
                Event::Round { .. } => {}
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

#[test]
fn between_rounds_the_cache_holds_all_but_the_anchor() {
    let lab = Lab::new(tt_target());
    for name in ["none", "self", "td", "ngram", "script"] {
        let mut engine = lab.engine(drafter(&lab, name));
        let prompt = [5, 6, 7, 5, 6];
        engine.submit(drawn(&prompt, 0.9, 3)).unwrap();
        let mut count = prompt.len();
        while !engine.is_idle() {
            for event in engine.step() {
                count += usize::from(matches!(event, Event::Piece { token: Some(_), .. }));
            }
            let held = engine.cache().capacity() - engine.cache().free();
            assert_eq!(held, if engine.is_idle() { 0 } else { count - 1 }, "{name}");
        }
    }
}

#[test]
fn a_pass_that_fails_ends_its_requests_and_no_others() {
    let base = Lab::new(tt_target()).base(&[request(&[1, 2, 3])]);
    for passes in 1..8 {
        let lab = Lab::new(Faulty::new(passes, None));
        let mut engine = lab.engine(Box::new(Ngram));
        for prompt in [[1, 2, 3], [4, 5, 6]] {
            engine
                .submit(Request {
                    n: 2,
                    ..request(&prompt)
                })
                .unwrap();
        }
        let run = finish(&mut engine);
        assert_eq!(run.choices.len(), 4);
        for choice in &run.choices {
            assert_eq!(choice.finish_reason, FinishReason::Error);
            assert_eq!(choice.error.as_deref(), Some("rows: the device is lost"));
        }
        assert_eq!(
            run.choices[0].tokens,
            base[0][..run.choices[0].tokens.len()]
        );
        assert_eq!(engine.cache().free(), engine.cache().capacity());
        engine.submit(request(&[1, 2, 3])).unwrap();
        assert_eq!(
            finish(&mut engine).tokens(),
            base,
            "the next request is served"
        );
    }
}

#[test]
fn logits_that_are_not_finite_end_their_request_at_that_position() {
    let healthy = Lab::new(tt_target());
    let requests: Vec<_> = prompts(64)[3..9]
        .iter()
        .map(|prompt| request(prompt))
        .collect();
    let base = healthy.base(&requests);
    let poison = base[2][4];
    let lab = Lab::new(Faulty::new(usize::MAX, Some(poison)));
    for name in ["none", "self", "script"] {
        // The drafter is healthy: only the target's own rows count.
        let run = lab.run(drafter(&healthy, name), &requests);
        for ((choice, request), base) in run.choices.iter().zip(&requests).zip(&base) {
            let last = request.prompt.last() == Some(&poison);
            let first = base.iter().position(|token| *token == poison);
            let kept = match (last, first) {
                (true, _) => 0,
                (false, Some(at)) if at + 1 < base.len() => at + 1,
                _ => {
                    assert_eq!(&choice.tokens, base, "{name}");
                    continue;
                }
            };
            assert_eq!(choice.tokens, base[..kept], "{name}");
            assert_eq!(choice.finish_reason, FinishReason::Error);
            let error = choice.error.as_deref().unwrap();
            let position = format!("position {}", request.prompt.len() + kept);
            assert!(
                error.contains("not finite") && error.ends_with(&position),
                "{error}"
            );
        }
        assert_eq!(run.choices[2].finish_reason, FinishReason::Error);
    }
}

#[test]
fn masks_that_leave_no_token_end_the_request() {
    let lab = Lab::new(constant_target(&[0.4, 0.6])).with(|lab| lab.eos = vec![1]);
    let request = Request {
        params: params(|raw| {
            raw.logit_bias.insert(0, f64::NEG_INFINITY);
            raw.min_tokens = 2;
        }),
        ..request(&[0])
    };
    let run = lab.run(lab.self_drafter(), std::slice::from_ref(&request));
    assert_eq!(run.choices[0].finish_reason, FinishReason::Error);
    assert!(run.choices[0].tokens.is_empty() && run.choices[0].rounds.is_empty());
    let error = run.choices[0].error.as_deref().unwrap();
    assert!(
        error.contains("masks") && error.contains("position 1"),
        "{error}"
    );
    let free = Request {
        params: params(|raw| raw.min_tokens = 2),
        ..request
    };
    assert_eq!(lab.run(lab.self_drafter(), &[free]).tokens(), [[0, 0, 1]]);
}

#[test]
fn a_context_gives_one_token_more_than_it_has_positions_left() {
    let lab = Lab::new(tt_target());
    for left in 0..6 {
        let prompt: Vec<TokenId> = (0..256 - left).map(|i| i % 64).collect();
        let asked = Request {
            max_tokens: 50,
            ..request(&prompt)
        };
        for name in ["none", "self", "ngram", "td"] {
            let run = lab.run(drafter(&lab, name), std::slice::from_ref(&asked));
            assert_eq!(run.choices[0].tokens.len(), left as usize + 1, "{name}");
            assert_eq!(run.choices[0].finish_reason, FinishReason::Length);
        }
    }
    let mut engine = lab.engine(Box::new(NoDrafter) as Box<dyn Drafter>);
    let error = engine.submit(request(&[1; 257])).unwrap_err().to_string();
    assert!(error.contains("257") && error.contains("256"), "{error}");
}

#[test]
fn a_draft_model_with_a_shorter_context_only_loses_its_drafts() {
    let short = eyrie_fixtures::Fixture {
        max_position: 20,
        ..eyrie_fixtures::td()
    };
    let draft = crate::support::target_of(&short, eyrie::model::Dtype::AsStored, 1);
    let lab = Lab::new(tt_target());
    let requests = [
        Request {
            max_tokens: 40,
            ..request(&[1, 2, 3])
        },
        request(&[9; 30]),
    ];
    let model = lab.model_drafter(draft, Pick::Coupled);
    let run = lab.run(model, &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    assert!(run.choices[0].rounds.iter().any(|round| round.drafted > 0));
    assert_eq!(
        run.choices[0].rounds.last().map(|round| round.drafted),
        Some(0)
    );
    assert!(run.choices[1].rounds.iter().all(|round| round.drafted == 0));
}

/// A drafter guesses for those that its cache has room for.
#[test]
fn a_drafter_without_room_only_loses_its_drafts() {
    let lab = Lab::new(tt_target());
    let requests = mixed(6);
    let base = alone(&lab, &requests);
    for slots in [1, 30, 400] {
        let drafter = ModelDrafter::new(tt_target(), Pick::Coupled, slots, 7);
        let run = lab.run(Box::new(drafter), &requests);
        assert_eq!(run.tokens(), base, "{slots} slots");
        let (drafted, accepted) = run.drafted_accepted();
        assert_eq!(drafted, accepted);
        assert_eq!(drafted > 0, slots > 1);
    }
}

/// Logits that are no numbers close a guess of a draft model, and no more than that.
#[test]
fn a_draft_model_of_no_numbers_only_loses_its_drafts() {
    let lab = Lab::new(tt_target());
    let requests = mixed(6);
    let base = alone(&lab, &requests);
    for after in [base[0][5], base[3][8]] {
        let draft = Faulty::new(usize::MAX, Some(after));
        let run = lab.run(lab.model_drafter(draft, Pick::Coupled), &requests);
        assert_eq!(run.tokens(), base);
        let goes_on = |drafted: &[TokenId]| {
            let at = drafted.iter().position(|token| *token == after);
            at.is_some_and(|at| at + 1 < drafted.len())
        };
        assert!(run.traces.iter().all(|trace| !goes_on(&trace.drafted)));
        let (drafted, accepted) = run.drafted_accepted();
        assert!(
            drafted > 100 && drafted == accepted,
            "{accepted} of {drafted}"
        );
    }
}

#[test]
fn a_drafter_that_dies_and_comes_back_catches_up() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = (0..4)
        .map(|i| drawn(&prompts(64)[i], 0.7, i as u64))
        .collect();
    let base = lab.base(&requests);
    let mut engine = lab.engine(Box::new(Flaky {
        inner: lab.self_drafter(),
        calls: 0,
    }));
    for request in &requests {
        engine.submit(request.clone()).unwrap();
    }
    let (mut run, mut done) = Default::default();
    while !engine.is_idle() {
        engine
            .step()
            .into_iter()
            .for_each(|event| take(&mut run, &mut done, event));
    }
    done.sort_by_key(|entry| entry.0);
    for ((_, _, report), base) in done.iter().zip(&base) {
        assert_eq!(&report.tokens, base);
        assert!(
            report
                .rounds
                .iter()
                .all(|round| round.drafted == round.accepted)
        );
        assert!(report.rounds.iter().any(|round| round.drafted > 0));
        assert!(report.rounds.iter().any(|round| round.drafted == 0));
    }
}

/// Fails in every third call.
#[derive(Debug)]
struct Flaky {
    inner: Box<dyn Drafter>,
    calls: usize,
}

impl Drafter for Flaky {
    fn name(&self) -> &'static str {
        "flaky"
    }

    fn propose(
        &mut self,
        anchors: &mut [eyrie::draft::Anchor<'_>],
        trees: &mut [eyrie::tree::DraftTree],
    ) -> Result<()> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(ErrorKind::Draft("asleep".to_owned()).into());
        }
        self.inner.propose(anchors, trees)
    }

    fn forget(&mut self, seq: eyrie::SeqId) {
        self.inner.forget(seq);
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
