//! Two drafters, the second for whatever the first has no idea of.

use super::{Anchor, Drafter, Seen};
use crate::{Matrix, SeqId, error::Result, tree::DraftTree};

/// The drafter `first-of`: what `first` proposes, and where that is nothing, what `then` proposes.
///
/// Who is asked depends on what `first` grew alone, so it keeps the law that both keep. Both see all
/// that is committed, whoever drafted it: `then` is no step behind when it is asked.
#[derive(Debug)]
pub struct FirstOf {
    first: Box<dyn Drafter>,
    then: Box<dyn Drafter>,
    /// Those of `first`, then those of `then`.
    taps: Vec<usize>,
}

impl FirstOf {
    /// Asks `first`, then `then`.
    #[must_use]
    pub fn new(first: Box<dyn Drafter>, then: Box<dyn Drafter>) -> Self {
        let taps = [first.taps(), then.taps()].concat();
        Self { first, then, taps }
    }
}

impl Drafter for FirstOf {
    fn name(&self) -> &'static str {
        "first-of"
    }

    fn taps(&self) -> &[usize] {
        &self.taps
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        let (all, mine) = (self.taps.len(), self.first.taps().len());
        observe(&mut *self.first, seen, 0, all)?;
        observe(&mut *self.then, seen, mine, all)
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        self.first.propose(anchors, trees)?;
        let open = |(i, _): &(usize, &mut Anchor<'_>)| trees[*i].is_empty();
        let left = anchors.iter_mut().enumerate().filter(open);
        let (at, mut left): (Vec<usize>, Vec<Anchor<'_>>) =
            left.map(|(i, anchor)| (i, again(anchor))).unzip();
        if left.is_empty() {
            return Ok(());
        }
        let mut grown = vec![DraftTree::default(); left.len()];
        let proposed = self.then.propose(&mut left, &mut grown);
        for (i, tree) in at.into_iter().zip(grown) {
            trees[i] = tree;
        }
        proposed
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        self.first.fork(from, to);
        self.then.fork(from, to);
    }

    fn forget(&mut self, seq: SeqId) {
        self.first.forget(seq);
        self.then.forget(seq);
    }
}

/// The same anchor, to be lent on.
fn again<'a>(anchor: &'a mut Anchor<'_>) -> Anchor<'a> {
    Anchor {
        seq: anchor.seq,
        tokens: anchor.tokens,
        round: anchor.round,
        depth: anchor.depth,
        nodes: anchor.nodes,
        chain: anchor.chain,
        counts: anchor.counts,
        draws: &mut *anchor.draws,
    }
}

/// Shows `drafter` its own taps, those from `from` on of `all`.
fn observe(drafter: &mut dyn Drafter, seen: &[Seen<'_>], from: usize, all: usize) -> Result<()> {
    let count = drafter.taps().len();
    if count == all {
        return drafter.observe(seen);
    }
    let own = |seen: &Seen<'_>| {
        let taps = seen.taps.filter(|_| count > 0)?;
        let width = taps.cols() / all;
        let rows = (0..taps.rows()).flat_map(|row| &taps.row(row)[from * width..][..count * width]);
        Some(Matrix::new(count * width, rows.copied().collect()))
    };
    let own: Vec<Option<Matrix>> = seen.iter().map(own).collect();
    let seen = seen.iter().zip(&own).map(|(seen, taps)| Seen {
        taps: taps.as_ref(),
        ..*seen
    });
    drafter.observe(&seen.collect::<Vec<_>>())
}
