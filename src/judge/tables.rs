//! Hard laws: a table of logits, a drafter that has them reversed, and what is done to both.

use std::sync::Arc;

use eyrie_verifier::rng::Rng;

use super::{rows::path, settings::warm};
use crate::{
    Node, TokenId,
    accept::TargetRows,
    draft::{Anchor, Drafter, Pick},
    error::Error,
    sample::{Chain, Counts, Dist, Fault, History, RawParams},
    tree::DraftTree,
};

/// Size of the vocabulary.
pub const VOCAB: usize = 16;

/// Logits of the next token by the last, `[VOCAB, VOCAB]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Table(Vec<[f32; VOCAB]>);

impl Table {
    /// Logits spread evenly over -1.5..1.5, so that a filter of the target and one of its opposite leave common tokens.
    #[must_use]
    pub fn hard() -> Self {
        let mut rng = Rng::new(0x7ab1e);
        let mut logit = || {
            let [high, low, ..] = rng.bits().to_be_bytes();
            f32::from(u16::from_be_bytes([high, low])) / 65_536.0 * 3.0 - 1.5
        };
        let mut row = |_| std::array::from_fn(|_| logit());
        Self((0..VOCAB).map(&mut row).collect())
    }

    /// Minus these logits: what this table finds likely it finds unlikely.
    #[must_use]
    pub fn opposite(&self) -> Self {
        Self(self.0.iter().map(|row| row.map(|x| -x)).collect())
    }

    /// The logits of the row after `tokens` (the prompt first) and the drafts of `path`.
    ///
    /// # Panics
    /// If there is no token before the row, or it is outside the vocabulary.
    #[must_use]
    pub fn row(&self, tokens: &[TokenId], path: &[TokenId]) -> &[f32] {
        let last = path.last().or(tokens.last());
        &self.0[*last.expect("a row has a token before it") as usize]
    }
}

/// The rows of one sequence over a table.
#[derive(Debug)]
pub struct TableRows<'a> {
    /// The logits.
    pub table: &'a Table,
    /// What is made of them.
    pub chain: &'a Chain,
    /// Prompt and output; the last token is the anchor.
    pub tokens: &'a [TokenId],
    /// What the penalties count at the anchor.
    pub counts: &'a Counts,
    /// The drafts.
    pub tree: &'a DraftTree,
}

impl TableRows<'_> {
    fn history<'h>(&'h self, path: &'h [TokenId]) -> History<'h> {
        History {
            counts: self.counts,
            tokens: self.tokens,
            path,
        }
    }
}

impl TargetRows for TableRows<'_> {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        let path = &path(self.tree, at);
        let row = self.table.row(self.tokens, path);
        self.chain.law(row, &self.history(path))
    }

    #[cfg(feature = "mutants")]
    fn misread(&mut self, at: Option<Node>, how: crate::sample::Misreading) -> Result<Dist, Fault> {
        let path = &path(self.tree, at);
        let row = self.table.row(self.tokens, path);
        how.law(self.chain, row, &self.history(path))
    }
}

/// What is done to the logits of target and drafter.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in the table.
    pub name: &'static str,
    /// The request's parameters.
    pub raw: RawParams,
    /// The tokens that the drafter can say; all, if none.
    pub draft_ids: Option<Arc<[TokenId]>>,
}

