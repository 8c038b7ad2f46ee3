//! What the target says at the rows of one sequence.

use super::pack::{Pack, Span};
use crate::{
    Matrix, Node, TokenId,
    accept::{TargetRows, Verdict},
    report::Logprob,
    sample::{Dist, Fault, History},
    sequence::Sequence,
    tree::DraftTree,
};

/// The target's laws at the rows of one sequence, made when they are asked for: the history of a
/// row is what was committed and the drafts on its path, each once.
#[derive(Debug)]
pub struct RowLaws<'a> {
    logits: &'a Matrix,
    span: &'a Span,
    tree: &'a DraftTree,
    seq: &'a Sequence,
}

impl<'a> RowLaws<'a> {
    /// The rows of sequence `i` of the pass.
    #[must_use]
    pub fn new(
        logits: &'a Matrix,
        pack: &'a Pack,
        i: usize,
        tree: &'a DraftTree,
        seq: &'a Sequence,
    ) -> Self {
        Self {
            logits,
            span: pack.span(i),
            tree,
            seq,
        }
    }

    /// `verdict` with one record for each of its tokens, path and `next`; none unless the request wants
    /// them. A token whose record faults is where the verdict ends, with that fault: the processor of a
    /// host may say something else when it is asked again.
    ///
    /// # Panics
    /// If the verdict is not one of these rows'.
    #[must_use]
    pub fn logprobs(&self, mut verdict: Verdict) -> (Verdict, Vec<Logprob>) {
        let mut records = Vec::new();
        let Some(top) = self.seq.request().logprobs else {
            return (verdict, records);
        };
        let drafted = verdict.path.iter().map(|node| self.tree.token(*node));
        let chosen: Vec<_> = drafted.chain(verdict.next.as_ref().ok().copied()).collect();
        for (i, token) in chosen.into_iter().enumerate() {
            let at = i.checked_sub(1).map(|above| verdict.path[above]);
            let path = self.path(at);
            let chain = self.seq.chain();
            match chain.report_law(self.row(at), &self.history(&path)) {
                Ok(law) => records.push(Logprob::new(&law, token, top)),
                Err(fault) => {
                    verdict.path.truncate(i);
                    verdict.next = Err(fault);
                    break;
                }
            }
        }
        (verdict, records)
    }

    fn row(&self, at: Option<Node>) -> &'a [f32] {
        let row = at.map_or(Some(0), |node| self.span.node_row[node.index()]);
        let row = row.expect("a node outside the vocabulary is never on an accepted path");
        self.logits.row(self.span.start + row)
    }

    fn path(&self, at: Option<Node>) -> Vec<TokenId> {
        let nodes = at.map_or_else(Vec::new, |node| self.tree.path(node));
        nodes
            .into_iter()
            .map(|node| self.tree.token(node))
            .collect()
    }

    fn history<'h>(&'h self, path: &'h [TokenId]) -> History<'h> {
        History {
            counts: self.seq.counts(),
            tokens: self.seq.tokens(),
            path,
        }
    }
}

impl TargetRows for RowLaws<'_> {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        let path = self.path(at);
        self.seq.chain().law(self.row(at), &self.history(&path))
    }

    #[cfg(feature = "mutants")]
    fn misread(&mut self, at: Option<Node>, how: crate::sample::Misreading) -> Result<Dist, Fault> {
        let path = self.path(at);
        how.law(self.seq.chain(), self.row(at), &self.history(&path))
    }
}
