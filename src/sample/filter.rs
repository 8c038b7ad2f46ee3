//! Top-k, top-p and min-p.
//!
//! A filter takes candidates with scores (logits over temperature) and keeps some. Nothing is
//! normalised on the way: weights relative to the largest, `exp(z - peak)`, say the same, and
//! the largest token survives every filter. Sums run in a fixed order, ascending ids for
//! totals and descending scores for the mass of a prefix, so equal input gives equal bits.

use std::cmp::Ordering;

use super::{dist::Dist, params::SamplingParams, semantics::Semantics};
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

/// The law of the candidates (ids ascending, not empty) that the filters of `params` leave.
pub(super) fn filtered(mut left: Vec<Candidate>, params: &SamplingParams) -> Dist {
    let peak = left.iter().map(|c| c.z).fold(f64::NEG_INFINITY, f64::max);
    let total = |left: &[Candidate]| left.iter().map(|c| (c.z - peak).exp()).sum::<f64>();
    let host = params.semantics == Semantics::Host;
    let before = (params.nucleus().filter(|_| host)).map(|_| total(&left));
    if params.top_k > 0 {
        top_k(&mut left, params.top_k);
    }
    if let Some(p) = params.nucleus() {
        let mass = total(&left);
        top_p(&mut left, peak, mass, p * before.unwrap_or(mass));
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

/// Keeps the shortest prefix in rank whose mass reaches `wanted` of the `total`, or everything: a
/// token stays if the mass before it is below `wanted`.
///
/// Before anything is sorted, tokens so light that all of them together could not matter are
/// dropped: of `n` tokens, those of weight at most `(total - wanted) / 2n` have at most half of the
/// mass `total - wanted` that may go, so the prefix ends before them (the other half is the margin
/// for rounding, hence not where hardly any may go). Of the rest the prefix is sorted in growing
/// pieces.
fn top_p(left: &mut Vec<Candidate>, peak: f64, total: f64, wanted: f64) {
    const FIRST_PIECE: usize = 256;
    const LEAST_SPARE: f64 = 1e-6;
    let weight = |c: &Candidate| (c.z - peak).exp();
    let spare = total - wanted;
    if spare >= LEAST_SPARE * total {
        let n = f64::from(u32::try_from(left.len()).unwrap_or(u32::MAX));
        let floor = (spare / (2.0 * n)).ln();
        left.retain(|c| c.z - peak > floor);
    }
    let (mut from, mut piece, mut mass) = (0, FIRST_PIECE, 0.0);
    'grow: while from < left.len() {
        let to = left.len().min(from + piece);
        if to < left.len() {
            left[from..].select_nth_unstable_by(to - from, rank);
        }
        left[from..to].sort_unstable_by(rank);
        for i in from..to {
            if mass >= wanted {
                left.truncate(i);
                break 'grow;
            }
            mass += weight(&left[i]);
        }
        (from, piece) = (to, piece * 2);
    }
    left.sort_unstable_by_key(|c| c.id);
}
