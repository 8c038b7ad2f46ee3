//! The trees of a batch to the rows of one pass.

use crate::{
    Node, TokenId,
    cache::KvCache,
    error::Result,
    model::{Rows, Wanted},
    sequence::Sequence,
    tree::DraftTree,
};

/// A packed pass: its rows, and for each sequence where its first row is and which row of its own
/// each node became.
#[derive(Debug, Default)]
pub struct Pack {
    rows: Rows,
    spans: Vec<Span>,
}

/// The rows of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Row of the anchor in the pass.
    pub(super) start: usize,
    /// By node, its row counted from the anchor's; none for a node that is not fed.
    pub(super) node_row: Vec<Option<usize>>,
}

impl Pack {
    /// Packs anchors and nodes. A node outside the vocabulary cannot be fed, nor what is below it:
    /// no target token can equal it, so its row would never be asked for.
    ///
    /// # Errors
    /// If a tree does not fit the pass.
    pub fn new(
        cache: &KvCache,
        seqs: &[Sequence],
        trees: &[DraftTree],
        vocab: usize,
    ) -> Result<Self> {
        let mut pack = Self::default();
        let mut start = 0;
        for (seq, tree) in seqs.iter().zip(trees) {
            let anchor = seq.tokens()[seq.tokens().len() - 1];
            let (tokens, parents, node_row) = feed(anchor, tree, vocab);
            let base = cache.committed(seq.id);
            pack.rows
                .span(seq.id, base, &tokens, &parents, Wanted::All)?;
            pack.spans.push(Span { start, node_row });
            start += tokens.len();
        }
        Ok(pack)
    }

    /// The pass.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The rows of sequence `i` that stay if the nodes of `path` are accepted: the anchor's and
    /// theirs, ascending, as a transaction takes them.
    #[must_use]
    pub fn kept(&self, i: usize, path: &[Node]) -> Vec<usize> {
        let node_row = &self.spans[i].node_row;
        let nodes = path.iter().filter_map(|node| node_row[node.index()]);
        std::iter::once(0).chain(nodes).collect()
    }

    /// The rows of sequence `i`, given as [`kept`](Self::kept) does, as rows of the pass.
    pub fn rows_of<'p>(&'p self, i: usize, kept: &'p [usize]) -> impl Iterator<Item = usize> + 'p {
        kept.iter().map(move |row| self.spans[i].start + row)
    }

    pub(super) fn span(&self, i: usize) -> &Span {
        &self.spans[i]
    }
}

/// Tokens and parents of the fed rows of one sequence, and by node its row.
fn feed(
    anchor: TokenId,
    tree: &DraftTree,
    vocab: usize,
) -> (Vec<TokenId>, Vec<Option<u32>>, Vec<Option<usize>>) {
    let (mut tokens, mut parents) = (vec![anchor], vec![None]);
    let mut node_row: Vec<Option<usize>> = Vec::with_capacity(tree.len());
    for node in tree.nodes() {
        let above = tree.parent(node).map_or(Some(0), |p| node_row[p.index()]);
        let token = tree.token(node);
        let row = above.filter(|_| (token as usize) < vocab).map(|above| {
            tokens.push(token);
            parents.push(u32::try_from(above).ok());
            tokens.len() - 1
        });
        node_row.push(row);
    }
    (tokens, parents, node_row)
}
