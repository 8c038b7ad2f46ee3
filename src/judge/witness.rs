//! What a drafter believes at every anchor, before any noise of its draw.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    SeqId, TokenId,
    draft::{Anchor, Drafter, Seen},
    error::Result,
    sample::{Dist, Keyed},
    tree::{DraftTree, Law},
};

/// The law of a drafter after a prefix, by prefix.
pub(super) type Beliefs = Arc<Mutex<BTreeMap<Vec<TokenId>, Dist>>>;

/// Two drafters that see the same: one that is judged and one that is only asked what it believes.
///
/// The second draws its picks, so that its node carries the law it was drawn from; it is asked first, for one
/// level, with draws of its own. What has no law, a point, is a belief in one token: right for a drafter whose points are a
/// function of the prefix, as those of the second are.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) judged: Box<dyn Drafter>,
    pub(super) asked: Box<dyn Drafter>,
    pub(super) beliefs: Beliefs,
}

impl Witness {
    fn ask(&mut self, anchors: &[Anchor<'_>]) -> Result<()> {
        let mut draws = vec![Keyed::new(0); anchors.len()];
        let mut same: Vec<Anchor<'_>> = anchors
            .iter()
            .zip(&mut draws)
            .map(|(anchor, draws)| Anchor {
                depth: 1,
                nodes: 1,
                draws,
                ..*anchor
            })
            .collect();
        let mut trees = vec![DraftTree::new(); anchors.len()];
        self.asked.propose(&mut same, &mut trees)?;
        let mut beliefs = self.beliefs.lock().unwrap_or_else(PoisonError::into_inner);
        for (anchor, tree) in anchors.iter().zip(&trees) {
            let Some(first) = tree.children(None).next() else {
                continue;
            };
            let q = match tree.law(first) {
                Law::Drawn(q) => q.clone(),
                Law::Point => Dist::one_hot(tree.token(first)),
            };
            beliefs.entry(anchor.tokens.to_vec()).or_insert(q);
        }
        Ok(())
    }
}

impl Drafter for Witness {
    fn name(&self) -> &'static str {
        self.judged.name()
    }

    fn taps(&self) -> &[usize] {
        self.judged.taps()
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        self.asked.observe(seen)?;
        self.judged.observe(seen)
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        self.ask(anchors)?;
        self.judged.propose(anchors, trees)
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        self.asked.fork(from, to);
        self.judged.fork(from, to);
    }

    fn forget(&mut self, seq: SeqId) {
        self.asked.forget(seq);
        self.judged.forget(seq);
    }
}
