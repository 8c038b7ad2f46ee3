//! The rule `rejection`: Leviathan et al. (*Fast inference from transformers via speculative
//! decoding*, 2023) and Chen et al. (2023) on chains, and its recursion over siblings (Miao et al.,
//! *SpecInfer*, 2024) on trees.
//!
//! # What it does
//!
//! At a row it keeps a law `left`, at first the target's `p`, and looks at the children in the
//! order of their numbers. A child with token `x`, drawn from `q`, is accepted with probability
//! `min(1, left(x) / q(x))`, and the rule goes on at its row. If it is rejected, `left` becomes the
//! residual `norm(max(left - q, 0))` and the next sibling is judged by that. When no child is left,
//! `next` is drawn from `left`: the recovered token if there were children, else the bonus token.
//!
//! # Why the law does not change
//!
//! *Claim.* Whatever the children, a row emits a token with law `left`, given everything that was
//! drawn before and that is not decided here.
//!
//! *Proof*, by induction over the children that remain. Without any, the token is drawn from
//! `left`. Otherwise let the first be `x`, drawn from `q` with a draw of its own. It is emitted with
//! probability
//!
//! ```text
//!     q(x) * min(1, left(x) / q(x))  =  min(q(x), left(x)),
//! ```
//!
//! so it is rejected with probability `1 - sum of min(q, left) = sum of max(left - q, 0) = R`. By
//! the induction hypothesis a rejection, whatever `x` was, is followed by a token of the residual
//! law `max(left - q, 0) / R`. Together a token `y` has
//! `min(q(y), left(y)) + R * max(left(y) - q(y), 0) / R = left(y)`. ∎
//!
//! The accepted child's row starts again with the target's law after the longer prefix, so by the
//! chain rule the emitted tokens have the joint law of plain decoding. The claim asks of a child only
//! that its token has law `q` given what came before. Hence:
//!
//! * Siblings need not come from one `q`, and may repeat a token.
//! * A [point](crate::tree::Law::Point) is the case `q` = all mass on its token. It is accepted with
//!   `left(x)`, and the residual is `left` without `x`. This is exact for any choice whatsoever, as long as
//!   the choice does not know the draws of the acceptance.
//! * A drawn node must not be dropped for its value: the claim would lose the sum over `x`.
//! * A row cannot be taken twice, nor a residual be skipped: the siblings are judged by what the
//!   earlier ones *left*, renormalised.
//!
//! # Draws
//!
//! Every draw has the round and a node in its key ([`Key::in_round`]): a node's acceptance is asked
//! under its own number, the recovered token under the number of the last rejected child, and the bonus token
//! under the number that the next node would have. So no key is asked twice, and nothing decides two
//! things. The noise `G` of the rule `match` is not used: the trajectory differs from plain decoding's,
//! the law does not.
//!
//! If `left` is within rounding of `q`, a rejection has a probability within rounding of 0, and there
//! may be no residual; then `left` stays as it is.
//!
//! # Example
//!
//! The drafter draws token 7, which the target cannot emit, and what replaces it is the target's.
//!
//! ```
//! use eyrie::{Node, accept::{Rejection, Rule, TargetRows}, tree::DraftTree};
//! use eyrie::sample::{Dist, Fault, Key, Keyed, Purpose};
//!
//! struct Always(Dist);
//!
//! impl TargetRows for Always {
//!     fn law(&mut self, _: Option<Node>) -> Result<Dist, Fault> {
//!         Ok(self.0.clone())
//!     }
//! }
//!
//! let (first, mut draws) = (1, Keyed::new(5));
//! let at = Key::in_round(first, Node(0), Purpose::Draft);
//! let mut tree = DraftTree::new();
//! tree.drawn(None, Dist::one_hot(7), at, &mut draws)?;
//! let verdict = Rejection.decide(&tree, &mut Always(Dist::one_hot(4)), first, &mut draws);
//! assert_eq!((verdict.path, verdict.next), (vec![], Ok(4)));
//! # Ok::<(), eyrie::Error>(())
//! ```

use super::{Rule, TargetRows, Verdict, drafted_by, sealed::Sealed};
use crate::{
    Node, TokenId,
    sample::{Dist, Draws, Key, Purpose},
    tree::DraftTree,
};

/// The rule `rejection`: a draft survives with probability `min(1, p / q)`, else the target's
/// residual takes its place. Keeps the law, not the trajectory; exact for chains and trees, drawn
/// nodes and points.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rejection;

impl Sealed for Rejection {}

impl Rule for Rejection {
    fn name(&self) -> &'static str {
        "rejection"
    }

    fn decide(
        &self,
        tree: &DraftTree,
        rows: &mut dyn TargetRows,
        first: u64,
        draws: &mut dyn Draws,
    ) -> Verdict {
        let mut path = Vec::<Node>::new();
        let next = loop {
            let at = path.last().copied();
            match rows.law(at) {
                Err(fault) => break Err(fault),
                Ok(law) => match judge(tree, at, law, first, draws) {
                    Judged::Child(node) => path.push(node),
                    Judged::Other(token) => break Ok(token),
                },
            }
        };
        Verdict { path, next }
    }
}

/// What a row emits: one of its children, or a token of its own.
enum Judged {
    Child(Node),
    Other(TokenId),
}

/// One row, with the target's law as the first `left`.
fn judge(
    tree: &DraftTree,
    at: Option<Node>,
    mut left: Dist,
    first: u64,
    draws: &mut dyn Draws,
) -> Judged {
    let mut replaced = Node::at(tree.len());
    for child in tree.children(at) {
        let (token, q) = (tree.token(child), drafted_by(tree, child));
        let chance = (left.ln_p(token) - q.ln_p(token)).exp();
        if draws.accept(Key::in_round(first, child, Purpose::Accept), chance) {
            return Judged::Child(child);
        }
        if let Some((_, residual)) = left.residual(1.0, &q) {
            left = residual;
        }
        replaced = child;
    }
    Judged::Other(left.draw(Key::in_round(first, replaced, Purpose::Residual), draws))
}
