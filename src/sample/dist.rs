//! A law over tokens.

use std::sync::OnceLock;

use super::{
    draws::{Draws, Key},
    row::Row,
    score::Scores,
    wide::{first_max, sum_of_exponentials},
};
use crate::TokenId;

/// A probability law on the tokens: a support with natural logarithms of probabilities.
///
/// Invariants, kept by construction (only this module's folder makes one): the support is not
/// empty, its ids ascend strictly, every `ln p` is finite and at most 0, and the probabilities sum
/// to 1, both up to rounding. A token outside the support has probability exactly 0 and cannot be
/// chosen; one inside may be so improbable that [`Dist::p`] underflows to 0 while [`Dist::ln_p`]
/// does not.
///
/// The law of a whole row lists its probabilities when somebody asks for one. Which token is
/// [chosen](crate::sample::choose()) needs none of them.
#[derive(Clone, Debug)]
pub struct Dist {
    row: Option<Row>,
    listed: OnceLock<Listed>,
}

/// The support, ascending, and its `ln p`.
#[derive(Clone, Debug, PartialEq)]
struct Listed {
    ids: Vec<TokenId>,
    ln_p: Vec<f64>,
}

impl Listed {
    /// As [`Dist::softmax`].
    fn softmax(ids: Vec<TokenId>, mut scores: Vec<f64>) -> Self {
        debug_assert!(!ids.is_empty() && ids.len() == scores.len());
        debug_assert!(ids.is_sorted_by(|a, b| a < b));
        let over = Scores {
            values: &scores,
            at: first_max(&scores).unwrap_or(0),
            temperature: 1.0,
        };
        let (peak, ln_total) = (over.peak(), sum_of_exponentials(over).ln());
        for z in &mut scores {
            *z = (*z - peak) - ln_total;
        }
        Self { ids, ln_p: scores }
    }
}

/// Laws are equal if their supports and probabilities are.
impl PartialEq for Dist {
    fn eq(&self, other: &Self) -> bool {
        self.listed() == other.listed()
    }
}

impl From<Listed> for Dist {
    fn from(listed: Listed) -> Self {
        Self {
            row: None,
            listed: listed.into(),
        }
    }
}

impl Dist {
    /// All mass on `token`: the law of a greedy row.
    ///
    /// ```
    /// let law = eyrie::sample::Dist::one_hot(7);
    /// assert_eq!((law.p(7), law.p(6), law.len()), (1.0, 0.0, 1));
    /// ```
    #[must_use]
    pub fn one_hot(token: TokenId) -> Self {
        Self::from(Listed {
            ids: vec![token],
            ln_p: vec![0.0],
        })
    }

    /// The softmax of `scores` (finite, one an id) over `ids` (ascending, not empty).
    ///
    /// The largest score is subtracted first, so nothing overflows however large scores are, and the
    /// sum runs over ascending ids in one fixed order, so equal input gives equal bits.
    pub(super) fn softmax(ids: Vec<TokenId>, scores: Vec<f64>) -> Self {
        Self::from(Listed::softmax(ids, scores))
    }

    /// The law of a whole row.
    pub(super) fn of_row(row: Row) -> Self {
        Self {
            row: Some(row),
            listed: OnceLock::new(),
        }
    }

    /// The row that this is the law of, if it is one.
    pub(super) fn row(&self) -> Option<&Row> {
        self.row.as_ref()
    }

    /// The token of a law that has but one.
    pub(super) fn only(&self) -> Option<TokenId> {
        match *self.listed.get()?.ids {
            [only] => Some(only),
            _ => None,
        }
    }

    fn listed(&self) -> &Listed {
        self.listed.get_or_init(|| {
            let row = self.row.as_ref();
            let (ids, scores) = row.expect("a law is listed or that of a row").open();
            Listed::softmax(ids, scores)
        })
    }

