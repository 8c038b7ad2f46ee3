//! The rule `block`: block verification (Sun et al., *Block verification accelerates speculative
//! decoding*, 2024, arXiv 2403.10444), for chains.
//!
//! # What it does
//!
//! Let the chain be `x_1 .. x_n`, `q_i` the law that `x_i` was drawn from, `p_i` the target's law of
//! the row that `x_i` is a guess for (so `p_(n+1)` is the law after the whole chain). Where the rule
//! `rejection` tosses a coin for each draft and stops at the first failure, this one weighs
//! prefixes. The *weight* of a prefix is
//!
//! ```text
//!     w_0 = 1,    w_i = min(1, w_(i-1) * p_i(x_i) / q_i(x_i)),
//! ```
//!
//! and what the target has above the drafter behind it is
//! `S_i = sum over x of max(w_i * p_(i+1)(x) - q_(i+1)(x), 0)`. From the longest prefix to the
//! shortest, prefix `i` is accepted with probability
//!
//! ```text
//!     h_n = w_n,    h_i = S_i / (S_i + 1 - w_i),
//! ```
//!
//! and the first to be accepted is the path; the empty one always is, since `w_0 = 1`. After the whole
//! chain `next` is drawn from `p_(n+1)`, after a shorter path of length `i` from the residual,
//! `max(w_i * p_(i+1) - q_(i+1), 0) / S_i`.
//!
//! # Why the law does not change
//!
//! *Claim 1.* Given `x_1 .. x_i`, the path is at least `i` long with probability `w_i`.
//!
//! *Proof*, from the end. For `i = n` that is `h_n`. For `i < n`, by the claim for `i + 1`, the path is
//! longer than `i` with probability
//!
//! ```text
//!     L = sum of q_(i+1)(x) * min(1, w_i * p_(i+1)(x) / q_(i+1)(x))
//!       = sum of min(q_(i+1)(x), w_i * p_(i+1)(x))  =  w_i - S_i,
//! ```
//!
//! and exactly `i` long with `(1 - L) * h_i = (1 - w_i + S_i) * S_i / (S_i + 1 - w_i) = S_i`.
//! The sum is `w_i`. ∎
//!
//! *Claim 2.* The emitted tokens, continued by plain decoding, have the law of plain decoding.
//!
//! *Proof.* Write `Q(i)` for the probability that the drafter draws `x_1 .. x_i` and `P(i)` for the
//! target's. Let `A(i) = Q(i) * w_i`, by claim 1 the probability that `x_1 .. x_i` are drafted and
//! accepted, and `B(i)` that they are emitted in any other way, so that the last of them is a
//! `next` or a token of a later round. Suppose `A(i) + B(i) = P(i)`, as for `i = 0`. The first part is
//! followed by `x` as a draft with `Q(i) * min(q_(i+1)(x), w_i * p_(i+1)(x))` and as a `next` with
//! `Q(i) * max(w_i * p_(i+1)(x) - q_(i+1)(x), 0)`, together `A(i) * p_(i+1)(x)`; after the whole
//! chain that is what the bonus token does. The second part is followed by `x` with
//! `B(i) * p_(i+1)(x)`, by the rounds to come. The sum is `P(i) * p_(i+1)(x)`. ∎
//!
//! A coin may accept a prefix in spite of a bad token in it, if what followed made up for that: of all rules
//! that judge one drafted chain this one accepts the most tokens (proved in the paper), and never fewer in
//! expectation than `rejection`. What it forgives is why the draws must not come back: the drafts and
//! coins behind the path are not independent of the path's length, so a later round must not meet
//! them again. The anchor in the keys sees to that.
//!
//! The claims ask of a node only that it has law `q_i` given the nodes before it, so
//! [points](crate::tree::Law::Point) are the case of all mass on one token; then `w_i` is the product
//! of the target's probabilities, and the rule accepts as much as `rejection`.
//!
//! # Cut short
//!
//! * A prefix of weight 0 cannot be accepted, nor any behind it, and their rows are not asked for.
//! * If no token can be chosen at a row, the chain ends in front of it, for this purpose: `n` is the
//!   row's depth, and if the whole of that is accepted, `next` is the [`Fault`]. The prefix
//!   then occurs as often as in plain decoding.
//! * Of a tree, only the first child at every level is looked at. The others might as well not
//!   be there, which is exact, and a waste.
//! * If `w_i = 1` and `S_i = 0` the laws are equal and prefix `i + 1` is as sure as prefix `i`: by
//!   rounding alone can the longer one be refused. Then `h_i` is 0, and a residual that is empty,
//!   which only happens at the empty prefix, is replaced by the target's law.
//!
//! # Draws
//!
//! As for the rule `rejection`: the coin of prefix `i` under the number of its last node, the
//! recovered token under the number of the first node behind the path, the bonus token under the
//! number that the next node would have; each at most once a round.
//!
//! # Example
//!
//! ```
//! use eyrie::{Node, accept::{Block, Rule, TargetRows}, tree::DraftTree};
//! use eyrie::sample::{Dist, Fault, Keyed};
//!
//! struct Always(Dist);
//!
//! impl TargetRows for Always {
//!     fn law(&mut self, _: Option<Node>) -> Result<Dist, Fault> {
//!         Ok(self.0.clone())
//!     }
//! }
//!
//! let tree = DraftTree::chain(&[4, 4, 7]);
//! let verdict = Block.decide(&tree, &mut Always(Dist::one_hot(4)), 1, &mut Keyed::new(5));
//! assert_eq!((verdict.path, verdict.next), (vec![Node(0), Node(1)], Ok(4)));
//! ```

