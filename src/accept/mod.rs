#![doc = include_str!("README.md")]

mod block;
mod matching;
mod rejection;

pub use block::Block;
pub use matching::Match;
pub use rejection::Rejection;

use std::{borrow::Cow, fmt::Debug};

use crate::{
    Node, TokenId,
    sample::{Dist, Draws, Fault},
    tree::{DraftTree, Law},
};

/// The target's laws, row by row.
///
/// A rule asks for the anchor's row first and then only for rows that it may accept the path to
/// (`match` and `rejection` for those of the accepted path, `block` for those of its chain up to
/// the first draft that the target cannot emit), each at most once. So an implementation computes a
/// law when it is asked for: the logits of all rows are there already, but most rows of a tree are
/// never processed; and the row of a node that the target gives no mass is never asked for.
pub trait TargetRows {
    /// The law of the token that follows the node, or (`None`) the anchor.
    ///
    /// # Errors
    /// The [`Fault`] that keeps this row from choosing a token.
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault>;

    /// The row as a broken variant reads it. Rows that are a table and not a chain's have one reading.
    ///
    /// # Errors
    /// As [`TargetRows::law`].
    #[cfg(feature = "mutants")]
    fn misread(&mut self, at: Option<Node>, how: crate::sample::Misreading) -> Result<Dist, Fault> {
        let _ = how;
        self.law(at)
    }
}

/// What a round emits for one sequence: the tokens of `path`, then `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The accepted nodes, a path from the anchor downwards; empty if every draft was rejected.
    pub path: Vec<Node>,
    /// The token after the path, or why its row has none. The path stands either way.
    pub next: Result<TokenId, Fault>,
}

pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "that nobody else can name it is the seal")]
    pub trait Sealed {}
}

/// The law a node was chosen by, as a distribution: a point has all mass on its token.
pub(crate) fn drafted_by(tree: &DraftTree, node: Node) -> Cow<'_, Dist> {
    match tree.law(node) {
        Law::Point => Cow::Owned(Dist::one_hot(tree.token(node))),
        Law::Drawn(q) => Cow::Borrowed(q),
    }
}

/// Decides which drafts survive.
///
/// Pure and infallible: same tree, same rows, same draws, same verdict. It is sealed because the
/// crate promises the output law for every rule there is.
pub trait Rule: Debug + Send + Sync + sealed::Sealed {
    /// The name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Walks the tree along the target's laws. `first` is the index `t` of the generated token that
    /// the anchor's row chooses; the row of a node of depth `d` chooses `first + d`.
    fn decide(
        &self,
        tree: &DraftTree,
        rows: &mut dyn TargetRows,
        first: u64,
        draws: &mut dyn Draws,
    ) -> Verdict;
}
