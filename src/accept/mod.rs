#![doc = include_str!("README.md")]

mod matching;

pub use matching::Match;

use std::fmt::Debug;

use crate::{
    Node, TokenId,
    sample::{Dist, Draws, Fault},
    tree::DraftTree,
};

/// The target's laws, row by row.
///
/// A rule asks for the anchor's row first and then only for rows on the path it has accepted, so
/// an implementation computes a law when it is asked for: the logits of all rows are there already,
/// but most rows of a tree are never processed.
pub trait TargetRows {
    /// The law of the token that follows the node, or (`None`) the anchor.
    ///
    /// # Errors
    /// The [`Fault`] that keeps this row from choosing a token.
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault>;
}

/// What a round emits for one sequence: the tokens of `path`, then `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The accepted nodes, a path from the anchor downwards; empty if every draft was rejected.
    pub path: Vec<Node>,
    /// The token after the path, or why its row has none. The path stands either way.
    pub next: Result<TokenId, Fault>,
}

mod sealed {
    #[expect(unnameable_types, reason = "that nobody else can name it is the seal")]
    pub trait Sealed {}
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
