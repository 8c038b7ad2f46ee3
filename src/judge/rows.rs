//! Target rows given by a function, and logits that are one.

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

/// Logits `0..spread` of `vocab` tokens that are a function of a seed and of all of `tokens`.
pub(super) fn mixed(seed: u32, vocab: u32, spread: f32, tokens: &[TokenId]) -> Vec<f32> {
    let mix = |h: u32, t: &TokenId| (h ^ (t + 1)).wrapping_mul(0x9E37_79B1).rotate_left(9);
    let mut state = tokens.iter().fold(seed.wrapping_mul(0x85EB_CA6B), mix);
    let mut logit = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [high, low, ..] = state.to_be_bytes();
        f32::from(u16::from_be_bytes([high, low])) / 65_536.0 * spread
    };
    (0..vocab).map(|_| logit()).collect()
}

/// The tokens from the anchor (exclusive) down to a node (inclusive).
pub(super) fn path(tree: &DraftTree, at: Option<Node>) -> Vec<TokenId> {
    let nodes = at.map_or_else(Vec::new, |node| tree.path(node));
    nodes.into_iter().map(|node| tree.token(node)).collect()
}
