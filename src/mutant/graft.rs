//! Trees whose nodes claim what they were not drawn from.

use crate::{
    Node, TokenId,
    sample::{Draws, Key, Purpose},
    tree::{DraftTree, Law},
};

/// A drafted token below this share of the most likely one's probability is dropped.
const UNLIKELY: f64 = 0.5;

/// The tree without drawn nodes that their law finds unlikely, nor what is below them; and by node of
/// it the node that it was.
pub(super) fn without_the_unlikely(tree: &DraftTree) -> (DraftTree, Vec<Node>) {
    let (mut kept, mut original) = (DraftTree::new(), Vec::new());
    for node in tree.nodes() {
        let likely = match tree.law(node) {
            Law::Point => true,
            Law::Drawn(q) => q.p(tree.token(node)) >= UNLIKELY * q.p(q.argmax()),
        };
        let parent = tree.parent(node);
        let above = parent.map(|parent| original.iter().position(|old| *old == parent));
        match above {
            Some(None) => {}
            _ if !likely => {}
            _ => {
                let parent = above.flatten().map(Node::at);
                graft(&mut kept, parent, tree.token(node), tree.law(node));
                original.push(node);
            }
        }
    }
    (kept, original)
}

/// The tree with every drawn node claiming the law of its parent, where that has its token.
pub(super) fn stale(tree: &DraftTree) -> DraftTree {
    let mut all = DraftTree::new();
    for node in tree.nodes() {
        let own = tree.law(node);
        let above = tree.parent(node).map(|parent| tree.law(parent));
        let law = match (own, above) {
            (Law::Drawn(_), Some(Law::Drawn(q))) if q.p(tree.token(node)) > 0.0 => above,
            _ => None,
        };
        graft(
            &mut all,
            tree.parent(node),
            tree.token(node),
            law.unwrap_or(own),
        );
    }
    all
}

/// Adds a node that claims `law`, which has its token.
fn graft(tree: &mut DraftTree, parent: Option<Node>, token: TokenId, law: &Law) {
    let added = match law {
        Law::Point => tree.point(parent, token),
        Law::Drawn(q) => {
            let place = q.ids().binary_search(&token).unwrap_or(q.len());
            let at = Key::node(0, 0, Purpose::Draft);
            tree.drawn(parent, q.clone(), at, &mut Told(place))
        }
    };
    added.expect("the tree that is copied has this node");
}

/// Answers with one number.
struct Told(usize);

impl Draws for Told {
    fn gumbel(&self, _: Key, _: TokenId) -> f64 {
        0.0
    }

    fn pick(&mut self, _: Key, _: &[f64]) -> usize {
        self.0
    }

    fn accept(&mut self, _: Key, _: f64) -> bool {
        false
    }
}
