//! Randomness as a question.

use super::{
    dist::Dist,
    philox::{philox, split},
};
use crate::{Node, TokenId};

/// What a random number is for. The number is a pure function of the request's seed and this.
///
/// There are two families, with disjoint counters:
///
/// * [`Key::token`]: the Gumbel noise `G(t, id)` of the generated token of index `t`, one number
///   for every token id. It may be asked for many times (the drafter and the target share it, that
///   is the coupling), and depends on nothing else: not on the round, the tree or the batch. Without
///   `t`, all positions would choose with the same noise; without the id, the choice would always
///   be the argmax.
/// * [`Key::node`]: one number for a node of the round whose anchor has index `anchor`, by purpose,
///   for drawn drafts and the rules that accept or reject them. Asked at most once. Without the
///   anchor, a round would reuse the draws that an earlier round cut off, which biases block
///   verification; without the node, siblings would share a draw; without the purpose, a draft would
///   decide its own acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u64,
    node: u32,
    domain: Domain,
}

/// The last word of the counter. The numbers are part of the law of seeded output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub(super) enum Domain {
    Token = 0,
    Draft = 1,
    Accept = 2,
    Residual = 3,
    Line = 4,
    Choice = 5,
}

/// What a draw at a node decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Which token the drafter puts at the node.
    Draft,
    /// Whether the node is accepted.
    Accept,
    /// Which token replaces what was rejected at the node; after a path whose every node was
    /// accepted, which token follows it, under the number that the tree's next node would have.
    Residual,
}

impl Key {
    /// The noise of the generated token of index `t`.
    #[must_use]
    pub fn token(t: u64) -> Self {
        Self {
            index: t,
            node: 0,
            domain: Domain::Token,
        }
    }

    /// A draw for `node` (its index in the tree) in the round whose anchor is the generated token of
    /// index `anchor`.
    #[must_use]
    pub fn node(anchor: u64, node: u32, purpose: Purpose) -> Self {
        let domain = match purpose {
            Purpose::Draft => Domain::Draft,
            Purpose::Accept => Domain::Accept,
            Purpose::Residual => Domain::Residual,
        };
        Self {
            index: anchor,
            node,
            domain,
        }
    }

    /// [`Key::node`] by `first`, the index of the token that the anchor's row chooses. The anchor is
    /// the token before it, so draft and acceptance of a round agree without passing the anchor
    /// along. Wraps where there is no token before, so that no two rounds share keys.
    #[must_use]
    pub fn in_round(first: u64, node: Node, purpose: Purpose) -> Self {
        Self::node(first.wrapping_sub(1), node.0, purpose)
    }

    /// Anchor, node and purpose of a [`Key::node`].
    #[cfg(feature = "mutants")]
    pub(crate) fn parts(self) -> Option<(u64, u32, Purpose)> {
        let purpose = match self.domain {
            Domain::Draft => Purpose::Draft,
            Domain::Accept => Purpose::Accept,
            Domain::Residual => Purpose::Residual,
            Domain::Token | Domain::Line | Domain::Choice => return None,
        };
        Some((self.index, self.node, purpose))
    }

    /// Whether this is a [`Key::token`], the only family whose keys may be asked for again.
    #[must_use]
    pub fn is_token(&self) -> bool {
        self.domain == Domain::Token
    }
}

/// Every random decision of the crate is one of these questions.
///
/// [`Keyed`] answers them by the seed. A test may answer them by a record, or by walking every
/// branch, which yields the exact output law of the code that asks.
pub trait Draws {
    /// The standard Gumbel number `G` of `token` under a [`Key::token`].
    fn gumbel(&self, at: Key, token: TokenId) -> f64;

    /// Index `i` with probability `w[i]` over the sum of `w`: weights are finite, none negative, at
    /// least one positive. An index of weight 0 is never picked.
    fn pick(&mut self, at: Key, w: &[f64]) -> usize;

    /// True with probability `p`: never if `p <= 0`, always if `p >= 1`.
    fn accept(&mut self, at: Key, p: f64) -> bool;

    /// The token of the support with the largest `ln p + G`, of equals the lowest id. By the
    /// Gumbel-max theorem it has the law `law`.
    ///
    /// The default asks for every `G`. An override must return the same token, and may ask for fewer.
    fn choose(&self, law: &Dist, at: Key) -> TokenId {
        let mut best = (f64::NEG_INFINITY, law.ids()[0]);
        for (id, ln_p) in law.iter() {
            let value = ln_p + self.gumbel(at, id);
            if value > best.0 {
                best = (value, id);
            }
        }
        best.1
    }

    /// `ln p + G` of every token of the support, in its order.
    ///
    /// The default asks for every `G` alone. An override must return the same numbers.
    fn noisy(&self, law: &Dist, at: Key) -> Vec<(TokenId, f64)> {
        let noisy = |(id, ln_p)| (id, ln_p + self.gumbel(at, id));
        law.iter().map(noisy).collect()
    }
}

/// The production [`Draws`]: Philox4x32-10 with the request's seed as key and the [`Key`] as
/// counter. It has no state, so equal questions have equal answers in any order.
///
/// A uniform number is `((x >> 12) + 1/2) / 2^52` for 64 bits `x`, so never 0 or 1, and
/// `G = -ln(-ln u)`, between -3.7 and 36.8.
#[derive(Clone, Copy, Debug)]
pub struct Keyed {
    seed: [u32; 2],
}

