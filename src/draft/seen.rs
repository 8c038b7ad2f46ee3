//! What a drafter is shown of the target's passes.

use super::Drafter;
use crate::{Matrix, SeqId, TokenId, sequence::Sequence};

/// A sequence after a pass of the target that was committed.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// All its tokens in the target's cache, from position 0.
    pub tokens: &'a [TokenId],
    /// The taps asked for, of the pass's rows: `[rows, taps * hidden]`, for the last `rows` of
    /// `tokens`.
    pub taps: Option<&'a Matrix>,
}

/// Shows the drafter the taps of the rows that a round kept, if it asked for taps: one matrix a
/// sequence. Those that have ended or are not drafted for are left out.
pub(crate) fn refresh(drafter: &mut dyn Drafter, seqs: &[Sequence], taps: &[Matrix]) {
    let goes_on = |seq: &Sequence| !seq.ended() && !seq.request().drafter_off;
    let pairs = seqs.iter().zip(taps).filter(|(seq, _)| goes_on(seq));
    let seen = pairs.map(|(seq, taps)| Seen {
        seq: seq.id,
        tokens: &seq.tokens()[..seq.tokens().len() - 1],
        taps: Some(taps),
    });
    show(drafter, &seen.collect::<Vec<_>>());
}

/// Shows what was committed to the drafter; one that fails is told to forget the sequences.
pub(crate) fn show(drafter: &mut dyn Drafter, seen: &[Seen<'_>]) {
    if seen.is_empty() {
        return;
    }
    if let Err(error) = drafter.observe(seen) {
        tracing::warn!("{error}; its requests are drafted for afresh");
        for seen in seen {
            drafter.forget(seen.seq);
        }
    }
}