use super::{Rule, TargetRows, Verdict, drafted_by, sealed::Sealed};
use crate::{
    Node,
    sample::{Dist, Draws, Fault, Key, Purpose},
    tree::DraftTree,
};

/// The rule `block`: prefixes of a chain survive as a whole, the longest that passes. Keeps the law,
/// not the trajectory; of a tree it takes the first child at every level.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

impl Sealed for Block {}

impl Rule for Block {
    fn name(&self) -> &'static str {
        "block"
    }

    fn decide(
        &self,
        tree: &DraftTree,
        rows: &mut dyn TargetRows,
        first: u64,
        draws: &mut dyn Draws,
    ) -> Verdict {
        let mut prefixes = weigh(tree, rows);
        while let Some(prefix) = prefixes.pop() {
            let Some(last) = prefix.last else {
                return prefix.verdict(tree, first, draws);
            };
            if draws.accept(Key::in_round(first, last, Purpose::Accept), prefix.chance) {
                return prefix.verdict(tree, first, draws);
            }
        }
        unreachable!("the empty prefix is always there, and always accepted")
    }
}

/// A prefix of the chain that may be accepted.
struct Prefix {
    /// Its last node; the empty prefix has none.
    last: Option<Node>,
    /// Probability that it is accepted, given that no longer one was.
    chance: f64,
    /// The first node behind it, `None` if the chain ends here.
    behind: Option<Node>,
    /// The law of `next`.
    next: Result<Dist, Fault>,
}

impl Prefix {
    fn verdict(self, tree: &DraftTree, first: u64, draws: &mut dyn Draws) -> Verdict {
        let replaced = self.behind.unwrap_or_else(|| Node::at(tree.len()));
        let at = Key::in_round(first, replaced, Purpose::Residual);
        Verdict {
            path: self.last.map_or_else(Vec::new, |last| tree.path(last)),
            next: self.next.map(|law| law.draw(at, draws)),
        }
    }
}

/// All prefixes of positive weight, the empty one first.
fn weigh(tree: &DraftTree, rows: &mut dyn TargetRows) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    let (mut last, mut weight) = (None, 1.0);
    loop {
        let law = rows.law(last);
        let behind = tree.children(last).next();
        let (Ok(p), Some(child)) = (&law, behind) else {
            prefixes.push(Prefix {
                last,
                chance: weight,
                behind: None,
                next: law,
            });
            return prefixes;
        };
        let (token, q) = (tree.token(child), drafted_by(tree, child));
        let ratio = (p.ln_p(token) - q.ln_p(token)).exp();
        let (above, next) = match p.residual(weight, &q) {
            Some((above, residual)) => (above, Ok(residual)),
            None => (0.0, law),
        };
        prefixes.push(Prefix {
            last,
            chance: if above > 0.0 {
                above / (above + 1.0 - weight)
            } else {
                0.0
            },
            behind,
            next,
        });
        weight = (weight * ratio).min(1.0);
        if weight <= 0.0 {
            return prefixes;
        }
        last = behind;
    }
}
