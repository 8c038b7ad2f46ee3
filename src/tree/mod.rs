//! The value that flows from draft to verify to accept: a tree of guesses.
//!
//! The root is the anchor, which is not a node; a chain is a tree with one child a level. Nodes
//! are numbered in the order they were added, and a parent exists before its child, so the
//! numbering is topological by construction: whoever walks the nodes in order has seen every
//! ancestor.
//!
//! Siblings may carry the same token. That happens when they are drawn, and merging them would
//! change the law of the draw; a rule that looks for a token takes the lower node.
//!
//! A node carries the [`Law`] it was chosen by. Only [`DraftTree::drawn`] makes a drawn one, and it
//! asks the draw itself, so a node cannot claim a law it was not drawn from.
//!
//! ```
//! use eyrie::{Node, tree::DraftTree};
//!
//! //  anchor ── 5 ── 6
//! //        └── 7
//! let mut tree = DraftTree::new();
//! let five = tree.point(None, 5)?;
//! let six = tree.point(Some(five), 6)?;
//! tree.point(None, 7)?;
//! assert_eq!(tree.children(None).map(|n| tree.token(n)).collect::<Vec<_>>(), [5, 7]);
//! assert_eq!((tree.depth(six), tree.path(six)), (2, vec![five, six]));
//! assert!(tree.point(Some(Node(9)), 1).is_err());
//! # Ok::<(), eyrie::Error>(())
//! ```

#[cfg(test)]
mod tests;

use crate::{
    Node, TokenId,
    error::{ErrorKind, Result},
    sample::{Dist, Draws, Key},
};

/// How a node's token was chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// By a rule that draws nothing of its own (an argmax, a table, a coupled pick): a law with all
    /// mass on the token. Right for any choice whatsoever, at worst at the price of acceptance.
    Point,
    /// Drawn from this law.
    Drawn(Dist),
}

/// Guesses after an anchor.
///
/// Invariant: `parents[i]`, where there is one, is below `i`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftTree {
    tokens: Vec<TokenId>,
    parents: Vec<Option<Node>>,
    laws: Vec<Law>,
}

impl DraftTree {
    /// A tree without nodes: no idea, decode plainly.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A chain of points.
    ///
    /// # Panics
    /// If there are 2^32 tokens or more.
    #[must_use]
    pub fn chain(tokens: &[TokenId]) -> Self {
        let parents = (0..tokens.len())
            .map(|i| i.checked_sub(1).map(Node::at))
            .collect();
        Self {
            tokens: tokens.to_vec(),
            parents,
            laws: vec![Law::Point; tokens.len()],
        }
    }

    /// Adds a node with a token chosen by a rule, under `parent` or (`None`) the anchor.
    ///
    /// # Errors
    /// If the parent is not in the tree, or the tree is full (2^32 - 1 nodes).
    pub fn point(&mut self, parent: Option<Node>, token: TokenId) -> Result<Node> {
        let node = self.next(parent)?;
        Ok(self.push(node, parent, token, Law::Point))
    }

    /// Adds a node whose token is drawn from `q`, here and now, with the key `at`.
    ///
    /// Siblings drawn from the same `q` are independent and may repeat a token; all must be kept.
    ///
    /// # Errors
    /// As [`DraftTree::point`]; nothing is drawn then. Also if the draw answers outside of `q`.
    pub fn drawn(
        &mut self,
        parent: Option<Node>,
        q: Dist,
        at: Key,
        draws: &mut dyn Draws,
    ) -> Result<Node> {
        let node = self.next(parent)?;
        let weights: Vec<f64> = q.iter().map(|(_, ln_p)| ln_p.exp()).collect();
        let picked = draws.pick(at, &weights);
        let token = *q.ids().get(picked).ok_or_else(|| {
            ErrorKind::Tree(format!("draw {picked} from a law of {} tokens", q.len()))
        })?;
        Ok(self.push(node, parent, token, Law::Drawn(q)))
    }

    /// The tree without nodes deeper than `depth` levels below the anchor, and of those its first
    /// `nodes`. The cut is by place, not by value, so what stays keeps its law.
    #[must_use]
    pub fn cut(self, depth: usize, nodes: usize) -> Self {
        let depths = self.depths();
        if self.len() <= nodes && depths.iter().all(|d| *d <= depth) {
            return self;
        }
        let mut cut = Self::new();
        let mut moved = vec![None; self.len()];
        let inside = (self.laws.into_iter().enumerate()).filter(|(i, _)| depths[*i] <= depth);
        for (i, law) in inside.take(nodes) {
            let parent = self.parents[i].and_then(|parent| moved[parent.index()]);
            moved[i] = Some(cut.push(Node::at(cut.len()), parent, self.tokens[i], law));
        }
        cut
    }

    /// Levels below the anchor, by node.
    fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.len());
        for parent in &self.parents {
            depths.push(parent.map_or(1, |parent| depths[parent.index()] + 1));
        }
        depths
    }

    /// The number of the next node, if it may hang under `parent`.
    fn next(&self, parent: Option<Node>) -> Result<Node> {
        let len = self.len();
        if let Some(parent) = parent.filter(|p| p.index() >= len) {
            let message = format!("parent {} of node {len}: must be below {len}", parent.0);
            return Err(ErrorKind::Tree(message).into());
        }
        let full = |_| ErrorKind::Tree(format!("{len} nodes: a tree holds fewer than 2^32"));
        Ok(Node(u32::try_from(len).map_err(full)?))
    }

    fn push(&mut self, node: Node, parent: Option<Node>, token: TokenId, law: Law) -> Node {
        self.tokens.push(token);
        self.parents.push(parent);
        self.laws.push(law);
        node
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token of a node.
    ///
    /// # Panics
    /// This and the methods below, if the node is not of this tree: a bug of the caller.
    #[must_use]
    pub fn token(&self, node: Node) -> TokenId {
        self.tokens[node.index()]
    }

    /// The parent of a node, `None` for a child of the anchor.
    #[must_use]
    pub fn parent(&self, node: Node) -> Option<Node> {
        self.parents[node.index()]
    }

    /// How the node's token was chosen.
    #[must_use]
    pub fn law(&self, node: Node) -> &Law {
        &self.laws[node.index()]
    }

    /// All nodes, ascending.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + ExactSizeIterator + use<> {
        (0..self.len()).map(Node::at)
    }

    /// The children of a node, or (`None`) of the anchor, ascending.
    pub fn children(&self, of: Option<Node>) -> impl Iterator<Item = Node> + '_ {
        let first = of.map_or(0, |node| node.index() + 1);
        (first..self.len())
            .filter(move |&i| self.parents[i] == of)
            .map(Node::at)
    }

    /// Edges from the anchor to the node: 1 for a child of the anchor.
    #[must_use]
    pub fn depth(&self, node: Node) -> usize {
        self.upwards(node).count()
    }

    /// The nodes from the anchor (exclusive) down to the node (inclusive).
    #[must_use]
    pub fn path(&self, node: Node) -> Vec<Node> {
        let mut path: Vec<_> = self.upwards(node).collect();
        path.reverse();
        path
    }

    fn upwards(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        std::iter::successors(Some(node), |&n| self.parent(n))
    }
}