impl Keyed {
    /// The draws of a request with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (high, low) = split(seed);
        Self { seed: [low, high] }
    }

    /// Two independent 64-bit numbers for a counter.
    #[inline]
    pub(super) fn words(self, first: u32, index: u64, domain: Domain) -> [u64; 2] {
        let block = philox(counter(first, index, domain), self.seed);
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        [join(block[0], block[1]), join(block[2], block[3])]
    }

    /// The 64 bits behind `G(t, token)` for the two tokens `2 * pair` and `2 * pair + 1`.
    #[inline]
    fn noise(self, at: Key, pair: u32) -> [u64; 2] {
        debug_assert!(at.is_token(), "the noise of a token has a token's key");
        self.words(pair, at.index, at.domain)
    }

    fn uniform(self, at: Key) -> f64 {
        unit(self.words(at.node, at.index, at.domain)[0])
    }
}

impl Draws for Keyed {
    fn gumbel(&self, at: Key, token: TokenId) -> f64 {
        let [even, odd] = self.noise(at, token / 2);
        gumbel(if token.is_multiple_of(2) { even } else { odd })
    }

    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        let total: f64 = w.iter().sum();
        debug_assert!(total > 0.0 && total.is_finite(), "weights sum to {total}");
        let x = self.uniform(at) * total;
        let mut below = 0.0;
        let mut last = 0;
        for (i, &weight) in w.iter().enumerate() {
            if weight > 0.0 {
                below += weight;
                last = i;
                if x < below {
                    break;
                }
            }
        }
        last
    }

    fn accept(&mut self, at: Key, p: f64) -> bool {
        self.uniform(at) < p
    }

    /// Starts from the most probable token and computes the two logarithms of a `G` only where
    /// `ceiling` leaves a chance: about two or three times a call, whatever the vocabulary. A whole row
    /// is looked at side by side, and its scores need not be made probabilities.
    fn choose(&self, law: &Dist, at: Key) -> TokenId {
        if let Some(row) = law.row() {
            let noise = |id| self.gumbel(at, id);
            return row.winner(counter(0, at.index, at.domain), self.seed, noise);
        }
        let start = law.peak();
        let id = law.ids()[start];
        if law.len() == 1 {
            return id;
        }
        let mut best = law.ln_p(id) + self.gumbel(at, id);
        let mut winner = id;
        let (mut pair, mut words) = (u32::MAX, [0; 2]); // ids / 2 never reach u32::MAX
        for (id, ln_p) in law.iter() {
            if ln_p + HIGHEST < best {
                continue;
            }
            if id / 2 != pair {
                pair = id / 2;
                words = self.noise(at, pair);
            }
            let bits = if id.is_multiple_of(2) {
                words[0]
            } else {
                words[1]
            };
            if ln_p + ceiling(bits) < best {
                continue;
            }
            let value = ln_p + gumbel(bits);
            if value > best || (value == best && id < winner) {
                (best, winner) = (value, id);
            }
        }
        winner
    }

    /// Makes the numbers of two neighbours at once.
    fn noisy(&self, law: &Dist, at: Key) -> Vec<(TokenId, f64)> {
        let (mut pair, mut words) = (u32::MAX, [0; 2]); // ids / 2 never reach u32::MAX
        let noisy = |(id, ln_p): (TokenId, f64)| {
            if id / 2 != pair {
                pair = id / 2;
                words = self.noise(at, pair);
            }
            let [even, odd] = words;
            let bits = if id.is_multiple_of(2) { even } else { odd };
            (id, ln_p + gumbel(bits))
        };
        law.iter().map(noisy).collect()
    }
}

/// Philox's counter of a block.
#[inline]
fn counter(first: u32, index: u64, domain: Domain) -> [u32; 4] {
    let (high, low) = split(index);
    [first, low, high, domain as u32]
}

/// Above every `G` there is.
const HIGHEST: f64 = 37.0;

/// A uniform number strictly between 0 and 1.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "52 bits and a half fit the mantissa exactly"
)]
fn unit(x: u64) -> f64 {
    const STEP: f64 = 1.0 / (1u64 << 52) as f64;
    ((x >> 12) as f64 + 0.5) * STEP
}

/// `G` for 64 random bits.
#[inline]
fn gumbel(x: u64) -> f64 {
    -(-unit(x).ln()).ln()
}

/// An upper bound of [`gumbel`] without a logarithm, at most `ln 2` (and the gap between `-ln u`
/// and `1 - u`) too high.
///
/// `-ln u >= 1 - u`, so `G <= -ln(1 - u)`; and `1 - u`, which is `((!x >> 12) + 1/2) / 2^52`, is at
/// least `2^-(z + 1)` if `!x` begins with `z <= 52` zeros. The last summand covers rounding.
#[inline]
fn ceiling(x: u64) -> f64 {
    let zeros = (!x).leading_zeros().min(52);
    f64::from(zeros + 1) * std::f64::consts::LN_2 + 1e-9
}

#[cfg(test)]
pub(super) fn ceiling_and_value(x: u64) -> (f64, f64) {
    (ceiling(x), gumbel(x))
}
