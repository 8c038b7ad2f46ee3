//! One line a round, for replay and for looking closely.

use serde::Serialize;

use crate::{TokenId, tree::DraftTree};

/// What one round did for one choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundTrace {
    /// The request's id.
    pub request: String,
    /// Index of the choice.
    pub choice: usize,
    /// Index of the round, from 0.
    pub round: usize,
    /// Index of the anchor in prompt and output.
    pub position: usize,
    /// Drafted tokens.
    pub drafted: Vec<TokenId>,
    /// Parent of each, an index into `drafted`; -1 for the anchor.
    pub parents: Vec<i64>,
    /// Accepted drafts that were delivered.
    pub accepted: usize,
    /// The token that the rule chose after its whole path, also where an end cut the round before it;
    /// none where no token could be chosen.
    pub next: Option<TokenId>,
    /// Milliseconds by stage; shared passes in full.
    pub ms: StageMillis,
}

/// Milliseconds of one round by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageMillis {
    /// Guessing.
    pub draft: f64,
    /// The target's pass.
    pub verify: f64,
    /// Deciding.
    pub accept: f64,
    /// Cache, tokens, text, stops.
    pub commit: f64,
}

/// Tokens and parents of `tree` in the trace's form.
pub(crate) fn nodes(tree: &DraftTree) -> (Vec<TokenId>, Vec<i64>) {
    let parent = |node| tree.parent(node).map_or(-1, |parent| i64::from(parent.0));
    tree.nodes()
        .map(|node| (tree.token(node), parent(node)))
        .unzip()
}
