//! How a drafter with a law of its own chooses nodes.

use super::Anchor;
use crate::{
    Node,
    error::Result,
    sample::{Dist, Key, Purpose, choose},
    tree::DraftTree,
};

/// The pick of a drafter at temperature above 0; at 0 all are the argmax.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// argmax of ln q + G with the target's own G, so that target and drafter agree as often as
    /// their laws are close, and always if they are equal (Daliri et al. 2024).
    #[default]
    Coupled,
    /// argmax of q.
    Greedy,
    /// Drawn from q, which the node carries: for the rules `rejection` and `block`.
    Drawn,
}

impl Pick {
    /// Adds a node under `parent` with a token picked by the law `q` of its row.
    ///
    /// # Errors
    /// As [`DraftTree::point`] and [`DraftTree::drawn`].
    pub fn add(
        self,
        tree: &mut DraftTree,
        parent: Option<Node>,
        q: Dist,
        anchor: &mut Anchor<'_>,
    ) -> Result<Node> {
        let first = anchor.counts.output_len() as u64;
        match self {
            Self::Coupled => {
                let below = parent.map_or(0, |parent| tree.depth(parent));
                tree.point(parent, choose(&q, first + below as u64, anchor.draws))
            }
            Self::Greedy => tree.point(parent, q.argmax()),
            Self::Drawn => {
                let at = Key::in_round(first, Node::at(tree.len()), Purpose::Draft);
                tree.drawn(parent, q, at, anchor.draws)
            }
        }
    }
}
