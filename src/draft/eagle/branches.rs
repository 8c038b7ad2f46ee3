//! Rows of drafts: guessed tokens with guessed features, until the guess is made.

use super::sequences::{Next, Sequences, extend};
use crate::{
    Matrix, SeqId, TokenId,
    draft::{Feed, Tip, forks::Forks},
    error::Result,
};

/// Feeds the anchors' rows, which are true and stay, and grows branches on them, which go.
///
/// Each row of a branch is the end of a sequence of its own that shares the rows before it, so it
/// is computed as a chain is, whatever the tree.
#[derive(Debug)]
pub(super) struct Branches<'a> {
    sequences: &'a mut Sequences,
    anchors: &'a [Root],
    /// By anchor and slot.
    tips: Vec<Vec<Branch>>,
    /// The sequences made for drafted rows.
    forks: Forks,
}

/// An anchor to grow on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub(super) seq: SeqId,
    /// The anchor's token.
    pub(super) token: TokenId,
    /// Rows that wait, the anchor's included.
    pub(super) waiting: usize,
    /// Position of the anchor's row.
    pub(super) position: usize,
}

#[derive(Debug)]
struct Branch {
    seq: SeqId,
    /// Feature of what follows on it.
    feature: Vec<f32>,
}

impl<'a> Branches<'a> {
    pub(super) fn new(sequences: &'a mut Sequences, anchors: &'a [Root]) -> Self {
        Self {
            sequences,
            tips: anchors.iter().map(|_| Vec::new()).collect(),
            anchors,
            forks: Forks::default(),
        }
    }

    /// The anchors' rows, with all that wait before them.
    fn roots(&mut self, tips: &[Tip]) -> Result<(Vec<SeqId>, Option<Matrix>)> {
        let batch = tips.iter().map(|tip| {
            let root = self.anchors[tip.anchor];
            (root.seq, root.waiting, Some(root.token))
        });
        let batch: Vec<_> = batch.collect();
        let seqs = batch.iter().map(|(seq, ..)| *seq).collect();
        Ok((seqs, self.sequences.feed(&batch)?))
    }

    /// Drafted rows, each at the end of a sequence that begins as its parent's.
    fn drafts(&mut self, tips: &[Tip]) -> Result<(Vec<SeqId>, Option<Matrix>)> {
        let mut next = Vec::with_capacity(tips.len());
        for tip in tips {
            let parent = &self.tips[tip.anchor][tip.parent.unwrap_or(0)];
            next.push(Next {
                seq: self.forks.fork(self.sequences.cache(), parent.seq)?,
                tokens: vec![tip.token],
                features: &parent.feature,
            });
        }
        let head = self.sequences.head().clone();
        let outputs = extend(&head, self.sequences.cache(), &next)?;
        Ok((next.iter().map(|next| next.seq).collect(), outputs))
    }
}

impl Feed for Branches<'_> {
    fn can_feed(&self, tip: &Tip) -> bool {
        let limit = self.sequences.head().config().max_position;
        self.anchors[tip.anchor].position + tip.depth < limit
    }

    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        let first = tips.iter().all(|tip| tip.parent.is_none());
        let (seqs, outputs) = if first {
            self.roots(tips)?
        } else {
            self.drafts(tips)?
        };
        let Some(outputs) = outputs else {
            return Ok(None);
        };
        let head = self.sequences.head();
        let logits = head.logits(&outputs);
        let features = head.fed_back(outputs);
        for (i, (tip, seq)) in tips.iter().zip(seqs).enumerate() {
            let feature = features.row(i).to_vec();
            self.tips[tip.anchor].push(Branch { seq, feature });
        }
        Ok(Some(logits))
    }
}

impl Drop for Branches<'_> {
    fn drop(&mut self) {
        self.forks.release(self.sequences.cache());
    }
}
