//! Processors of scores: constrained output is what plain decoding gives, and is drafted for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use eyrie::{
    TokenId,
    draft::{Drafter, Ngram, NoDrafter, Pick},
    report::{FinishReason, RoundTrace},
    request::Request,
    sample::{Fault, History, Processor},
    schedule::Engine,
};

use crate::support::{Lab, Run, drawn, params, prompts, request, td_target, tt_target};

/// An engine goes to another thread.
const _: fn() = || {
    fn send<T: Send>() {}
    send::<Engine>();
};

/// Allows every `of`-th id and its neighbours, `keep` of them, by the sum of what was generated.
#[derive(Debug)]
pub(crate) struct Only {
    pub(crate) keep: u32,
    pub(crate) of: u32,
}

impl Only {
    pub(crate) fn allows(&self, generated: impl Iterator<Item = TokenId>, id: TokenId) -> bool {
        let sum = generated.fold(0, |sum: u32, token| (sum + token) % self.of);
        (id + sum) % self.of < self.keep
    }
}

impl Processor for Only {
    fn process(&self, scores: &mut [f64], history: &History<'_>) -> Result<(), Fault> {
        for (id, score) in (0..).zip(scores) {
            let generated = history.output().iter().chain(history.path).copied();
            if !self.allows(generated, id) {
                *score = f64::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

/// Cannot go on after so many tokens.
#[derive(Debug)]
struct Until(usize);

impl Processor for Until {
    fn process(&self, _: &mut [f64], history: &History<'_>) -> Result<(), Fault> {
        if history.index() < self.0 {
            return Ok(());
        }
        Err(Fault::Refused("the grammar has no rule here".into()))
    }
}

/// Writes one score.
#[derive(Debug)]
struct Writes(f64);

impl Processor for Writes {
    fn process(&self, scores: &mut [f64], _: &History<'_>) -> Result<(), Fault> {
        scores[1] = self.0;
        Ok(())
    }
}

/// Whether every draft of a round is allowed after the drafts above it.
pub(crate) fn allowed(only: &Only, output: &[TokenId], trace: &RoundTrace) -> bool {
    let nodes = 0..trace.drafted.len();
    nodes.into_iter().all(|node| {
        let parent = |i: &usize| usize::try_from(trace.parents[*i]).ok();
        let path = std::iter::successors(parent(&node), parent);
        let above: Vec<_> = path.map(|i| trace.drafted[i]).collect();
        let generated = output.iter().chain(&above).copied();
        only.allows(generated, trace.drafted[node])
    })
}

/// Asserts that all drafts of constrained requests are allowed; how many there are, and how many were
/// accepted.
pub(crate) fn constrained(run: &Run, requests: &[Request], only: &Only) -> (usize, usize) {
    for trace in &run.traces {
        let of = requests.iter().position(|r| r.id == trace.request).unwrap();
        let choices = run
            .choices
            .iter()
            .find(|choice| choice.id == trace.request && choice.choice == trace.choice);
        let upto = trace.position + 1 - requests[of].prompt.len();
        let output = &choices.unwrap().tokens[..upto];
        assert!(allowed(only, output, trace), "{trace:?}");
    }
    run.drafted_accepted()
}

/// Chains and trees of a model, and of the text: with a constraint that depends on the output so far.
#[test]
fn constrained_output_is_plain_decodings_and_is_drafted_for() {
    let only = Arc::new(Only { keep: 3, of: 7 });
    let lab = Lab::new(tt_target());
    for t in [0.0, 0.9] {
        let requests: Vec<Request> = prompts(64)[..6]
            .iter()
            .zip(0..)
            .map(|(prompt, seed)| Request {
                id: seed.to_string(),
                processors: vec![Arc::clone(&only) as Arc<dyn Processor>],
                ..drawn(prompt, t, seed)
            })
            .collect();
        let base = lab.base(&requests);
        for tokens in &base {
            let all =
                (0..tokens.len()).all(|i| only.allows(tokens[..i].iter().copied(), tokens[i]));
            assert!(all, "{tokens:?}");
        }
        let free: Vec<_> = requests
            .iter()
            .map(|request| Request {
                processors: Vec::new(),
                ..request.clone()
            })
            .collect();
        assert_ne!(lab.base(&free), base);
        let trees = Lab::new(tt_target()).with(|lab| lab.options.nodes = Some(12));
        let drafters: [(&str, &Lab, Box<dyn Drafter>); 5] = [
            ("self", &lab, lab.self_drafter()),
            ("model", &lab, lab.model_drafter(td_target(), Pick::Coupled)),
            ("greedy", &lab, lab.model_drafter(td_target(), Pick::Greedy)),
            (
                "tree",
                &trees,
                trees.tree_drafter(td_target(), Pick::Coupled, 3),
            ),
            ("none", &lab, Box::new(NoDrafter)),
        ];
        for (name, lab, drafter) in drafters {
            let run = lab.run(drafter, &requests);
            assert_eq!(run.tokens(), base, "{name} at {t}");
            let (drafted, accepted) = constrained(&run, &requests, &only);
            assert_eq!(drafted > 0, name != "none", "{name}");
            assert!(name == "none" || accepted > 0, "{name}");
            if name == "self" {
                assert_eq!(drafted, accepted, "its law is the target's");
            }
        }
        let run = lab.run(Box::new(Ngram), &requests);
        assert_eq!(
            run.tokens(),
            base,
            "drafts that ignore the constraint at {t}"
        );
    }
}

/// It ends that request alone, with its tokens; drafts only end there.
#[test]
fn a_processor_that_refuses_ends_its_request_with_the_tokens_so_far() {
    let lab = Lab::new(tt_target());
    let plain: Vec<Request> = prompts(64)[..3].iter().map(|p| request(p)).collect();
    let base = lab.base(&plain);
    for kept in [0, 1, 7] {
        let mut requests = plain.clone();
        requests[1].processors = vec![Arc::new(Until(kept))];
        for drafter in [
            lab.self_drafter(),
            Box::new(NoDrafter),
            Box::new(Ngram) as Box<dyn Drafter>,
        ] {
            let run = lab.run(drafter, &requests);
            let [a, b, c] = &run.choices[..] else {
                panic!("three choices")
            };
            assert_eq!((&a.tokens, &c.tokens), (&base[0], &base[2]));
            assert_eq!(b.tokens, base[1][..kept]);
            assert_eq!(b.finish_reason, FinishReason::Error);
            assert_eq!(b.error.as_deref(), Some("the grammar has no rule here"));
        }
    }
}

#[test]
fn a_score_that_is_no_number_ends_the_request_and_a_mask_of_all_does() {
    let lab = Lab::new(tt_target());
    let with = |processors: Vec<Arc<dyn Processor>>| Request {
        processors,
        ..request(&[1, 2])
    };
    for (processor, error) in [
        (
            Arc::new(Writes(f64::NAN)) as Arc<dyn Processor>,
            "the logits are not finite",
        ),
        (Arc::new(Writes(f64::INFINITY)), "the logits are not finite"),
        (
            Arc::new(Only { keep: 0, of: 2 }),
            "bias and masks leave no token",
        ),
    ] {
        let run = lab.run(lab.self_drafter(), &[with(vec![processor])]);
        let text = run.choices[0].error.clone().unwrap();
        assert_eq!(text, format!("{error} at position 2"));
    }
    // However large, it is a score.
    let run = lab.run(
        lab.self_drafter(),
        &[with(vec![Arc::new(Writes(f64::MAX))])],
    );
    assert_eq!(run.tokens(), [vec![1; 24]]);
}

/// What is reported is the law after the processor, and each piece has it.
#[test]
fn log_probabilities_are_of_the_constrained_law() {
    let only = Only { keep: 2, of: 5 };
    let lab = Lab::new(tt_target());
    let request = Request {
        params: params(|raw| raw.temperature = 0.7),
        logprobs: Some(3),
        n: 2,
        processors: vec![Arc::new(Only { keep: 2, of: 5 })],
        ..request(&[3, 1])
    };
    let run = lab.run(lab.self_drafter(), &[request]);
    // That pieces and report agree is asserted for every run.
    assert_eq!(
        run.logprobs.values().map(Vec::len).collect::<Vec<_>>(),
        [24, 24]
    );
    for choice in &run.choices {
        for (i, entry) in choice.logprobs.iter().flatten().enumerate() {
            let output = || choice.tokens[..i].iter().copied();
            assert!(entry.logprob.is_finite());
            assert!(entry.top.iter().all(|(id, _)| only.allows(output(), *id)));
        }
    }
}

/// Refuses every so many-th time it is asked: no function of its history, as a host's processor may be.
#[derive(Debug)]
struct Fickle(usize, AtomicUsize);

impl Processor for Fickle {
    fn process(&self, _: &mut [f64], _: &History<'_>) -> Result<(), Fault> {
        if (self.1.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.0) {
            return Err(Fault::Refused("not this time".into()));
        }
        Ok(())
    }
}

/// A token's record asks again: a processor that changes its mind ends its request, no other.
#[test]
fn a_processor_that_changes_its_mind_ends_its_request_alone() {
    let lab = Lab::new(tt_target());
    let plain: Vec<Request> = prompts(64)[..2].iter().map(|p| request(p)).collect();
    let base = lab.base(&plain);
    for every in 1..12 {
        let mut requests = plain.clone();
        requests[1].logprobs = Some(2);
        requests[1].processors = vec![Arc::new(Fickle(every, AtomicUsize::new(0)))];
        let run = lab.run(lab.self_drafter(), &requests);
        let [a, b] = &run.choices[..] else {
            panic!("two choices")
        };
        assert_eq!(a.tokens, base[0]);
        assert!(base[1].starts_with(&b.tokens));
        assert_eq!(b.error.as_deref(), Some("not this time"), "{every}");
        assert_eq!(b.logprobs.as_ref().map(Vec::len), Some(b.tokens.len()));
    }
}