    /// What is left of this law, taken `scale` times (0 to 1), where it is above `q`: the mass
    /// `S = sum of max(scale * p - q, 0)` and the law proportional to the summands. `None` if there
    /// is nothing above `q`.
    ///
    /// This is the law of a token that replaces a rejected draw from `q`. With `scale` 1 and `q` all
    /// on one token, that is this law without the token. The difference is taken as
    /// `p * (1 - q / p)` in logarithms, so a token that `q` lacks keeps its `ln p` to the last bit,
    /// however small.
    ///
    /// ```
    /// use eyrie::sample::Dist;
    ///
    /// assert_eq!(Dist::one_hot(3).residual(0.5, &Dist::one_hot(4)), Some((0.5, Dist::one_hot(3))));
    /// assert_eq!(Dist::one_hot(3).residual(1.0, &Dist::one_hot(3)), None);
    /// ```
    #[must_use]
    pub fn residual(&self, scale: f64, q: &Self) -> Option<(f64, Self)> {
        let ln_scale = scale.ln();
        let above = |(id, ln_p): (TokenId, f64)| {
            let (ln_p, ln_q) = (ln_p + ln_scale, q.ln_p(id));
            (ln_p > ln_q).then(|| (id, ln_p + (-(ln_q - ln_p).exp()).ln_1p()))
        };
        let (ids, scores): (Vec<_>, Vec<_>) = self
            .iter()
            .filter_map(above)
            .filter(|(_, score)| *score > f64::NEG_INFINITY)
            .unzip();
        if ids.is_empty() {
            return None;
        }
        let mass = scores.iter().map(|score| score.exp()).sum();
        Some((mass, Self::softmax(ids, scores)))
    }

    /// A token with this law, by one draw under a key that is asked for once. A law of one token is
    /// decided without it.
    ///
    /// # Panics
    /// If the answer is not one of the weights that were asked about.
    pub fn draw(&self, at: Key, draws: &mut dyn Draws) -> TokenId {
        if let Some(only) = self.only() {
            return only;
        }
        let Listed { ids, ln_p } = self.listed();
        let weights: Vec<f64> = ln_p.iter().map(|ln_p| ln_p.exp()).collect();
        ids[draws.pick(at, &weights)]
    }

    /// The support with `ln p`, ids ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (TokenId, f64)> + '_ {
        let Listed { ids, ln_p } = self.listed();
        ids.iter().copied().zip(ln_p.iter().copied())
    }

    /// The support, ascending.
    #[must_use]
    pub fn ids(&self) -> &[TokenId] {
        &self.listed().ids
    }

    /// `ln p` of a token, minus infinity outside the support.
    #[must_use]
    pub fn ln_p(&self, token: TokenId) -> f64 {
        // A support without gaps has the token at its own index.
        let (Listed { ids, ln_p }, at) = (self.listed(), token as usize);
        if ids.get(at) == Some(&token) {
            return ln_p[at];
        }
        ids.binary_search(&token)
            .map_or(f64::NEG_INFINITY, |i| ln_p[i])
    }

    /// Probability of a token, 0 outside the support.
    #[must_use]
    pub fn p(&self, token: TokenId) -> f64 {
        self.ln_p(token).exp()
    }

    /// Size of the support, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a law is never empty")]
    pub fn len(&self) -> usize {
        self.listed().ids.len()
    }

    /// The most probable token, of equals the lowest id.
    #[must_use]
    pub fn argmax(&self) -> TokenId {
        self.ids()[self.peak()]
    }

    /// Index in the support of [`Dist::argmax`].
    pub(super) fn peak(&self) -> usize {
        first_max(&self.listed().ln_p).unwrap_or(0)
    }

    /// The `k` most probable tokens with `ln p`, descending, of equals the lower id first; all of
    /// them if there are fewer.
    #[must_use]
    pub fn top(&self, k: usize) -> Vec<(TokenId, f64)> {
        largest(self.iter().collect(), k)
    }
}

/// The `k` largest scores with their tokens, descending, of equals the lower id first.
fn largest(mut all: Vec<(TokenId, f64)>, k: usize) -> Vec<(TokenId, f64)> {
    let rank = |a: &(TokenId, f64), b: &(TokenId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if k == 0 {
        return Vec::new();
    }
    if k < all.len() {
        all.select_nth_unstable_by(k - 1, rank);
        all.truncate(k);
    }
    all.sort_unstable_by(rank);
    all
}

/// The tokens of the `k` largest scores (finite), descending, of equals the lower id first, each
/// with its logarithm under the softmax of all scores.
///
/// Scores are compared, not logarithms: two scores may have one logarithm.
pub(super) fn best(scores: Vec<(TokenId, f64)>, k: usize) -> Vec<(TokenId, f64)> {
    let peak = scores.iter().map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
    let ln_total = scores.iter().map(|s| (s.1 - peak).exp()).sum::<f64>().ln();
    let ln = |(id, score)| (id, (score - peak) - ln_total);
    largest(scores, k).into_iter().map(ln).collect()
}
