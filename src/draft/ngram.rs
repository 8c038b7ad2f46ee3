//! Guessing that the text repeats itself ("prompt lookup", Saxena 2023).

use super::{Anchor, Drafter};
use crate::{TokenId, error::Result, tree::DraftTree};

/// Shortest repeated suffix that is followed: single tokens repeat by chance.
const MIN_MATCH: usize = 2;

/// The drafter `ngram`: finds the longest suffix of prompt and output that occurs before, the
/// latest occurrence of equals, and drafts what followed it there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ngram;

impl Drafter for Ngram {
    fn name(&self) -> &'static str {
        "ngram"
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        for (anchor, tree) in anchors.iter().zip(trees) {
            *tree = DraftTree::chain(&continuation(anchor.tokens, anchor.depth));
        }
        Ok(())
    }
}

/// Up to `depth` tokens after the best earlier occurrence of the suffix. Where the occurrence
/// overlaps the end, the guess goes on with its own tokens: a cycle is drafted to full depth.
fn continuation(tokens: &[TokenId], depth: usize) -> Vec<TokenId> {
    let Some(period) = best_period(tokens) else {
        return Vec::new();
    };
    let mut all = tokens.to_vec();
    for _ in 0..depth {
        all.push(all[all.len() - period]);
    }
    all.split_off(tokens.len())
}

/// The shift that maps the longest repeated suffix onto its latest earlier occurrence.
pub(super) fn best_period(tokens: &[TokenId]) -> Option<usize> {
    let matches = suffix_matches(tokens);
    let longest = (1..tokens.len()).max_by_key(|shift| (matches[*shift], tokens.len() - shift))?;
    (matches[longest] >= MIN_MATCH).then_some(longest)
}

/// For every shift s, how many tokens before position len - s equal those before the end: the Z
/// function (Gusfield 1997) of the reversed list, in linear time.
fn suffix_matches(tokens: &[TokenId]) -> Vec<usize> {
    let n = tokens.len();
    let back = |i: usize| tokens[n - 1 - i];
    let mut z = vec![0; n];
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        let mut len = if i < right {
            z[i - left].min(right - i)
        } else {
            0
        };
        while i + len < n && back(len) == back(i + len) {
            len += 1;
        }
        if i + len > right {
            (left, right) = (i, i + len);
        }
        z[i] = len;
    }
    z
}