/// Every processing by itself, the drafter's vocabulary reduced, and all at once.
#[must_use]
pub fn cases() -> [Case; 8] {
    let case = |name, raw| Case {
        name,
        raw,
        draft_ids: None,
    };
    let bias = || [(2, 1.5), (4, -1.0), (9, f64::NEG_INFINITY)].into();
    let reduced: Arc<[TokenId]> = Arc::from([0, 3, 4, 6, 7, 10, 13, 15]);
    // A reward for every time a token was said, so that it shows if a draft is counted twice.
    let penalties = |raw: &mut RawParams| {
        raw.repetition_penalty = 1.3;
        raw.presence_penalty = 0.4;
        raw.frequency_penalty = -1.5;
    };
    [
        case("temperature", warm(|raw| raw.temperature = 0.7)),
        case("top-k", warm(|raw| raw.top_k = 11)),
        case("top-p", warm(|raw| raw.top_p = 0.9)),
        case("min-p", warm(|raw| raw.min_p = 0.12)),
        case("penalties", warm(penalties)),
        case("bias", warm(|raw| raw.logit_bias = bias())),
        Case {
            draft_ids: Some(Arc::clone(&reduced)),
            ..case("reduced draft vocabulary", warm(|_| ()))
        },
        Case {
            draft_ids: Some(reduced),
            ..case(
                "all at once",
                warm(|raw| {
                    penalties(raw);
                    raw.temperature = 0.8;
                    raw.top_k = 13;
                    raw.top_p = 0.95;
                    raw.min_p = 0.05;
                    raw.logit_bias = bias();
                }),
            )
        },
    ]
}

/// A drafter over a table. Sizes are fixed beforehand: so many children under every node, level by level.
///
/// Drawn children of a node are independent draws of one law, and all stay. Otherwise the first child is
/// picked and the others are the likeliest tokens besides it.
#[derive(Clone, Debug)]
pub struct TableDrafter {
    /// Its logits.
    pub table: Table,
    /// How it picks.
    pub pick: Pick,
    /// Children of a node, by level.
    pub widths: Vec<usize>,
    /// The tokens that it can say.
    pub ids: Option<Arc<[TokenId]>>,
}

impl TableDrafter {
    fn law(&self, chain: &Chain, anchor: &Anchor<'_>, path: &[TokenId]) -> Result<Dist, Fault> {
        let history = History {
            counts: anchor.counts,
            tokens: anchor.tokens,
            path,
        };
        let row = self.table.row(anchor.tokens, path);
        match &self.ids {
            None => chain.law(row, &history),
            Some(ids) => {
                let said: Vec<f32> = ids.iter().map(|id| row[*id as usize]).collect();
                chain.law(&said, &history)
            }
        }
    }

    fn children(
        &self,
        tree: &mut DraftTree,
        parent: Option<Node>,
        q: &Dist,
        width: usize,
        anchor: &mut Anchor<'_>,
    ) -> Result<Vec<Node>, Error> {
        if self.pick == Pick::Drawn {
            let draw = |_| self.pick.add(tree, parent, q.clone(), anchor);
            return (0..width).map(draw).collect();
        }
        let first = self.pick.add(tree, parent, q.clone(), anchor)?;
        let mut nodes = vec![first];
        let taken = tree.token(first);
        let others = q.top(width).into_iter().filter(|(id, _)| *id != taken);
        for (id, _) in others.take(width - 1) {
            nodes.push(tree.point(parent, id)?);
        }
        Ok(nodes)
    }
}

impl Drafter for TableDrafter {
    fn name(&self) -> &'static str {
        "table"
    }

    fn propose(
        &mut self,
        anchors: &mut [Anchor<'_>],
        trees: &mut [DraftTree],
    ) -> Result<(), Error> {
        for (anchor, tree) in anchors.iter_mut().zip(trees) {
            let narrow = (self.ids.as_ref()).map(|ids| anchor.chain.mapped(Arc::clone(ids)));
            let chain = narrow.as_ref().unwrap_or(anchor.chain);
            let mut level = vec![(None, Vec::new())];
            for &width in self.widths.iter().take(anchor.depth) {
                let mut next = Vec::new();
                for (parent, path) in level {
                    let Ok(q) = self.law(chain, anchor, &path) else {
                        continue;
                    };
                    for node in self.children(tree, parent, &q, width, anchor)? {
                        next.push((Some(node), [&path[..], &[tree.token(node)]].concat()));
                    }
                }
                level = next;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
