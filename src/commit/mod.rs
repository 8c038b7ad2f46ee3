//! Stage 4: make the verdict true.
//!
//! The survivors stay in the cache, the tokens are delivered one by one, and the first of them that
//! ends the choice is the last: ids, text, stream, log-probabilities and usage all stop there.

use crate::{
    accept::Verdict,
    report::{Logprob, RoundCount, RoundTrace, StageMillis, nodes},
    sequence::{Delivered, Sequence},
    tree::DraftTree,
};

/// What a round did for one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What reached the user.
    pub delivered: Vec<Delivered>,
    /// The round, for the trace; its times are not known yet.
    pub trace: RoundTrace,
}

/// Delivers the tokens of `verdict` up to the first that ends `seq`, with their `logprobs` if there
/// are any, and counts the round. Where no token could be chosen, the sequence ends with an error
/// that names the position.
pub fn deliver(
    seq: &mut Sequence,
    tree: &DraftTree,
    verdict: &Verdict,
    logprobs: Vec<Logprob>,
) -> Outcome {
    let position = seq.tokens().len() - 1;
    let mut logprobs = logprobs.into_iter();
    let path = verdict.path.iter().map(|node| tree.token(*node));
    let mut delivered = Vec::new();
    for chosen in path.map(Ok).chain([verdict.next.clone()]) {
        if seq.ended() {
            break;
        }
        match chosen {
            Ok(token) => delivered.push(seq.deliver(token, logprobs.next())),
            Err(fault) => seq.fail_at_next(fault),
        }
    }
    let accepted = verdict.path.len().min(delivered.len());
    let (drafted, parents) = nodes(tree);
    let trace = RoundTrace {
        request: seq.request().id.clone(),
        choice: seq.choice(),
        round: seq.rounds().len(),
        position,
        drafted,
        parents,
        accepted,
        next: verdict.next.as_ref().ok().copied(),
        ms: StageMillis::default(),
    };
    seq.count_round(RoundCount {
        drafted: tree.len(),
        accepted,
        emitted: delivered.len(),
    });
    Outcome { delivered, trace }
}
