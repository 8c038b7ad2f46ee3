//! The rows of one pass: spans of several sequences, packed.

use std::ops::Range;

use crate::{
    SeqId, TokenId,
    error::{ErrorKind, Result},
};

/// Which rows of a span get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every row.
    All,
    /// The last row.
    Last,
    /// No row.
    None,
}

/// The rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The sequence.
    pub seq: SeqId,
    /// Its committed length: the position of the span's roots.
    pub base: usize,
    /// Its rows in the pass.
    pub rows: Range<usize>,
    /// Its rows in the logits.
    pub logits: Range<usize>,
}

/// The rows of one pass. Row `i` of a span sits at `base + depth`, and attends to the `base`
/// committed tokens of its sequence, to its ancestors in the span, and to itself.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    spans: Vec<Span>,
    tokens: Vec<TokenId>,
    parents: Vec<Option<u32>>,
    positions: Vec<usize>,
    wanted: Vec<usize>,
}

impl Rows {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a span: `tokens` after the `base` committed tokens of `seq`. `parents` are indices in
    /// the span, each before its child; a row without one follows on the committed tokens.
    ///
    /// # Errors
    /// If a parent does not precede its child, the lengths differ, there is no token, or `seq` has
    /// a span already. Nothing is added then.
    pub fn span(
        &mut self,
        seq: SeqId,
        base: usize,
        tokens: &[TokenId],
        parents: &[Option<u32>],
        wanted: Wanted,
    ) -> Result<()> {
        let fail =
            |what: String| Err(ErrorKind::Rows(format!("sequence {}: {what}", seq.0)).into());
        if tokens.is_empty() || tokens.len() != parents.len() {
            let (tokens, parents) = (tokens.len(), parents.len());
            return fail(format!(
                "{tokens} tokens with {parents} parents, accepted are one or more with as many"
            ));
        }
        if self.spans.iter().any(|span| span.seq == seq) {
            return fail("a second span, accepted is one a pass".to_owned());
        }
        let mut positions = Vec::with_capacity(tokens.len());
        for (i, parent) in parents.iter().enumerate() {
            let position = match parent {
                None => base,
                Some(parent) => match positions.get(*parent as usize) {
                    Some(position) => position + 1,
                    None => return fail(format!("row {i} has parent {parent}, accepted are less")),
                },
            };
            positions.push(position);
        }

        let (row, logit) = (self.tokens.len(), self.wanted.len());
        let end = row + tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.parents.extend_from_slice(parents);
        self.positions.extend(positions);
        self.wanted.extend(match wanted {
            Wanted::All => row..end,
            Wanted::Last => end - 1..end,
            Wanted::None => end..end,
        });
        self.spans.push(Span {
            seq,
            base,
            rows: row..end,
            logits: logit..self.wanted.len(),
        });
        Ok(())
    }

    /// Adds a span whose tokens follow on each other.
    ///
    /// # Errors
    /// As [`span`](Self::span).
    pub fn chain(
        &mut self,
        seq: SeqId,
        base: usize,
        tokens: &[TokenId],
        wanted: Wanted,
    ) -> Result<()> {
        let parents = std::iter::once(None).chain((0..).map(Some));
        let parents: Vec<_> = parents.take(tokens.len()).collect();
        self.span(seq, base, tokens, &parents, wanted)
    }

    /// The spans, in the order they were added.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Sequences and their numbers of rows, as a transaction takes them.
    #[must_use]
    pub fn want(&self) -> Vec<(SeqId, usize)> {
        self.spans
            .iter()
            .map(|span| (span.seq, span.rows.len()))
            .collect()
    }

    /// Tokens of all rows.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Positions of all rows.
    #[must_use]
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Parents of all rows, as indices in their spans.
    #[must_use]
    pub fn parents(&self) -> &[Option<u32>] {
        &self.parents
    }

    /// Rows that get logits, ascending.
    #[must_use]
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_base_plus_depth() -> Result<()> {
        let mut rows = Rows::new();
        rows.chain(SeqId(1), 5, &[7, 8, 9], Wanted::Last)?;
        let parents = [None, Some(0), Some(0), Some(2), None];
        rows.span(SeqId(2), 3, &[1, 2, 3, 4, 5], &parents, Wanted::All)?;
        rows.chain(SeqId(3), 0, &[6], Wanted::None)?;
        assert_eq!(rows.positions(), [5, 6, 7, 3, 4, 4, 5, 3, 0]);
        assert_eq!(rows.wanted(), [2, 3, 4, 5, 6, 7]);
        let logits: Vec<_> = rows.spans().iter().map(|s| s.logits.clone()).collect();
        assert_eq!(logits, [0..1, 1..6, 6..6]);
        assert_eq!(rows.want(), [(SeqId(1), 3), (SeqId(2), 5), (SeqId(3), 1)]);
        Ok(())
    }

    #[test]
    fn what_is_no_tree_is_refused_and_leaves_no_row() {
        let mut rows = Rows::new();
        let seq = SeqId(4);
        for parents in [&[None, Some(1)][..], &[None], &[Some(0), None]] {
            let error = rows.span(seq, 0, &[1, 2], parents, Wanted::All);
            let text = error.expect_err("no tree").to_string();
            assert!(text.starts_with("rows: sequence 4: "), "{text}");
        }
        assert!(rows.chain(seq, 0, &[], Wanted::All).is_err());
        assert!(rows.is_empty() && rows.spans().is_empty());
        assert!(rows.chain(seq, 0, &[1], Wanted::All).is_ok());
        assert!(rows.chain(seq, 1, &[1], Wanted::All).is_err());
        assert_eq!(rows.len(), 1);
    }
}
