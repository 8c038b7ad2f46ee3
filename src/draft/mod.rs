//! Stage 1: guess.
//!
//! A drafter may guess anything: what it proposes can cost time, never correctness. It is the
//! crate's plug-in point; [`propose`] is what stands between a plug-in and the round.

pub mod eagle;
mod model;
mod ngram;
mod none;
mod pick;
mod script;

#[cfg(test)]
mod tests;

pub use model::ModelDrafter;
pub use ngram::Ngram;
pub use none::NoDrafter;
pub use pick::Pick;
pub use script::Script;

use std::fmt::{self, Debug};

use crate::{
    SeqId, TokenId,
    error::{ErrorKind, Result},
    sample::{Chain, Counts, Draws},
    sequence::Sequence,
    tree::DraftTree,
};

/// A sequence to guess for.
pub struct Anchor<'a> {
    /// Its name.
    pub seq: SeqId,
    /// Prompt and output; the last token is the anchor.
    pub tokens: &'a [TokenId],
    /// Rounds the sequence has been through.
    pub round: usize,
    /// Most levels below the anchor, at least 1; deeper nodes are cut off.
    pub depth: usize,
    /// The request's processing of logits, to be used for the drafter's own laws too.
    pub chain: &'a Chain,
    /// What the penalties count at the anchor.
    pub counts: &'a Counts,
    /// The sequence's random numbers: the very ones the target will choose with.
    pub draws: &'a mut dyn Draws,
}

impl fmt::Debug for Anchor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Anchor");
        out.field("seq", &self.seq).field("tokens", &self.tokens);
        out.field("round", &self.round).field("depth", &self.depth);
        out.finish_non_exhaustive()
    }
}

/// Tokens that the target's cache holds since its last pass over a prompt.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// All its tokens in the target's cache, from position 0.
    pub tokens: &'a [TokenId],
}

/// Anything that guesses.
///
/// An error from any method is a broken drafter: the sequences of that call go on without drafts
/// and are forgotten, so that the drafter starts afresh with them. An empty tree is no error.
pub trait Drafter: Debug + Send {
    /// What it is called in configurations and results.
    fn name(&self) -> &'static str;

    /// Called after each chunk of a prompt, for sequences that will be drafted for.
    ///
    /// # Errors
    /// If the drafter is broken.
    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        let _ = seen;
        Ok(())
    }

    /// One tree for each anchor, in order.
    ///
    /// # Errors
    /// If the drafter is broken.
    fn propose(&mut self, anchors: &mut [Anchor<'_>]) -> Result<Vec<DraftTree>>;

    /// `to` begins as a copy of `from`, which has only been observed so far.
    fn fork(&mut self, from: SeqId, to: SeqId) {
        let _ = (from, to);
    }

    /// The sequence ended, or starts again from its first token.
    fn forget(&mut self, seq: SeqId) {
        let _ = seq;
    }
}

/// The most levels, up to `depth`, for which a chain and its anchor for each of `seqs` fit `room`
/// rows. Decided before anything is drawn: a draft that is dropped for lack of room later on could be
/// dropped for its value, and a drawn one must not be.
#[must_use]
pub fn affordable(seqs: &[Sequence], depth: usize, room: usize) -> usize {
    let rows = |depth: usize| -> usize {
        let row = |seq: &Sequence| 1 + depth.min(seq.draft_budget());
        seqs.iter().map(row).sum()
    };
    let mut levels = (0..=depth).rev();
    levels.find(|depth| rows(*depth) <= room).unwrap_or(0)
}

/// One tree for each of `seqs`, at most `depth` deep and within each budget. Sequences without a
/// budget are not shown to the drafter. A drafter that fails only loses its drafts.
pub fn propose(drafter: &mut dyn Drafter, seqs: &mut [Sequence], depth: usize) -> Vec<DraftTree> {
    let mut trees = vec![DraftTree::default(); seqs.len()];
    let budget = |seq: &Sequence| depth.min(seq.draft_budget());
    let (asked, mut anchors): (Vec<usize>, Vec<Anchor<'_>>) = seqs
        .iter_mut()
        .enumerate()
        .filter(|(_, seq)| budget(seq) > 0)
        .map(|(i, seq)| (i, anchor(seq, depth)))
        .unzip();
    if anchors.is_empty() {
        return trees;
    }
    match answered(drafter, &mut anchors) {
        Ok(proposed) => {
            for ((i, anchor), tree) in asked.into_iter().zip(&anchors).zip(proposed) {
                trees[i] = tree.cut(anchor.depth);
            }
        }
        Err(error) => {
            tracing::warn!("{error}; its requests go on without drafts this round");
            for anchor in &anchors {
                drafter.forget(anchor.seq);
            }
        }
    }
    trees
}

/// The sequence as the drafter sees it, to be drafted for at most `depth` levels.
fn anchor(seq: &mut Sequence, depth: usize) -> Anchor<'_> {
    let depth = depth.min(seq.draft_budget());
    let (id, round) = (seq.id, seq.rounds().len());
    let open = seq.open();
    Anchor {
        seq: id,
        tokens: open.tokens,
        round,
        depth,
        chain: open.chain,
        counts: open.counts,
        draws: open.draws,
    }
}

fn answered(drafter: &mut dyn Drafter, anchors: &mut [Anchor<'_>]) -> Result<Vec<DraftTree>> {
    let trees = drafter.propose(anchors)?;
    if trees.len() == anchors.len() {
        return Ok(trees);
    }
    let (name, got, want) = (drafter.name(), trees.len(), anchors.len());
    Err(ErrorKind::Draft(format!("{name} gave {got} trees for {want} sequences")).into())
}
