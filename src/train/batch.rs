//! Sequences packed for a step of training.
//!
//! ```text
//! tokens   t0 … t(L-1)      the first P given
//! row i    (t(i+1), feature of ti)   and guesses t(i+2), against what the target said after t(i+1)
//! step k   the same row k tokens on: t(i+1+k), and t(i+2+k) is guessed
//! ```
//!
//! The feature is the taps, for EAGLE-1 the normed last stream.
//!
//! The last token was never fed to the target, so there are streams of t0 to t(L-2), and the last row
//! that can be judged is L - 3. Rows before the first that is unrolled only give keys.

use std::ops::Range;

use super::{attention::Span, data::Sequence, frozen::Frozen, mat::Mat, net::Form};
use crate::{TokenId, draft::eagle::Version, error::Result};

/// Rows of one sequence that are unrolled at most; what is longer is cut.
pub(super) const MOST_ROWS: usize = 2048;

/// What follows a row at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The sequence has ended.
    Beyond,
    /// A token that the head has no row for.
    Outside,
    /// The token of this row of the head.
    Row(usize),
}

/// Some sequences.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) spans: Vec<Span>,
    /// The feature of each row, its streams divided by their scales, `[rows, taps * hidden]`.
    pub(super) features: Mat,
    /// t(i+1) of each row.
    pub(super) tokens: Vec<TokenId>,
    /// i of each row.
    pub(super) positions: Vec<usize>,
    /// The row of each query.
    pub(super) rows: Vec<usize>,
    /// The target's normed last stream of t(i+1), for each query; of t(i+1+k), that of the query k
    /// further on.
    pub(super) finals: Mat,
    /// By step, t(i+1+k) for each query; the last token again where the sequence has ended.
    pub(super) follow: Vec<Vec<TokenId>>,
    /// By step, t(i+2+k).
    pub(super) next: Vec<Vec<Next>>,
}

/// Which rows of a sequence of `tokens` tokens are unrolled, if the predicted tokens from `from` on
/// count.
pub(super) fn unrolled(tokens: usize, from: usize) -> Range<usize> {
    let first = from.saturating_sub(1);
    let end = tokens.saturating_sub(2).min(first + MOST_ROWS);
    first..end.max(first)
}

impl Batch {
    /// Packs `sequences`, each with the first of its tokens that counts, for `steps` steps.
    pub(super) fn new(
        sequences: &[(Sequence, usize)],
        scales: &[f32],
        form: &Form,
        frozen: &Frozen,
        steps: usize,
    ) -> Result<Self> {
        let hidden = form.hidden;
        let (mut features, mut finals) = (Vec::new(), Vec::new());
        for (sequence, from) in sequences {
            let queries = unrolled(sequence.tokens.len(), *from);
            for i in 0..queries.end {
                let streams = match form.version {
                    Version::Eagle1 => sequence.finals.row(i),
                    Version::Eagle3 => sequence.taps.row(i),
                };
                let scaled = streams.chunks(hidden).zip(scales);
                let scaled = scaled.flat_map(|(x, scale)| x.iter().map(move |x| x / scale));
                features.extend(scaled);
            }
            for i in queries {
                finals.extend_from_slice(sequence.finals.row(i + 1));
            }
        }
        let mut batch = Self {
            spans: Vec::new(),
            features: Mat::new(scales.len() * hidden, features)?,
            tokens: Vec::new(),
            positions: Vec::new(),
            rows: Vec::new(),
            finals: Mat::new(hidden, finals)?,
            follow: vec![Vec::new(); steps],
            next: vec![Vec::new(); steps],
        };
        for (sequence, from) in sequences {
            let queries = unrolled(sequence.tokens.len(), *from);
            let (row, query) = (batch.tokens.len(), batch.rows.len());
            batch.tokens.extend(&sequence.tokens[1..=queries.end]);
            batch.positions.extend(0..queries.end);
            batch.rows.extend(queries.clone().map(|i| row + i));
            for step in 0..steps {
                batch.follow(step, sequence, &queries, frozen);
            }
            batch.spans.push(Span {
                rows: row..batch.tokens.len(),
                queries: query..batch.rows.len(),
            });
        }
        Ok(batch)
    }

    fn follow(&mut self, step: usize, sequence: &Sequence, rows: &Range<usize>, frozen: &Frozen) {
        let tokens = &sequence.tokens;
        for i in rows.clone() {
            let at = (i + 1 + step).min(tokens.len() - 1);
            self.follow[step].push(tokens[at]);
            self.next[step].push(if i + step >= rows.end {
                Next::Beyond
            } else {
                let row = frozen.ids.binary_search(&tokens[i + 2 + step]);
                row.map_or(Next::Outside, Next::Row)
            });
        }
    }

    /// The queries that are judged at `step`, each with the query whose final it is judged by.
    pub(super) fn judged(&self, step: usize) -> impl Iterator<Item = (usize, usize)> {
        let next = self.next[step].iter().enumerate();
        let judged = next.filter(|(_, next)| matches!(next, Next::Row(_)));
        judged.map(move |(query, _)| (query, query + step))
    }
}
