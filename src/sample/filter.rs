//! Top-k, top-p and min-p.
//!
//! A filter takes candidates with scores (logits over temperature) and keeps some. Nothing is
//! normalised on the way: weights relative to the largest, `exp(z - peak)`, say the same, and
//! the largest token survives every filter. Sums run in a fixed order, of columns for totals and
//! descending scores for the mass of a prefix, so equal input gives equal bits.

use std::cmp::Ordering;

use super::{
    dist::Dist,
    params::SamplingParams,
    score::{Score, Scores, narrow},
    semantics::Semantics,
    wide::{reached_by, sum_of_exponentials, within},
};
use crate::TokenId;

/// A token that may still be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: TokenId,
    /// Finite, and never minus zero, which would break a tie.
    pub(super) z: f64,
}

/// Larger scores first, of equals the lower id.
fn rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.z.total_cmp(&a.z).then(a.id.cmp(&b.id))
}

/// The law of what the filters of `params` leave of a row, whose columns are the tokens `token(column)`,
/// ascending.
///
/// Of a whole vocabulary hardly any token survives a filter, so the first filter that is on is asked
/// for a bound first, and only what is above it becomes a candidate. The bounds are in `f32` and let a
/// few more through than the filters, which then decide.
pub(super) fn filtered<S: Score>(
    scores: Scores<'_, S>,
    token: impl Fn(usize) -> TokenId,
    params: &SamplingParams,
) -> Dist {
    let peak = scores.over(scores.peak());
    let host = params.semantics == Semantics::Host;
    let nucleus = params.nucleus();
    let mass = nucleus
        .filter(|_| host || params.top_k == 0)
        .map(|_| sum_of_exponentials(scores));
    let bound = if params.top_k > 0 {
        reached_by(scores.values, params.top_k).above(scores.peak())
    } else {
        let weight = match nucleus.zip(mass) {
            Some((p, mass)) => negligible(mass, p * mass, scores.values.len()),
            None => params.least().unwrap_or(0.0),
        };
        let far = weight.ln() * params.temperature;
        narrow(far - 1e-6 * (1.0 + far.abs()) - scores.peak().wide().abs() * 1e-15)
    };
    let candidate = |column: usize| Candidate {
        id: token(column),
        z: scores.over(scores.values[column]),
    };
    let mut left: Vec<_> = within(scores, bound).into_iter().map(candidate).collect();
    if params.top_k > 0 {
        top_k(&mut left, params.top_k);
    }
    if let Some(p) = nucleus {
        let weight = |c: &Candidate| (c.z - peak).exp();
        let mass = mass.unwrap_or_else(|| left.iter().map(weight).sum());
        top_p(&mut left, peak, p * mass);
    }
    if let Some(least) = params.least() {
        let keeps = |weight: f64| weight > least || (!host && weight == least);
        left.retain(|c| keeps((c.z - peak).exp()));
    }
    let (ids, scores) = left.into_iter().map(|c| (c.id, c.z)).unzip();
    Dist::softmax(ids, scores)
}

/// Keeps the `k` first in rank.
fn top_k(left: &mut Vec<Candidate>, k: usize) {
    if k < left.len() {
        left.select_nth_unstable_by(k - 1, rank);
        left.truncate(k);
        left.sort_unstable_by_key(|c| c.id);
    }
}

/// The weight up to which all of `n` tokens together could not matter to top-p; 0 if there is none.
///
/// Of `n` tokens with the mass `total`, those of weight at most `(total - wanted) / 2n` have at most half
/// of the mass `total - wanted` that may go, so the prefix ends before them. The other half is the margin
/// for rounding, hence there is none where hardly any mass may go.
fn negligible(total: f64, wanted: f64, n: usize) -> f64 {
    const LEAST_SPARE: f64 = 1e-6;
    let spare = total - wanted;
    if spare < LEAST_SPARE * total {
        return 0.0;
    }
    spare / (2.0 * f64::from(u32::try_from(n).unwrap_or(u32::MAX)))
}

/// Keeps the shortest prefix in rank whose mass reaches `wanted`, or everything: a token stays if the
/// mass before it is below `wanted`. Of many tokens only those that may be in it are sorted.
fn top_p(left: &mut Vec<Candidate>, peak: f64, wanted: f64) {
    const MANY: usize = 256;
    if left.len() > MANY {
        let last = last_step(left, peak, wanted);
        left.retain(|c| step(c, peak) <= last);
    }
    left.sort_unstable_by(rank);
    let mut mass = 0.0;
    let end = left.iter().position(|c| {
        let reached = mass >= wanted;
        mass += (c.z - peak).exp();
        reached
    });
    left.truncate(end.unwrap_or(left.len()));
    left.sort_unstable_by_key(|c| c.id);
}

/// Steps below the largest score, each a sixteenth, the last without an end.
const STEPS: usize = 512;
const STEP: f64 = 1.0 / 16.0;

/// The step that a token is on.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the whole part of a number that is not negative, or the largest"
)]
fn step(c: &Candidate, peak: f64) -> usize {
    (((peak - c.z) / STEP) as usize).min(STEPS - 1)
}

/// A step by whose end the mass from the top has reached `wanted`: each token weighs at least what the
/// end of its step does.
fn last_step(left: &[Candidate], peak: f64, wanted: f64) -> usize {
    const ROUNDING: f64 = 1e-9;
    let mut tokens = [0u32; STEPS];
    for c in left {
        tokens[step(c, peak)] += 1;
    }
    let (mut mass, mut weight, factor) = (0.0, 1.0, (-STEP).exp());
    let reached = tokens[..STEPS - 1].iter().position(|tokens| {
        weight *= factor;
        mass += f64::from(*tokens) * weight;
        mass >= wanted * (1.0 + ROUNDING)
    });
    reached.unwrap_or(STEPS - 1)
}
