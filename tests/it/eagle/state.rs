//! What a head knows of a sequence is what it would know if its tokens had been a prompt, to the bit.

use std::sync::{Arc, atomic::Ordering};

use eyrie::{
    SeqId, TokenId,
    draft::{Drafter, Seen, eagle::HeadConfig},
    model::Target,
    request::Request,
};

use super::{
    heads::{Made, e1, e3, random},
    network::taps,
    probe::{Plan, Probe, fresh},
};
use crate::support::{Lab, Run, drawn, prompts, request, take, tt_target};

/// Heads that differ in what a row depends on.
pub(crate) fn heads() -> Vec<Made> {
    let two = HeadConfig {
        layers: 2,
        sliding_window: vec![None, Some(5)],
        norm_output: true,
        ..e3()
    };
    vec![random(e1(), 11), random(e3(), 12), random(two, 13)]
}

fn long_prompt() -> Vec<TokenId> {
    (0..100_u32).map(|i| (i * i * 7 + i * 3 + 5) % 64).collect()
}

#[test]
fn chunks_leave_no_trace() {
    let target = tt_target();
    let prompt = long_prompt();
    for made in heads() {
        let whole = fresh(&made, &target, &prompt).expect("it is known");
        assert_eq!(whole.rows, 99);
        assert!(whole.waiting.iter().any(|x| *x != 0.0));
        for chunk in [1, 7, 16, 39, 40, 64] {
            let mut drafter = made.drafter(&target, 1, 256);
            let all = taps(&target, &prompt, drafter.taps());
            for from in (0..prompt.len()).step_by(chunk) {
                let to = prompt.len().min(from + chunk);
                let seen = Seen {
                    seq: SeqId(3),
                    tokens: &prompt[..to],
                    taps: Some(&all.gather(from..to)),
                };
                drafter.observe(&[seen]).expect("it works");
            }
            let state = drafter.state(SeqId(3)).expect("it works");
            assert_eq!(state.as_ref(), Some(&whole), "chunk {chunk}");
            drafter.forget(SeqId(3));
            assert_eq!(drafter.free(), 256);
        }
    }
}

/// Runs requests with a probe, checks the text, and returns the run and how many states were equal.
fn probed(lab: &Lab, probe: Probe, requests: &[Request]) -> (Run, usize) {
    let found = Arc::clone(&probe.found);
    let run = lab.run(Box::new(probe), requests);
    assert_eq!(run.tokens(), lab.base(requests));
    assert_eq!(found.unknown.load(Ordering::Relaxed), 0);
    (run, found.compared.load(Ordering::Relaxed))
}

/// Prompts with what plain decoding makes of them.
fn known(lab: &Lab, requests: &[Request]) -> Vec<Vec<TokenId>> {
    let outputs = lab.base(requests);
    let both = requests.iter().zip(outputs);
    both.map(|(request, output)| [&request.prompt[..], &output].concat())
        .collect()
}

#[test]
fn rounds_leave_no_trace_whatever_is_accepted() {
    let lab = Lab::new(tt_target()).with(|lab| {
        lab.options.prefill_chunk = 7;
        lab.options.nodes = Some(16);
    });
    for (made, batch) in heads().iter().zip([1, 5, 5]) {
        let requests: Vec<_> = (prompts(64).iter().take(batch).zip(0..))
            .map(|(prompt, seed)| drawn(prompt, 0.9, seed))
            .collect();
        for tree in [false, true] {
            let known = known(&lab, &requests);
            let plan = if tree {
                Plan::Tree(known)
            } else {
                Plan::Chain(known)
            };
            let (run, compared) = probed(&lab, Probe::new(made, &lab.target, 2, plan), &requests);
            let accepted: std::collections::BTreeSet<_> =
                run.traces.iter().map(|trace| trace.accepted).collect();
            assert!((0..=4).all(|n| accepted.contains(&n)), "{accepted:?}");
            // All rounds but the last of each request are shown.
            assert!(compared + batch > run.traces.len(), "{compared}");
        }
    }
}

