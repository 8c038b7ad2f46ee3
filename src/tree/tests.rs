use proptest::prelude::*;

use super::*;
use crate::sample::{Keyed, Purpose};

/// The obvious twin: a node owns its children.
#[derive(Debug, Default)]
struct Naive {
    children: Vec<(Node, TokenId, Self)>,
}

impl Naive {
    fn find(&mut self, node: Node) -> Option<&mut Self> {
        self.children.iter_mut().find_map(|(n, _, below)| {
            if *n == node {
                Some(below)
            } else {
                below.find(node)
            }
        })
    }

    /// Every node with its token, parent and path, depth first.
    fn walk(&self, parent: Option<Node>, path: &[Node], f: &mut impl FnMut(Walked)) {
        for (node, token, below) in &self.children {
            let path = [path, &[*node]].concat();
            f(Walked {
                node: *node,
                token: *token,
                parent,
                path: path.clone(),
            });
            below.walk(Some(*node), &path, f);
        }
    }

    fn under(&mut self, parent: Option<Node>) -> Option<&mut Self> {
        match parent {
            None => Some(self),
            Some(p) => self.find(p),
        }
    }
}

struct Walked {
    node: Node,
    token: TokenId,
    parent: Option<Node>,
    path: Vec<Node>,
}

proptest! {
    /// Any order of additions, parents out of range included, gives the tree of the twin.
    #[test]
    fn equals_the_twin(adds in prop::collection::vec((prop::option::of(0u32..24), 0u32..4), 0..24)) {
        let (mut tree, mut naive) = (DraftTree::new(), Naive::default());
        for (parent, token) in adds {
            let parent = parent.map(Node);
            let node = Node::at(tree.len());
            match (tree.point(parent, token), naive.under(parent)) {
                (Ok(got), Some(under)) => {
                    prop_assert_eq!(got, node);
                    under.children.push((node, token, Naive::default()));
                }
                (Err(e), None) => {
                    let says = format!("draft tree: parent {}", parent.unwrap().0);
                    prop_assert!(e.to_string().starts_with(&says), "{}", e);
                }
                (got, want) => prop_assert!(false, "{got:?}, twin {want:?}"),
            }
        }
        let mut seen = 0;
        naive.walk(None, &[], &mut |w| {
            seen += 1;
            assert_eq!((tree.token(w.node), tree.parent(w.node)), (w.token, w.parent));
            assert_eq!((tree.depth(w.node), tree.path(w.node)), (w.path.len(), w.path));
            let children = naive_children(&naive, Some(w.node));
            assert_eq!(tree.children(Some(w.node)).collect::<Vec<_>>(), children);
        });
        prop_assert_eq!(tree.children(None).collect::<Vec<_>>(), naive_children(&naive, None));
        prop_assert_eq!(seen, tree.len());
        prop_assert_eq!(tree.nodes().len(), tree.len());
    }
}

fn naive_children(naive: &Naive, of: Option<Node>) -> Vec<Node> {
    let mut found = Vec::new();
    naive.walk(None, &[], &mut |w| {
        if w.parent == of {
            found.push(w.node);
        }
    });
    found.sort();
    found
}

#[test]
fn a_chain_is_its_tokens() {
    let mut one_by_one = DraftTree::new();
    let mut parent = None;
    for token in [4, 4, 9] {
        parent = Some(one_by_one.point(parent, token).unwrap());
    }
    assert_eq!(DraftTree::chain(&[4, 4, 9]), one_by_one);
    assert_eq!(DraftTree::chain(&[]), DraftTree::new());
}

#[test]
fn a_drawn_node_carries_its_law_and_a_bad_parent_draws_nothing() {
    let q = Dist::one_hot(6);
    let at = Key::node(0, 0, Purpose::Draft);
    let mut tree = DraftTree::new();
    let node = tree.drawn(None, q.clone(), at, &mut Keyed::new(1)).unwrap();
    assert_eq!(
        (tree.token(node), tree.law(node)),
        (6, &Law::Drawn(q.clone()))
    );
    assert!(
        tree.drawn(Some(Node(1)), q.clone(), at, &mut Refuse)
            .is_err()
    );
    assert!(tree.drawn(None, q, at, &mut Liar).is_err());
    assert_eq!(tree.len(), 1);
}

struct Refuse;

impl Draws for Refuse {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        panic!("asked at {at:?}")
    }
    fn pick(&mut self, at: Key, _: &[f64]) -> usize {
        panic!("asked at {at:?}")
    }
    fn accept(&mut self, at: Key, _: f64) -> bool {
        panic!("asked at {at:?}")
    }
}

/// Answers outside of what it was asked.
struct Liar;

impl Draws for Liar {
    fn gumbel(&self, _: Key, _: TokenId) -> f64 {
        0.0
    }
    fn pick(&mut self, _: Key, w: &[f64]) -> usize {
        w.len()
    }
    fn accept(&mut self, _: Key, _: f64) -> bool {
        true
    }
}

#[test]
fn a_cut_keeps_the_first_nodes_of_the_upper_levels() {
    let mut tree = DraftTree::new();
    let a = tree.point(None, 1).unwrap();
    let b = tree.point(Some(a), 2).unwrap();
    tree.point(Some(b), 3).unwrap();
    tree.point(None, 4).unwrap();
    tree.point(Some(a), 5).unwrap();
    let tokens = |depth, nodes| -> Vec<TokenId> {
        let cut = tree.clone().cut(depth, nodes);
        cut.nodes().map(|node| cut.token(node)).collect()
    };
    assert_eq!(tokens(9, 9), [1, 2, 3, 4, 5]);
    assert_eq!(tokens(2, 9), [1, 2, 4, 5]);
    assert_eq!(tokens(2, 3), [1, 2, 4]);
    assert_eq!(tokens(9, 4), [1, 2, 3, 4]);
    assert_eq!(tokens(1, 9), [1, 4]);
    let cut = tree.clone().cut(2, 9);
    assert_eq!(cut.parent(Node(3)), Some(Node(0)));
}
