//! The statistics of `G` alone: the law of a choice, independence over index, seed and token, and
//! the coupling of two choices.

use eyrie::{
    TokenId,
    accept::{Match, Rule},
    sample::{Dist, Keyed, choose, derive_choice, derive_line},
    tree::DraftTree,
};
use eyrie_verifier::chi2::{Fit, goodness_of_fit};
use proptest::prelude::*;

use super::{ALPHA, POWER, Rows, law_of, table};

/// The choice of index `t` under a seed; the real one, or a broken one.
pub(super) type Choice<'a> = &'a dyn Fn(&Dist, u64, u64) -> TokenId;

pub(super) fn real(law: &Dist, seed: u64, t: u64) -> TokenId {
    choose(law, t, &Keyed::new(seed))
}

/// Samples a test of one choice draws.
pub(super) const N: u64 = 200_000;

/// Chi-square of `N` choices at the places `at(i) = (seed, t)`.
pub(super) fn single(weights: &[f64], choice: Choice<'_>, at: impl Fn(u64) -> (u64, u64)) -> Fit {
    let law = law_of(weights);
    let mut counts = vec![0; weights.len()];
    for i in 0..N {
        let (seed, t) = at(i);
        counts[choice(&law, seed, t) as usize] += 1;
    }
    goodness_of_fit(&counts, &table(&law, vocab(weights))).unwrap()
}

/// Chi-square against the product law of `N` pairs of choices at two places each.
pub(super) fn pair(
    weights: &[f64],
    choice: Choice<'_>,
    at: impl Fn(u64) -> [(u64, u64); 2],
) -> Fit {
    let law = law_of(weights);
    let v = weights.len();
    let mut counts = vec![0; v * v];
    for i in 0..N {
        let [a, b] = at(i).map(|(seed, t)| choice(&law, seed, t) as usize);
        counts[a * v + b] += 1;
    }
    let p = table(&law, vocab(weights));
    let product: Vec<_> = p
        .iter()
        .flat_map(|a| p.iter().map(move |b| a * b))
        .collect();
    goodness_of_fit(&counts, &product).unwrap()
}

fn vocab(weights: &[f64]) -> u32 {
    u32::try_from(weights.len()).unwrap()
}

pub(super) fn uniform(v: usize) -> Vec<f64> {
    vec![1.0; v]
}

pub(super) fn geometric(v: usize, ratio: f64) -> Vec<f64> {
    std::iter::successors(Some(1.0), |w| Some(w * ratio))
        .take(v)
        .collect()
}

/// Laws over 4 to 64 tokens: flat, falling, one heavy token, and one with holes.
fn laws() -> Vec<Vec<f64>> {
    let mut heavy = vec![0.1 / 15.0; 16];
    heavy[5] = 0.9;
    let holes = (0..24).map(|i| f64::from(i % 3)).collect();
    vec![
        uniform(4),
        uniform(64),
        geometric(4, 0.5),
        geometric(16, 0.8),
        geometric(64, 0.93),
        heavy,
        holes,
    ]
}

fn passes(fit: Fit, excluded: f64) {
    assert!(!fit.rejects(ALPHA), "{fit}");
    assert!(fit.excluded_tv(ALPHA, POWER) < excluded, "{fit}");
}

/// N = 200,000, excluded TV below 0.0125 (64 tokens; 0.0087 for 4).
#[test]
fn a_choice_has_its_law_over_the_index() {
    for (i, weights) in laws().iter().enumerate() {
        let seed = 1_000 + i as u64;
        passes(single(weights, &real, |t| (seed, t)), 0.0125);
    }
}

/// The same over seeds, as lines of a file and as choices of a request get them, index fixed.
#[test]
fn a_choice_has_its_law_over_derived_seeds() {
    for (i, weights) in laws().iter().enumerate() {
        let seed = 2_000 + i as u64;
        passes(
            single(weights, &real, |line| (derive_line(seed, line), 3)),
            0.0125,
        );
        passes(
            single(weights, &real, |j| (derive_choice(seed, j), 3)),
            0.0125,
        );
    }
}

/// Tables of pairs over 8 x 8 cells: neighbours and far indices of one seed, the same index of
/// neighbouring seeds, of neighbouring lines, of a seed and its first other choice. N = 200,000 pairs, excluded
/// TV below 0.0125.
#[test]
fn choices_are_independent_over_index_and_seed() {
    let weights = geometric(8, 0.85);
    let check = |at: &dyn Fn(u64) -> [(u64, u64); 2]| passes(pair(&weights, &real, at), 0.0125);
    check(&|i| [(31, 2 * i), (31, 2 * i + 1)]);
    check(&|i| [(32, i), (32, i + (1 << 32))]);
    check(&|i| [(33, i), (34, i)]);
    check(&|i| [(35, i), (35 + (1 << 32), i)]);
    check(&|i| [(derive_line(36, 2 * i), 0), (derive_line(36, 2 * i + 1), 0)]);
    check(&|i| [(37 + i, 0), (derive_choice(37 + i, 1), 0)]);
}

