//! Trees grown level by level, for a batch of anchors, whatever computes the logits.
//!
//! One [`Feed`] a drafter knows how its rows are computed; what becomes of a row of logits is decided
//! here. Level 0 is the anchors themselves. After each pass the rows get children, and the children
//! worth it are fed in the next.
//!
//! # Points
//!
//! Under the picks `coupled` and `greedy`, and for every pick at temperature 0, a tree is that of
//! EAGLE-2 (Li et al. 2024). Each row that was fed gets its `topk` best children as *candidates*,
//! of each level the `topk` best candidates are fed, and at the end the best of *all* candidates, as
//! many as there may be nodes, become the tree.
//!
//! A candidate's *value* is its parent's plus the logarithm of its share among its siblings, so it is at
//! most its parent's:
//!
//! | pick | children of a row | share |
//! |---|---|---|
//! | `coupled` | largest `ln q + G`, with the target's own `G` | `softmax(ln q + G)` |
//! | `greedy` | largest `q` | `q` |
//! | temperature 0 | largest `q`, the law at temperature 1 without filters | `q` |
//!
//! Of equal values the lower index ranks first. A parent has a lower index than its child, so
//! it ranks first always: the best candidates are closed under ancestors, and in the order of their
//! index they are a tree. It also follows that what is below a candidate that has `nodes - 1` or more before
//! it can never get in; it is not fed.
//!
//! With `topk` 1 there is nothing to rank: the tree is a chain, the token of a row is what
//! [`choose`](crate::sample::choose) takes or the argmax of `q`, and no further number is asked for.
//!
//! # Drawn nodes
//!
//! Under the pick `drawn` the sizes are fixed before anything is drawn: `topk` children of the
//! anchor, then one child for each node, level by level, until depth or nodes are used up (SpecInfer,
//! Miao et al. 2024). Children of one row are drawn independently and may be equal. Every node is kept,
//! and goes into the tree the moment it is drawn, so that an error later on cannot take it back: a
//! rule that judges by `q` needs every drawn node, or those that are missing must not be missing for
//! their value. A branch that is closed (no law, nothing to feed it with) stays short and gives its
//! nodes to no other.

mod growing;

#[cfg(test)]
mod tests;

use std::sync::Once;

use super::{Anchor, Pick};
use crate::{Matrix, TokenId, error::Result, sample::Chain, tree::DraftTree};
use growing::Growing;

/// A drafter that is broken in every row would say so in every round.
static BROKEN: Once = Once::new();

/// How a drafter grows trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// How tokens are picked.
    pub pick: Pick,
    /// Children of a row, and rows of a level; 0 is taken as 1, a chain.
    pub topk: usize,
}

impl Shape {
    /// One child a level.
    #[must_use]
    pub fn chain(pick: Pick) -> Self {
        Self { pick, topk: 1 }
    }

    /// Most rows that growth to `depth` levels and `nodes` nodes feeds beyond the anchor's own: those
    /// of the levels but the last, whose rows nobody would ask for.
    ///
    /// ```
    /// use eyrie::draft::{Pick, Shape};
    ///
    /// assert_eq!(Shape::chain(Pick::Coupled).rows(4, 4), 3);
    /// assert_eq!(Shape { pick: Pick::Coupled, topk: 4 }.rows(5, 24), 16);
    /// ```
    #[must_use]
    pub fn rows(self, depth: usize, nodes: usize) -> usize {
        let width = self.topk.max(1).min(nodes.saturating_sub(1));
        depth.saturating_sub(1) * width
    }
}

/// A row to be fed: an anchor, or a token below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Which of the anchors it belongs to.
    pub anchor: usize,
    /// Its number among the rows of that anchor, in the order of feeding; the anchor is 0.
    pub slot: usize,
    /// The slot of its parent; none for the anchor.
    pub parent: Option<usize>,
    /// Its token.
    pub token: TokenId,
    /// Levels below the anchor.
    pub depth: usize,
}

/// What computes logits for tokens that follow on each other.
pub trait Feed {
    /// Whether a row can be fed at all: it has a position, and its token means something. Where not,
    /// its branch ends; the others go on. Asked once for each row, in order, before [`feed`](Self::feed).
    fn can_feed(&self, tip: &Tip) -> bool {
        let _ = tip;
        true
    }

    /// Feeds rows of one level, of some of the anchors, each after its parent, which was fed in an
    /// earlier call. Rows come by anchor, and of one anchor by slot. Returns their logits, in order,
    /// `[rows, columns]`, as wide as the anchors' chains were told. `None`: no room now; growth stops
    /// with what there is.
    ///
    /// # Errors
    /// If the drafter is broken.
    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>>;
}

/// Grows `trees`, one empty tree for each of `anchors`, within its depth and nodes. `chains` are the
/// requests' processing, one an anchor, for the rows that `feed` makes.
///
/// A row without a law (logits that are no numbers, nothing left by the masks) gets no children. The
/// first of the former is warned of.
///
/// # Errors
/// If `feed` fails, or a draw answers outside of its law. The trees have what was grown before.
///
/// # Panics
/// If the rows of `feed` are not as wide as the chains were told: a bug of the drafter.
pub fn grow(
    anchors: &mut [&mut Anchor<'_>],
    trees: &mut [&mut DraftTree],
    chains: &[Chain],
    shape: Shape,
    feed: &mut dyn Feed,
) -> Result<()> {
    let parts = anchors.iter_mut().zip(trees).zip(chains);
    let growing = parts.map(|((anchor, tree), chain)| Growing::new(shape, anchor, tree, chain));
    let mut growing: Vec<Growing<'_, '_>> = growing.collect();
    let grown = levels(&mut growing, feed);
    if growing.iter().any(Growing::broken) {
        BROKEN.call_once(|| {
            tracing::warn!(
                "a drafter's logits are not finite; nothing is drafted there (this is said once)"
            )
        });
    }
    for one in &mut growing {
        one.plant()?;
    }
    grown
}

/// Grows all levels, or as many as can be.
fn levels(growing: &mut [Growing<'_, '_>], feed: &mut dyn Feed) -> Result<()> {
    for level in 0.. {
        let mut tips = Vec::new();
        for (anchor, one) in growing.iter_mut().enumerate() {
            for at in one.frontier(level) {
                let tip = one.tip(anchor, at);
                if feed.can_feed(&tip) {
                    one.fed(at);
                    tips.push(tip);
                }
            }
        }
        if tips.is_empty() {
            break;
        }
        let Some(logits) = feed.feed(&tips)? else {
            break;
        };
        for (row, tip) in tips.iter().enumerate() {
            growing[tip.anchor].branch(tip.slot, logits.row(row))?;
        }
    }
    Ok(())
}
