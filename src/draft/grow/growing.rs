//! One tree in the making.

use std::cmp::Ordering;

use super::{Shape, Tip};
use crate::{
    Node, TokenId,
    draft::{Anchor, Pick},
    error::Result,
    sample::{Chain, Fault, History, choose, choose_best},
    tree::DraftTree,
};

/// A token that may become a node.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: TokenId,
    parent: Option<usize>,
    /// Levels below the anchor.
    depth: usize,
    /// At most 0, and at most its parent's.
    value: f64,
    /// Its slot, once it was fed.
    slot: Option<usize>,
}

/// The candidates of one anchor.
///
/// Invariant: a parent has a lower index than its child. Drawn candidates are nodes from the start,
/// with equal indices.
#[derive(Debug)]
pub(super) struct Growing<'g, 'a> {
    anchor: &'g mut Anchor<'a>,
    tree: &'g mut DraftTree,
    chain: &'g Chain,
    pick: Pick,
    topk: usize,
    candidates: Vec<Candidate>,
    /// Points that can still get into the tree: best first once ranked.
    best: Vec<usize>,
    /// By slot, what was fed; `None` is the anchor.
    fed: Vec<Option<usize>>,
    /// Whether a row's logits were no numbers.
    broken: bool,
}

impl<'g, 'a> Growing<'g, 'a> {
    pub(super) fn new(
        shape: Shape,
        anchor: &'g mut Anchor<'a>,
        tree: &'g mut DraftTree,
        chain: &'g Chain,
    ) -> Self {
        Self {
            anchor,
            tree,
            chain,
            pick: shape.pick,
            topk: shape.topk.max(1),
            candidates: Vec::new(),
            best: Vec::new(),
            fed: Vec::new(),
            broken: false,
        }
    }

    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    /// Whether nodes are drawn. At temperature 0 there is nothing to draw: siblings would be equal.
    fn draws(&self) -> bool {
        self.pick == Pick::Drawn && !self.chain.params().is_greedy()
    }

    /// What is worth feeding of a level, by index: the anchor at level 0.
    pub(super) fn frontier(&mut self, level: usize) -> Vec<Option<usize>> {
        if level == 0 {
            return vec![None];
        }
        if level >= self.anchor.depth {
            return Vec::new();
        }
        self.rank();
        let at_level = |i: &usize| self.candidates[*i].depth == level;
        if self.draws() {
            let width = self.width(level + 1);
            let nodes = (0..self.candidates.len()).filter(at_level);
            let longer = nodes.filter(|i| self.branch_of(*i) < width);
            return longer.map(Some).collect();
        }
        let useful = self.best.iter().take(self.anchor.nodes - 1).copied();
        let mut frontier: Vec<_> = useful.filter(at_level).take(self.topk).collect();
        frontier.sort_unstable();
        frontier.into_iter().map(Some).collect()
    }

    /// Drawn nodes of a level, from 1.
    fn width(&self, level: usize) -> usize {
        let nodes = self.anchor.nodes;
        let width = self.topk.min(nodes);
        width.min(nodes.saturating_sub(width * (level - 1)))
    }

    /// Which child of the anchor a candidate is, or is below: the first candidates are those.
    fn branch_of(&self, at: usize) -> usize {
        self.upwards(Some(at)).last().unwrap_or(at)
    }

    /// Sorts the best and drops those that cannot get in any more.
    fn rank(&mut self) {
        let value = |i: &usize| self.candidates[*i].value;
        let rank =
            |a: &usize, b: &usize| -> Ordering { value(b).total_cmp(&value(a)).then(a.cmp(b)) };
        self.best.sort_unstable_by(rank);
        self.best.truncate(self.anchor.nodes);
    }

    /// The row of a candidate, or of the anchor, if it is fed next.
    pub(super) fn tip(&self, anchor: usize, at: Option<usize>) -> Tip {
        let slot = self.fed.len();
        match at.map(|at| self.candidates[at]) {
            None => Tip {
                anchor,
                slot,
                parent: None,
                token: self.anchor.tokens[self.anchor.tokens.len() - 1],
                depth: 0,
            },
            Some(candidate) => Tip {
                anchor,
                slot,
                parent: candidate
                    .parent
                    .map_or(Some(0), |p| self.candidates[p].slot),
                token: candidate.token,
                depth: candidate.depth,
            },
        }
    }

