//! Target rows given by a function.

use crate::{
    Node, TokenId,
    accept::TargetRows,
    sample::{Dist, Fault},
    tree::DraftTree,
};

/// Target rows whose law is a function of the tokens after the anchor.
#[derive(Debug)]
pub struct Rows<'a, F> {
    /// The tree that the rows belong to.
    pub tree: &'a DraftTree,
    /// The law after these tokens.
    pub law: F,
}

impl<F: FnMut(&[TokenId]) -> Result<Dist, Fault>> TargetRows for Rows<'_, F> {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        (self.law)(&path(self.tree, at))
    }
}

/// The tokens from the anchor (exclusive) down to a node (inclusive).
pub(super) fn path(tree: &DraftTree, at: Option<Node>) -> Vec<TokenId> {
    let nodes = at.map_or_else(Vec::new, |node| tree.path(node));
    nodes.into_iter().map(|node| tree.token(node)).collect()
}
