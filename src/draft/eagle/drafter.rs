//! The drafter `eagle`.

use std::sync::Arc;

use super::{
    branches::{Branches, Root},
    config::HeadConfig,
    head::Head,
    sequences::{HeadState, Sequences},
};
use crate::{
    SeqId,
    draft::{Anchor, Drafter, Seen, Shape, grow},
    error::Result,
    tree::DraftTree,
};

/// Drafts with an EAGLE head.
///
/// True rows are fed as they come (`pairing.rs` says what those are): of prompts in chunks, of
/// rounds with the anchor's row, all sequences in one pass. Drafts grow on copies.
///
/// A sequence goes on without drafts, alone, from the head's last position on; and if it was not
/// shown from its start. While the cache has no room for its rows they wait, and drafting goes on when
/// there is some; if more rows wait than the cache holds at all, the sequence with the most is given
/// up.
#[derive(Debug)]
pub struct EagleDrafter {
    sequences: Sequences,
    shape: Shape,
}

impl EagleDrafter {
    /// Drafts with `head` in trees of `shape`. Its cache holds `kv_tokens` rows, of all sequences and
    /// of the trees in the making.
    #[must_use]
    pub fn new(head: impl Into<Arc<Head>>, shape: Shape, kv_tokens: usize) -> Self {
        Self {
            sequences: Sequences::new(head.into(), kv_tokens),
            shape,
        }
    }

    /// What its head computes.
    #[must_use]
    pub fn config(&self) -> &HeadConfig {
        self.sequences.head().config()
    }

    /// Rows that its cache has room for now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.sequences.free()
    }

    /// What it knows of a sequence, once all rows that can be fed are; `None` if it does not draft
    /// for it.
    ///
    /// # Errors
    /// If the rows cannot be fed.
    pub fn state(&mut self, seq: SeqId) -> Result<Option<HeadState>> {
        self.sequences.state(seq)
    }

    /// The anchors that can be drafted for in the room there is, first come, first served, by index.
    fn fitting(&self, anchors: &[Anchor<'_>]) -> (Vec<usize>, Vec<Root>) {
        let mut room = self.sequences.free();
        let fitting = anchors.iter().enumerate().filter_map(|(i, anchor)| {
            let (&token, before) = anchor.tokens.split_last()?;
            let waiting = self.sequences.waiting(anchor.seq, anchor.tokens)?;
            let need = waiting + self.shape.rows(anchor.depth, anchor.nodes);
            room = room.checked_sub(need)?;
            let root = Root {
                seq: anchor.seq,
                token,
                waiting,
                position: before.len() - 1,
            };
            Some((i, root))
        });
        fitting.unzip()
    }
}

impl Drafter for EagleDrafter {
    fn name(&self) -> &'static str {
        "eagle"
    }

    fn taps(&self) -> &[usize] {
        self.sequences.head().taps()
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        self.sequences.see(seen)?;
        self.sequences.catch_up(seen)?;
        self.sequences.shed();
        Ok(())
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        let (fitting, roots) = self.fitting(anchors);
        let head = self.sequences.head();
        let chains = fitting.iter().map(|i| head.chain(anchors[*i].chain));
        let chains: Vec<_> = chains.collect();
        let fits = |(i, _): &(usize, _)| fitting.binary_search(i).is_ok();
        let pairs = anchors.iter_mut().zip(trees).enumerate();
        let (mut anchors, mut trees): (Vec<_>, Vec<_>) =
            pairs.filter(fits).map(|(_, pair)| pair).unzip();
        let mut feed = Branches::new(&mut self.sequences, &roots);
        grow(&mut anchors, &mut trees, &chains, self.shape, &mut feed)
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        if let Err(error) = self.sequences.fork(from, to) {
            tracing::warn!("{error}; a choice goes on without drafts");
            self.sequences.forget(to);
        }
    }

    fn forget(&mut self, seq: SeqId) {
        self.sequences.forget(seq);
    }
}