    /// Takes the next slot for a candidate, or for the anchor.
    pub(super) fn fed(&mut self, at: Option<usize>) {
        if let Some(at) = at {
            self.candidates[at].slot = Some(self.fed.len());
        }
        self.fed.push(at);
    }

    /// Gives the row of a slot its children.
    pub(super) fn branch(&mut self, slot: usize, logits: &[f32]) -> Result<()> {
        let parent = self.fed[slot];
        let mut path: Vec<_> = self
            .upwards(parent)
            .map(|i| self.candidates[i].token)
            .collect();
        path.reverse();
        if self.draws() {
            return self.draw(parent, &path, logits);
        }
        let children = match self.children(&path, logits) {
            Ok(children) => children,
            Err(fault) => return self.close(&fault),
        };
        let above = parent.map_or(0.0, |parent| self.candidates[parent].value);
        for (token, ln_share) in children {
            self.best.push(self.candidates.len());
            self.add(parent, token, above + ln_share);
        }
        Ok(())
    }

    /// The best children of a row, best first, with logarithms of their shares.
    fn children(&self, path: &[TokenId], logits: &[f32]) -> Result<Vec<(TokenId, f64)>, Fault> {
        let history = History {
            counts: self.anchor.counts,
            tokens: self.anchor.tokens,
            path,
        };
        let (t, draws) = (history.index() as u64, &*self.anchor.draws);
        let coupled = self.pick == Pick::Coupled && !self.chain.params().is_greedy();
        if self.topk > 1 && !coupled {
            return self.chain.best(logits, &history, self.topk);
        }
        let law = self.chain.law(logits, &history)?;
        Ok(match (self.topk, coupled) {
            (1, true) => vec![(choose(&law, t, draws), 0.0)],
            (1, false) => vec![(law.argmax(), 0.0)],
            (topk, _) => choose_best(&law, t, draws, topk),
        })
    }

    /// Draws the children of a row: as many as the sizes say for the anchor, one for a node.
    fn draw(&mut self, parent: Option<usize>, path: &[TokenId], logits: &[f32]) -> Result<()> {
        let history = History {
            counts: self.anchor.counts,
            tokens: self.anchor.tokens,
            path,
        };
        let law = match self.chain.law(logits, &history) {
            Ok(law) => law,
            Err(fault) => return self.close(&fault),
        };
        let count = if parent.is_none() { self.width(1) } else { 1 };
        for _ in 0..count {
            let (above, q) = (parent.map(Node::at), law.clone());
            let node = Pick::Drawn.add(self.tree, above, q, self.anchor)?;
            self.add(parent, self.tree.token(node), 0.0);
        }
        Ok(())
    }

    /// Gives a row no children.
    fn close(&mut self, fault: &Fault) -> Result<()> {
        self.broken |= *fault == Fault::NonFinite;
        Ok(())
    }

    fn add(&mut self, parent: Option<usize>, token: TokenId, value: f64) {
        self.candidates.push(Candidate {
            token,
            parent,
            depth: parent.map_or(1, |parent| self.candidates[parent].depth + 1),
            value,
            slot: None,
        });
    }

    /// A candidate and its ancestors, upwards.
    fn upwards(&self, from: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(from, |i| self.candidates[*i].parent)
    }

    /// Makes the best points the tree, in the order of their index. Drawn nodes are in it already.
    pub(super) fn plant(&mut self) -> Result<()> {
        self.rank();
        let mut chosen = std::mem::take(&mut self.best);
        chosen.sort_unstable();
        for &i in &chosen {
            let Candidate { token, parent, .. } = self.candidates[i];
            let above = parent.and_then(|parent| chosen.binary_search(&parent).ok());
            self.tree.point(above.map(Node::at), token)?;
        }
        Ok(())
    }
}
