//! Rules with a lie.

use std::{borrow::Cow, cell::RefCell};

use super::{
    Mutant,
    draws::{self, Asker, Judging, noise},
    graft::{stale, without_the_unlikely},
    rows::{self, Laws},
};
use crate::{
    Node, TokenId,
    accept::{Rule, TargetRows, Verdict, drafted_by, sealed::Sealed},
    sample::{Dist, Draws, Key, Purpose},
    tree::DraftTree,
};

/// An honest rule that is lied to.
#[derive(Debug)]
pub(super) struct Broken {
    mutant: Mutant,
    honest: Box<dyn Rule>,
}

impl Broken {
    pub(super) fn new(mutant: Mutant, honest: Box<dyn Rule>) -> Self {
        Self { mutant, honest }
    }

    /// The tree as it is judged, and by node of it the node that it was.
    fn judged<'t>(&self, tree: &'t DraftTree) -> (Cow<'t, DraftTree>, Vec<Node>) {
        match self.mutant {
            Mutant::DroppedByValue => {
                let (tree, nodes) = without_the_unlikely(tree);
                (Cow::Owned(tree), nodes)
            }
            Mutant::StaleQ => (Cow::Owned(stale(tree)), tree.nodes().collect()),
            _ => (Cow::Borrowed(tree), tree.nodes().collect()),
        }
    }

    /// The drafts that the rule rejected at the row where it stopped.
    fn rejected(&self, tree: &DraftTree, at: Option<Node>) -> Vec<Node> {
        let seen = if self.honest.name() == "block" {
            1
        } else {
            usize::MAX
        };
        tree.children(at).take(seen).collect()
    }

    /// The token that this variant puts in place of `rejected`, judged at a row with law `p`; `None`
    /// if it leaves that to the honest rule.
    fn replacement(&self, round: &Round<'_>, p: &Dist, draws: &mut dyn Draws) -> Option<TokenId> {
        let last = *round.rejected.last()?;
        let own = Key::in_round(round.first, last, Purpose::Residual);
        let left = match self.mutant {
            Mutant::FreshDraw | Mutant::ResampleFromP => p.clone(),
            Mutant::DraftedZeroed => {
                let zeroed = |node: &Node| Dist::one_hot(round.tree.token(*node));
                let each = round.rejected.iter().map(zeroed);
                each.fold(p.clone(), |left, token| above(1.0, left, &token).1)
            }
            // Of one draft there is no sibling, and the residual is the honest one.
            Mutant::SiblingLeftIn => {
                let siblings = round.rejected.len();
                round.left(p, siblings.saturating_sub(1).max(1), true)
            }
            Mutant::SiblingUnnormalised => round.left(p, round.rejected.len(), false),
            Mutant::SharedNoise => {
                let left = round.left(p, round.rejected.len(), true);
                let shared = noise(round.first.wrapping_sub(1), last.0);
                return Some(draws.choose(&left, shared));
            }
            _ => return None,
        };
        Some(left.draw(own, draws))
    }
}

impl Sealed for Broken {}

impl Rule for Broken {
    fn name(&self) -> &'static str {
        self.honest.name()
    }

    fn decide(
        &self,
        tree: &DraftTree,
        rows: &mut dyn TargetRows,
        first: u64,
        draws: &mut dyn Draws,
    ) -> Verdict {
        let (tree, original) = self.judged(tree);
        let laws = RefCell::new(Laws::new());
        let judging = Judging {
            tree: &tree,
            laws: &laws,
        };
        let Verdict { path, next } = self.honest.decide(
            &tree,
            &mut rows::Lying {
                mutant: self.mutant,
                tree: &tree,
                original: &original,
                laws: &laws,
                inner: rows,
            },
            first,
            &mut draws::Lying {
                mutant: self.mutant,
                first,
                asker: Asker::Rule(judging),
                inner: draws,
            },
        );
        let at = path.last().copied();
        let next = next.map(|honest| {
            let round = Round {
                tree: &tree,
                first,
                rejected: &self.rejected(&tree, at),
            };
            let laws = laws.borrow();
            let p = laws.get(&at).expect("a token was chosen at this row");
            let token = self.replacement(&round, p, draws);
            token.unwrap_or(honest)
        });
        Verdict {
            path: path
                .into_iter()
                .map(|node| original[node.index()])
                .collect(),
            next,
        }
    }
}

/// A row where a rule stopped, and its round.
struct Round<'a> {
    tree: &'a DraftTree,
    first: u64,
    rejected: &'a [Node],
}

impl Round<'_> {
    /// What the first `n` of the rejected drafts leave of `p`.
    fn left(&self, p: &Dist, n: usize, normalised: bool) -> Dist {
        let mut left = (1.0, p.clone());
        for node in &self.rejected[..n] {
            let scale = if normalised { 1.0 } else { left.0 };
            left = above(scale, left.1, &drafted_by(self.tree, *node));
        }
        left.1
    }
}

/// What `left`, `scale` times, has above `q`; `left` itself if that is nothing.
fn above(scale: f64, left: Dist, q: &Dist) -> (f64, Dist) {
    left.residual(scale, q).unwrap_or((scale, left))
}