#[test]
fn own_drafts_choices_preemption_and_pauses_leave_no_trace() {
    let lab = Lab::new(tt_target());
    let made = &heads()[1];
    let target = &lab.target;
    let requests: Vec<_> = [prompts(64)[0].clone(), long_prompt()]
        .iter()
        .map(|prompt| Request {
            n: 3,
            ..drawn(prompt, 1.0, 5)
        })
        .collect();
    for topk in [1, 3] {
        let lab = Lab::new(Arc::clone(target)).with(|lab| lab.options.nodes = Some(9));
        let (run, compared) = probed(&lab, Probe::new(made, target, topk, Plan::Own), &requests);
        assert!(run.drafted_accepted().0 > 0 && compared > 20, "{compared}");
    }
    let (run, _) = probed(
        &lab,
        Probe::new(made, target, 1, Plan::Pause(2..9)),
        &requests,
    );
    let in_pause = |round: usize| (2..9).contains(&round);
    let (paused, drafting): (Vec<_>, Vec<_>) =
        run.traces.iter().partition(|trace| in_pause(trace.round));
    assert!(paused.iter().all(|trace| trace.drafted.is_empty()));
    assert!(
        drafting
            .iter()
            .any(|trace| trace.round > 9 && trace.drafted.len() > 2)
    );

    let probe = Probe::new(made, target, 1, Plan::Own);
    let found = Arc::clone(&probe.found);
    let mut engine = lab.engine(Box::new(probe));
    let handles: Vec<_> = requests
        .iter()
        .map(|request| engine.submit(request.clone()).expect("valid"))
        .collect();
    let (mut run, mut done) = (Run::default(), Vec::new());
    for step in 0.. {
        if engine.is_idle() {
            break;
        }
        if step == 6 {
            engine.preempt(handles[1]);
        }
        for event in engine.step() {
            take(&mut run, &mut done, event);
        }
    }
    done.sort_by_key(|(handle, choice, _)| (*handle, *choice));
    let tokens: Vec<_> = done
        .into_iter()
        .map(|(_, _, choice)| choice.tokens)
        .collect();
    assert_eq!(tokens, lab.base(&requests));
    assert!(found.compared.load(Ordering::Relaxed) > 20);
    assert_eq!(found.unknown.load(Ordering::Relaxed), 0);
}

/// Drafted tokens by position of the anchor, of the first choice.
fn drafts(run: &Run) -> Vec<(usize, usize)> {
    let traces = run.traces.iter();
    traces
        .map(|trace| (trace.position, trace.drafted.len()))
        .collect()
}

#[test]
fn beyond_its_own_limit_a_request_goes_on_without_drafts_alone() {
    let lab = Lab::new(tt_target());
    let mut made = random(e3(), 12);
    made.config.max_position = 20;
    let requests = [request(&prompts(64)[0]), request(&long_prompt()[..40])];
    let short = requests[0].prompt.len();
    let run = lab.run(Box::new(made.drafter(&lab.target, 1, 512)), &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    let of = |len: usize| {
        drafts(&run)
            .into_iter()
            .filter(move |(at, _)| (*at >= len) == (len == 40))
    };
    assert!(of(40).all(|(_, drafted)| drafted == 0));
    for (anchor, drafted) in drafts(&run).into_iter().filter(|(at, _)| *at < 40) {
        // The anchor's row is at `anchor - 1`, a draft of level j is made by the row j - 1 after it.
        let budget = short + 24 - anchor - 2;
        let most = 21_usize.saturating_sub(anchor).min(4).min(budget);
        assert_eq!(drafted, most, "anchor at {anchor}");
    }
}

#[test]
fn without_room_rows_wait_and_drafts_come_back() {
    let lab = Lab::new(tt_target());
    let made = random(e3(), 12);
    let requests: Vec<_> = prompts(64)
        .iter()
        .take(4)
        .map(|prompt| request(prompt))
        .collect();
    for slots in [1, 20, 40, 70] {
        let run = lab.run(Box::new(made.drafter(&lab.target, 2, slots)), &requests);
        assert_eq!(run.tokens(), lab.base(&requests), "{slots} slots");
        let drafted = run.drafted_accepted().0;
        assert!(
            (slots < 20) == (drafted == 0),
            "{slots} slots: {drafted} drafts"
        );
    }
}

#[test]
fn a_sequence_with_a_gap_is_not_drafted_for_and_others_are() {
    let target: Arc<dyn Target> = tt_target();
    let made = random(e3(), 12);
    let mut drafter = made.drafter(&target, 1, 256);
    let prompt = long_prompt();
    let all = taps(&target, &prompt, drafter.taps());
    let (late, whole) = (all.gather(4..10), all.gather(0..10));
    let seen = |seq, taps| Seen {
        seq: SeqId(seq),
        tokens: &prompt[..10],
        taps: Some(taps),
    };
    drafter
        .observe(&[seen(1, &late), seen(2, &whole)])
        .expect("a gap is no error");
    assert_eq!(drafter.state(SeqId(1)).expect("it works"), None);
    assert_eq!(
        drafter.state(SeqId(2)).expect("it works"),
        fresh(&made, &target, &prompt[..10])
    );
    let error = drafter
        .observe(&[seen(2, &all)])
        .expect_err("too many rows");
    assert!(error.to_string().contains("(100, 96)"), "{error}");
}
