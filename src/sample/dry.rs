//! "Don't repeat yourself": a penalty on going on as before.
//!
//! Repetition and frequency penalties punish a token for having occurred at all, and so hurt the
//! words that every text needs. This one looks at *passages*. Let the context (prompt, output and
//! the drafts before the row) end with a passage that stood in it before; the token that followed
//! it there would make the repeated passage one longer. That token is made less likely, the more so
//! the longer the passage is already:
//!
//! ```text
//! context   a b c d … a b c        the last three stood before, and d followed:
//!                         └ d?     length 3, d loses multiplier * base^(3 - allowed_length)
//! ```
//!
//! Exactly, with the context `x[0..n]`:
//!
//! * Every earlier place `i < n - 1` of the last token (`x[i] == x[n-1]`) is the end of a match. Its
//!   length is the largest `l` of at most [`LONGEST`] such that the `l` tokens up to `i` are the
//!   last `l` tokens of the context.
//! * A *breaker* (a line's end, a quote: where texts may well begin alike) ends a match: the match
//!   does not reach back to it. The last token itself is not asked, it may be one.
//! * The token `x[i+1]` is what would prolong the match. If it is a breaker it goes free. Of several
//!   matches that the same token would prolong, the longest counts.
//! * A match shorter than `allowed_length` costs nothing.
//!
//! The cap on lengths bounds the work: `n` times `LONGEST` comparisons a row, whatever the text.
//!
//! The penalty was proposed by the author of text-generation-webui's pull request 5677; places,
//! breakers and cap are those of mistral.rs 0.8.1 (`src/sampler.rs` of mistralrs-core), in both
//! [`Semantics`](super::Semantics). It is taken off after the bias and before the other penalties.

use std::collections::{BTreeMap, BTreeSet};

use super::counts::History;
use crate::TokenId;

/// Longest match that is told from a longer one.
const LONGEST: usize = 50;

/// Parameters of the penalty.
///
/// ```
/// use eyrie::sample::{Chain, Counts, Dry, History, RawParams, SamplingParams};
///
/// let dry = Dry { multiplier: 1.0, base: 2.0, allowed_length: 2, breakers: [].into() };
/// let raw = RawParams { dry: Some(dry), ..RawParams::default() };
/// let chain = Chain::new(SamplingParams::new(raw)?, 4, 4, vec![])?;
/// // 0 1 2 was followed by 3: a match of length 3, so 3 loses 1.0 * 2.0^1.
/// let tokens = &[0, 1, 2, 3, 0, 1, 2];
/// let history = History { counts: &Counts::new(tokens), tokens, path: &[] };
/// assert_eq!(chain.law(&[0.0, 0.0, 1.5, 3.4], &history)?.argmax(), 2);
/// # Ok::<(), eyrie::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// Times this; finite, 0 is off.
    pub multiplier: f64,
    /// To the power of what the match has beyond `allowed_length`; finite.
    pub base: f64,
    /// The shortest match that costs something.
    pub allowed_length: usize,
    /// Tokens that end a match, and that are not penalised.
    pub breakers: BTreeSet<TokenId>,
}

impl Dry {
    /// The tokens that would prolong a match, ascending, each with what it loses.
    pub(super) fn penalties(&self, h: &History<'_>) -> Vec<(TokenId, f64)> {
        let x: Vec<TokenId> = h.context().collect();
        let Some((last, before)) = x.split_last() else {
            return Vec::new();
        };
        let mut longest = BTreeMap::new();
        for i in (0..before.len()).filter(|i| before[*i] == *last) {
            let next = x[i + 1];
            if !self.breakers.contains(&next) {
                let length = longest.entry(next).or_insert(0);
                *length = self.matched(&x, i).max(*length);
            }
        }
        let costs = |(token, length): (TokenId, usize)| {
            let beyond = i32::try_from(length.checked_sub(self.allowed_length)?).ok()?;
            Some((token, self.multiplier * self.base.powi(beyond)))
        };
        longest.into_iter().filter_map(costs).collect()
    }

    /// How many tokens up to `i` are the last ones of `x`; at least 1.
    fn matched(&self, x: &[TokenId], i: usize) -> usize {
        let back = x[..i].iter().rev().zip(x[..x.len() - 1].iter().rev());
        let same = back.take_while(|(a, b)| a == b && !self.breakers.contains(b));
        1 + same.take(LONGEST - 1).count()
    }
}
