//! A head behind another drafter: it knows the same as one that drafts alone, and costs no token.

use std::sync::{Arc, atomic::Ordering};

use eyrie::{
    draft::{Drafter, FirstOf, Ngram, Script},
    request::Request,
};

use super::{
    heads::{e1, e3, random, ring, ring_head},
    probe::{Found, Plan, Probe},
};
use crate::support::{Broken, Lab, Seens, Spy, drawn, prompts, table_target, tt_target};

/// Five requests at once; some prompts repeat themselves, some do not.
fn requests(t: f64) -> Vec<Request> {
    let prompts = prompts(64).into_iter().rev().take(5).zip(0..);
    let request = |(prompt, seed): (Vec<_>, u64)| Request {
        id: seed.to_string(),
        max_tokens: 40,
        n: 1 + usize::from(seed == 2),
        ..drawn(&prompt, t, seed)
    };
    prompts.map(request).collect()
}

fn spied(inner: Box<dyn Drafter>) -> (Box<dyn Drafter>, Arc<Seens>) {
    let seen = Arc::new(Seens::default());
    let spy = Spy {
        inner,
        seen: Arc::clone(&seen),
    };
    (Box::new(spy), seen)
}

fn asked(seen: &Seens) -> usize {
    seen.depths.lock().expect("no panic").len()
}

fn compared(found: &Found) -> usize {
    assert_eq!(found.unknown.load(Ordering::Relaxed), 0);
    found.compared.load(Ordering::Relaxed)
}

/// Chains and trees, greedy and not: whoever drafts, the tokens are the plain ones, and after every round
/// the head holds what a fresh one would that was shown all at once.
#[test]
fn a_head_behind_ngram_is_no_step_behind() {
    for (topk, t) in [(1, 0.0), (1, 1.0), (3, 0.0), (3, 1.0)] {
        let lab = Lab::new(tt_target()).with(|lab| {
            lab.options.nodes = (topk > 1).then_some(8);
            lab.options.prefill_chunk = 7;
        });
        let requests = requests(t);
        let probe = Probe::new(&random(e3(), 21), &lab.target, topk, Plan::Own);
        let found = Arc::clone(&probe.found);
        let (first, all) = spied(Box::new(Ngram));
        let (then, left) = spied(Box::new(probe));
        let run = lab.run(Box::new(FirstOf::new(first, then)), &requests);
        assert_eq!(run.tokens(), lab.base(&requests), "{topk} at {t}");
        let (all, left) = (asked(&all), asked(&left));
        assert!(0 < left && left < all, "{left} of {all}, {topk} at {t}");
        assert!(compared(&found) > 100);
    }
}

/// Each of two heads is shown its own taps, and the second drafts while the first has nothing.
#[test]
fn both_may_ask_for_taps() {
    let lab = Lab::new(tt_target());
    let requests = requests(1.0);
    let pause = Plan::Pause(2..9);
    let first = Probe::new(&random(e3(), 21), &lab.target, 1, pause);
    let then = Probe::new(&random(e1(), 22), &lab.target, 1, Plan::Own);
    let founds = [&first, &then].map(|probe| Arc::clone(&probe.found));
    let taps = [first.taps(), then.taps()].concat();
    let (then, left) = spied(Box::new(then));
    let both = FirstOf::new(Box::new(first), then);
    assert_eq!(both.taps(), taps);
    let run = lab.run(Box::new(both), &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    assert!(asked(&left) > 0);
    for found in founds {
        assert!(compared(&found) > 100);
    }
}

/// A head that is always right is accepted whole in the rounds that it is asked in, whatever another
/// drafted for the sequences beside it.
#[test]
fn what_the_second_drafts_goes_to_its_own_sequence() {
    let lab = Lab::new(table_target(&ring()));
    let requests = requests(0.0);
    // The best tokens of a ring are even.
    let wrong = |round: usize| if round % 2 == 1 { vec![63] } else { Vec::new() };
    let first = Script::new((0..60).map(wrong).collect());
    let then = ring_head().drafter(&lab.target, 1, 4096);
    let both = FirstOf::new(Box::new(first), Box::new(then));
    let run = lab.run(Box::new(both), &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    for choice in &run.choices {
        assert!(choice.rounds.len() > 10);
        let mut left = 39;
        for (i, round) in choice.rounds.iter().enumerate() {
            let depth = 4.min(left - 1);
            let expected = match i % 2 {
                1 => (depth.min(1), 0),
                _ => (depth, depth),
            };
            assert_eq!((round.drafted, round.accepted), expected, "round {i}");
            left -= round.emitted;
        }
    }
}

/// Whichever of the two fails, its sequences go on.
#[test]
fn a_failure_of_either_costs_no_token() {
    let lab = Lab::new(tt_target());
    let requests = requests(1.0);
    let base = lab.base(&requests);
    let head = || Box::new(random(e3(), 21).drafter(&lab.target, 1, 2048));
    let broken = || Box::new(Broken::default());
    let pairs: [FirstOf; 2] = [
        FirstOf::new(broken(), head()),
        FirstOf::new(Box::new(Ngram), broken()),
    ];
    for pair in pairs {
        assert_eq!(lab.run(Box::new(pair), &requests).tokens(), base);
    }
}
