//! Which token meets which feature: what all versions share.
//!
//! The tokens of a sequence are t_0, t_1, …, and g_i is the target's feature of t_i: what its streams
//! held when it was fed t_i. Row i of a head is
//!
//! ```text
//! (t_{i+1}, g_i)    at position i, and guesses t_{i+2}
//! ```
//!
//! The token comes after the feature, so of whatever the target was fed, the last feature waits for
//! the token that follows:
//!
//! ```text
//! the target was fed     t0 t1 t2 │ t3 t4                        a prompt in two chunks
//! rows                   (t1,g0) (t2,g1) │ (t3,g2) (t4,g3)       g4 waits
//! t5 is emitted          (t5,g4)                                 guesses t6: the anchor's row
//! drafting               (t6',o) (t7',o) …                       guessed tokens, guessed features
//! verdict: t6' is right  g5 g6 come from the target's pass
//! rows                   (t6,g5)                                 g6 waits for t7
//! ```
//!
//! A row is *true* if both halves are: its token was emitted, its feature is the target's. The anchor's
//! row is true, the rows of drafts are not, not even of drafts that were accepted, since their features
//! were guessed. Only true rows stay in the cache. A sequence that was drafted for is therefore at all
//! times what it would be if its tokens had been a prompt, to the bit: chunks, rejected drafts and
//! rounds without drafts leave no trace.

use crate::{Matrix, TokenId};

/// The true rows of one sequence that have not been fed.
///
/// Invariant: row i waits or is fed if and only if g_i is known, and rows are fed in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairing {
    /// The tokens whose features are known: t_0, t_1, …
    tokens: Vec<TokenId>,
    /// The features of the last of them, whose rows have not been fed, one after the other.
    waiting: Vec<f32>,
    /// How many those are.
    count: usize,
    /// The token of the last fed row, if it comes after the known ones.
    anchor: Option<TokenId>,
}

impl Pairing {
    /// Features whose rows have not been fed.
    pub(super) fn waiting(&self) -> usize {
        self.count
    }

    /// Rows that can be fed: all that wait but the last.
    pub(super) fn ready(&self) -> usize {
        self.count.saturating_sub(1)
    }

    /// The features that wait.
    pub(super) fn features(&self) -> &[f32] {
        &self.waiting
    }

    /// Whether `tokens`, the last `new` of which have features now, go on from what is known and
    /// fed.
    pub(super) fn continues(&self, tokens: &[TokenId], new: usize) -> bool {
        let next = tokens.get(self.tokens.len());
        tokens.len() == self.tokens.len() + new
            && tokens.starts_with(&self.tokens)
            && (self.anchor.is_none() || self.anchor.as_ref() == next)
    }

    /// Takes the features of the last tokens of `tokens`, a row each.
    pub(super) fn see(&mut self, tokens: &[TokenId], features: &Matrix) {
        self.tokens.extend(&tokens[self.tokens.len()..]);
        self.waiting.extend(features.as_slice());
        self.count += features.rows();
        self.anchor = None;
    }

    /// The next `rows` rows: tokens, and features. `next` follows on what is known; without it
    /// the last feature has no row.
    pub(super) fn next(&self, rows: usize, next: Option<TokenId>) -> (Vec<TokenId>, &[f32]) {
        let first = self.tokens.len() - self.count + 1;
        let tokens = self.tokens[first..].iter().copied().chain(next);
        let width = self.waiting.len() / self.count;
        (tokens.take(rows).collect(), &self.waiting[..rows * width])
    }

    /// The next `rows` rows were fed, the last with `next` if that follows on what is known.
    pub(super) fn fed(&mut self, rows: usize, next: Option<TokenId>) {
        self.anchor = next;
        let width = self.waiting.len() / self.count;
        self.waiting.drain(..rows * width);
        self.count -= rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_feature_waits_for_the_next_token() {
        let mut pairing = Pairing::default();
        let features = |from: u8, to: u8| Matrix::new(1, (from..to).map(f32::from).collect());
        pairing.see(&[10, 11, 12], &features(0, 3));
        assert_eq!((pairing.waiting(), pairing.ready()), (3, 2));
        assert_eq!(pairing.next(2, None), (vec![11, 12], &[0.0, 1.0][..]));
        pairing.fed(2, None);
        assert!(pairing.continues(&[10, 11, 12, 13, 14], 2));
        assert!(!pairing.continues(&[10, 11, 12, 13, 14], 1));
        assert!(!pairing.continues(&[10, 11, 99, 13, 14], 2));
        pairing.see(&[10, 11, 12, 13, 14], &features(3, 5));
        let (tokens, waiting) = pairing.next(3, Some(15));
        assert_eq!((tokens, waiting), (vec![13, 14, 15], &[2.0, 3.0, 4.0][..]));
        pairing.fed(3, Some(15));
        assert!(pairing.continues(&[10, 11, 12, 13, 14, 15], 1));
        assert!(!pairing.continues(&[10, 11, 12, 13, 14, 16], 1));
        assert_eq!((pairing.waiting(), pairing.ready()), (0, 0));
        assert_eq!(pairing.tokens, [10, 11, 12, 13, 14]);
    }
}
