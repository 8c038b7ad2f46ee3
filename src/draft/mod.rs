//! Stage 1: guess.
//!
//! A drafter may guess anything: what it proposes can cost time, never correctness. It is the
//! crate's plug-in point; [`propose`] is what stands between a plug-in and the round.

pub mod eagle;
mod first_of;
mod forks;
mod grow;
mod model;
mod ngram;
mod none;
mod pick;
mod plan;
mod script;
mod seen;

#[cfg(test)]
mod tests;

pub use first_of::FirstOf;
pub use grow::{Feed, Shape, Tip, grow};
pub use model::ModelDrafter;
pub use ngram::Ngram;
pub use none::NoDrafter;
pub use pick::Pick;
pub use plan::Plan;
pub use script::Script;
pub use seen::Seen;
pub(crate) use seen::{refresh, show};

use std::fmt::{self, Debug};

use crate::{
    SeqId, TokenId,
    error::Result,
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
    /// Most nodes, at least 1; those that come after are cut off.
    pub nodes: usize,
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
        out.field("nodes", &self.nodes);
        out.finish_non_exhaustive()
    }
}

/// Anything that guesses.
///
/// An error from any method is a broken drafter: the sequences of that call are forgotten, so that
/// the drafter starts afresh with them, and go on with the nodes that came before the error. An empty
/// tree is no error.
pub trait Drafter: Debug + Send {
    /// What it is called in configurations and results.
    fn name(&self) -> &'static str;

    /// The residual streams of the target that [`observe`](Self::observe) is to be shown, as
    /// [`Target::forward`](crate::model::Target::forward) takes them.
    fn taps(&self) -> &[usize] {
        &[]
    }

    /// Called after each pass over a chunk of a prompt, for sequences that will be drafted for; if it
    /// asked for taps, after each round too, and for prompts that are fed again.
    ///
    /// # Errors
    /// If the drafter is broken.
    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        let _ = seen;
        Ok(())
    }

    /// Grows `trees`, one empty tree for each anchor, in order.
    ///
    /// # Errors
    /// If the drafter is broken. Nodes that were added before stay: a drawn one must not be lost for
    /// its value, and the error may have come of it.
    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()>;

    /// `to` begins as a copy of `from`, which has only been observed so far.
    fn fork(&mut self, from: SeqId, to: SeqId) {
        let _ = (from, to);
    }

    /// The sequence ended, or starts again from its first token.
    fn forget(&mut self, seq: SeqId) {
        let _ = seq;
    }
}

/// One tree for each of `seqs`, within `plan` and each budget. Sequences without a budget are not
/// shown to the drafter. A drafter that fails only loses its drafts.
pub fn propose(drafter: &mut dyn Drafter, seqs: &mut [Sequence], plan: Plan) -> Vec<DraftTree> {
    let mut trees = vec![DraftTree::default(); seqs.len()];
    let (asked, mut anchors): (Vec<usize>, Vec<Anchor<'_>>) = seqs
        .iter_mut()
        .enumerate()
        .filter_map(|(i, seq)| Some((i, anchor(seq, plan)?)))
        .unzip();
    if anchors.is_empty() {
        return trees;
    }
    let mut grown = vec![DraftTree::default(); anchors.len()];
    if let Err(error) = drafter.propose(&mut anchors, &mut grown) {
        tracing::warn!("{error}; its requests go on with what was drafted before, if anything");
        for anchor in &anchors {
            drafter.forget(anchor.seq);
        }
    }
    for ((i, anchor), tree) in asked.into_iter().zip(&anchors).zip(grown) {
        trees[i] = tree.cut(anchor.depth, anchor.nodes);
    }
    trees
}

/// The sequence as the drafter sees it, unless nothing is to be drafted for it.
fn anchor(seq: &mut Sequence, plan: Plan) -> Option<Anchor<'_>> {
    let Plan { depth, nodes } = plan.within(seq.draft_budget());
    let (id, round) = (seq.id, seq.rounds().len());
    let open = seq.open();
    (depth > 0).then_some(Anchor {
        seq: id,
        tokens: open.tokens,
        round,
        depth,
        nodes,
        chain: open.chain,
        counts: open.counts,
        draws: open.draws,
    })
}