/// The two numbers that share a block of the generator, and two that do not: which of them is larger
/// is a fair coin, independent of whether their partners' is. N = 200,000, excluded TV below
/// 0.0090.
#[test]
fn numbers_of_tokens_are_independent() {
    let cells = |ids: [u32; 4]| {
        let mut only = vec![0.0; 8];
        let mut counts = [0; 4];
        for t in 0..N {
            let mut bit = |a: u32, b: u32| {
                only.fill(0.0);
                only[a as usize] = 1.0;
                only[b as usize] = 1.0;
                usize::from(real(&law_of(&only), 41, t) == a)
            };
            counts[2 * bit(ids[0], ids[1]) + bit(ids[2], ids[3])] += 1;
        }
        goodness_of_fit(&counts, &[0.25; 4]).unwrap()
    };
    passes(cells([0, 1, 2, 3]), 0.0090);
    passes(cells([0, 2, 1, 3]), 0.0090);
    passes(cells([4, 7, 5, 6]), 0.0090);
}

/// Probability that choices under `p` and `q` with the same `G` agree.
pub(super) fn agreement(p: &[f64], q: &[f64]) -> f64 {
    let term = |i: usize| {
        if p[i] == 0.0 || q[i] == 0.0 {
            return 0.0;
        }
        1.0 / (0..p.len())
            .map(|j| (p[j] / p[i]).max(q[j] / q[i]))
            .sum::<f64>()
    };
    (0..p.len()).map(term).sum()
}

pub(super) fn total_variation(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).map(|(p, q)| (p - q).abs()).sum::<f64>() / 2.0
}

/// An upper bound of the probability that a binomial of `n` trials is as far from `n p` as `k` is, on
/// either side: Chernoff's, without an approximation.
pub(super) fn binomial_bound(k: u64, n: u64, p: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let (k, n) = (k as f64, n as f64);
    let part = |seen: f64, p: f64| {
        if seen > 0.0 {
            seen * (seen / n / p).ln()
        } else {
            0.0
        }
    };
    (2.0 * (-part(k, p) - part(n - k, 1.0 - p)).exp()).min(1.0)
}

/// How often of `N` the target and the drafter agree.
pub(super) fn agreements(
    p: &Dist,
    q: &Dist,
    seed: u64,
    target: Choice<'_>,
    drafter: Choice<'_>,
) -> u64 {
    (0..N)
        .map(|t| u64::from(target(p, seed, t) == drafter(q, seed, t)))
        .sum()
}

/// Pairs of weights: close, crossed, disjoint in part.
pub(super) fn couples() -> Vec<(Vec<f64>, Vec<f64>)> {
    let reversed = |v: &[f64]| v.iter().rev().copied().collect::<Vec<_>>();
    let falling = geometric(16, 0.8);
    let holes: Vec<f64> = (0..16).map(|i| f64::from(i % 4)).collect();
    vec![
        (vec![0.5, 0.3, 0.2], vec![0.1, 0.6, 0.3]),
        (geometric(8, 0.7), geometric(8, 0.6)),
        (falling.clone(), reversed(&falling)),
        (uniform(16), falling.clone()),
        (holes.clone(), reversed(&holes)),
        (uniform(64), geometric(64, 0.9)),
    ]
}

/// N = 200,000: a rate off by 0.0061 or more (less for rates away from one half) is rejected.
#[test]
fn coupled_choices_agree_exactly_as_often_as_the_formula_says() {
    for (i, (p, q)) in couples().iter().enumerate() {
        let (p_law, q_law) = (law_of(p), law_of(q));
        let v = u32::try_from(p.len()).unwrap();
        let rate = agreement(&table(&p_law, v), &table(&q_law, v));
        let seen = agreements(&p_law, &q_law, 50 + i as u64, &real, &real);
        assert!(
            binomial_bound(seen, N, rate) > ALPHA,
            "{seen} of {N}, expected rate {rate}"
        );
    }
    assert!(binomial_bound(100_000 + 1_220, N, 0.5) < ALPHA);
}

proptest! {
    /// The formula is at least (1 - TV) / (1 + TV), and 1 only without a difference.
    #[test]
    fn the_formula_keeps_its_bound(
        pair in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 2..20)
    ) {
        let norm = |v: Vec<f64>| { let s: f64 = v.iter().sum(); v.iter().map(|x| x / s).collect::<Vec<_>>() };
        let (p, q): (Vec<_>, Vec<_>) = pair.into_iter().unzip();
        let (p, q) = (norm(p), norm(q));
        let tv = total_variation(&p, &q);
        let rate = agreement(&p, &q);
        prop_assert!(rate >= (1.0 - tv) / (1.0 + tv) - 1e-12, "{} at TV {}", rate, tv);
        prop_assert!(rate <= 1.0 - tv + 1e-12, "no coupling agrees more often than 1 - TV");
    }

    /// A drafter that is the target, sharing its numbers, is always right.
    #[test]
    fn the_target_as_drafter_is_accepted_whole(
        seed: u64, first in 0..1u64 << 40, weights in prop::collection::vec(0.0f64..1.0, 2..30)
    ) {
        prop_assume!(weights.iter().any(|w| *w > 0.0));
        let law = law_of(&weights);
        let tokens: Vec<_> = (first..first + 9).map(|t| real(&law, seed, t)).collect();
        let tree = DraftTree::chain(&tokens[..8]);
        let mut rows = Rows { tree: &tree, law: |_: &[TokenId]| Ok(law.clone()) };
        let verdict = Match.decide(&tree, &mut rows, first, &mut Keyed::new(seed));
        prop_assert_eq!(verdict.path.len(), 8);
        prop_assert_eq!(verdict.next, Ok(tokens[8]));
    }
}
