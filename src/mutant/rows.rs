//! Target rows that lie.

use std::{cell::RefCell, collections::BTreeMap};

use super::Mutant;
use crate::{
    Node,
    accept::TargetRows,
    sample::{Dist, Fault, Misreading},
    tree::DraftTree,
};

/// Laws by row; `None` is the anchor's.
pub(super) type Laws = BTreeMap<Option<Node>, Dist>;

/// The rows of a sequence with a variant's lie. What was answered is kept.
pub(super) struct Lying<'a> {
    pub(super) mutant: Mutant,
    /// The tree that is judged.
    pub(super) tree: &'a DraftTree,
    /// By node of it, the node of the rows' own tree.
    pub(super) original: &'a [Node],
    pub(super) laws: &'a RefCell<Laws>,
    pub(super) inner: &'a mut dyn TargetRows,
}

impl TargetRows for Lying<'_> {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        let row = at.map(|node| self.original[node.index()]);
        let mut law = match self.mutant {
            Mutant::FilterSkipped => self.inner.misread(row, Misreading::Unfiltered)?,
            Mutant::PenaltyTwice => self.inner.misread(row, Misreading::DraftsTwice)?,
            _ => self.inner.law(row)?,
        };
        if self.mutant == Mutant::AlwaysAccept {
            let first = self.tree.children(at).next();
            let token = first.map(|child| self.tree.token(child));
            if let Some(token) = token.filter(|token| law.p(*token) > 0.0) {
                law = Dist::one_hot(token);
            }
        }
        self.laws.borrow_mut().insert(at, law.clone());
        Ok(law)
    }
}
