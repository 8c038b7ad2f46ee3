//! Rows of drafts: guessed tokens with guessed features, until the guess is made.

use super::sequences::{Next, Sequences, extend};
use crate::{
    Matrix, SeqId, TokenId,
    draft::{Feed, Tip},
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
    /// Sequences made so far; their names count down from the largest.
    made: u64,
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
            made: 0,
        }
    }

    /// The anchors' rows, with all that wait before them.
    fn roots(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        let batch = tips.iter().map(|tip| {
            let root = self.anchors[tip.anchor];
            (root.seq, root.waiting, Some(root.token))
        });
        let batch: Vec<_> = batch.collect();
        self.sequences.feed(&batch)
    }

    /// Drafted rows, each at the end of a sequence that begins as its parent's.
    fn drafts(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        let parent = |tip: &Tip| &self.tips[tip.anchor][tip.parent.unwrap_or(0)];
        let cache = self.sequences.cache();
        let mut next = Vec::with_capacity(tips.len());
        for tip in tips {
            let seq = SeqId(u64::MAX - self.made);
            self.made += 1;
            let parent = parent(tip);
            cache.fork(parent.seq, seq, cache.committed(parent.seq))?;
            next.push(Next {
                seq,
                tokens: vec![tip.token],
                features: &parent.feature,
            });
        }
        let head = self.sequences.head().clone();
        extend(&head, self.sequences.cache(), &next)
    }
}

impl Feed for Branches<'_> {
    fn can_feed(&self, tip: &Tip) -> bool {
        let limit = self.sequences.head().config().max_position;
        self.anchors[tip.anchor].position + tip.depth < limit
    }

    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        let before = self.made;
        let first = tips.iter().all(|tip| tip.parent.is_none());
        let outputs = if first {
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
        for (i, tip) in (0..).zip(tips) {
            let seq = match tip.parent {
                None => self.anchors[tip.anchor].seq,
                Some(_) => SeqId(u64::MAX - before - i),
            };
            let row = usize::try_from(i).unwrap_or(usize::MAX);
            let feature = features.row(row).to_vec();
            self.tips[tip.anchor].push(Branch { seq, feature });
        }
        Ok(Some(logits))
    }
}

impl Drop for Branches<'_> {
    fn drop(&mut self) {
        for made in 0..self.made {
            self.sequences.cache().release(SeqId(u64::MAX - made));
        }
    }
}
