//! Broken variants of the keying, and the statistics that catch them. Each test also says which
//! statistic does *not* see the variant, where that is the point of having more than one.

use eyrie::{
    TokenId,
    sample::{Dist, Draws, Key, Keyed, choose},
};

use super::{
    ALPHA, law_of,
    noise::{N, agreement, agreements, binomial_bound, couples, geometric, pair, real, single},
    table,
};

/// The keyed draws, except that `G` is asked at another place than the rule says.
struct Elsewhere<F> {
    keyed: Keyed,
    place: F,
}

impl<F: Fn(Key, TokenId) -> (Key, TokenId)> Draws for Elsewhere<F> {
    fn gumbel(&self, at: Key, token: TokenId) -> f64 {
        let (at, token) = (self.place)(at, token);
        self.keyed.gumbel(at, token)
    }
    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        self.keyed.pick(at, w)
    }
    fn accept(&mut self, at: Key, p: f64) -> bool {
        self.keyed.accept(at, p)
    }
}

fn elsewhere(
    law: &Dist,
    seed: u64,
    t: u64,
    place: impl Fn(Key, TokenId) -> (Key, TokenId),
) -> TokenId {
    choose(
        law,
        t,
        &Elsewhere {
            keyed: Keyed::new(seed),
            place,
        },
    )
}

/// Control: the wrapper by itself changes nothing.
#[test]
fn unbroken_wrapper_is_the_real_choice() {
    let law = law_of(&geometric(16, 0.8));
    for t in 0..1_000 {
        assert_eq!(
            elsewhere(&law, 3, t, |at, token| (at, token)),
            real(&law, 3, t)
        );
    }
}

#[test]
fn a_number_shared_between_tokens_is_caught_by_the_law() {
    let broken = |law: &Dist, seed, t| elsewhere(law, seed, t, |at, _| (at, 0));
    assert!(single(&geometric(16, 0.8), &broken, |t| (62, t)).rejects(ALPHA));
}

/// Token pairs, as a generator that drops the low bit of the id would share them.
#[test]
fn a_number_shared_between_neighbours_is_caught_by_the_law() {
    let broken = |law: &Dist, seed, t| elsewhere(law, seed, t, |at, token| (at, token / 2));
    assert!(single(&geometric(16, 0.8), &broken, |t| (63, t)).rejects(ALPHA));
}

/// A row that uses the noise of the row above it: every choice alone has the right law.
#[test]
fn noise_of_the_wrong_index_is_caught_by_pairs() {
    let broken = |law: &Dist, seed, t: u64| choose(law, t / 2, &Keyed::new(seed));
    let weights = geometric(8, 0.85);
    assert!(pair(&weights, &broken, |i| [(64, 2 * i), (64, 2 * i + 1)]).rejects(ALPHA));
    assert!(!single(&weights, &broken, |t| (64, 2 * t)).rejects(ALPHA));
}

/// A drafter that is one index ahead of the target has lost the coupling: it agrees as an
/// independent draw does.
#[test]
fn a_drafter_at_the_wrong_index_is_caught_by_the_coupling() {
    let broken = |law: &Dist, seed, t: u64| choose(law, t + 1, &Keyed::new(seed));
    for (i, (p, q)) in couples().iter().enumerate() {
        let v = u32::try_from(p.len()).unwrap();
        let (p_law, q_law) = (law_of(p), law_of(q));
        let (p, q) = (table(&p_law, v), table(&q_law, v));
        let seen = agreements(&p_law, &q_law, 70 + i as u64, &real, &broken);
        assert!(
            binomial_bound(seen, N, agreement(&p, &q)) < ALPHA,
            "{seen} of {N}"
        );
        let independent = p.iter().zip(&q).map(|(p, q)| p * q).sum();
        assert!(
            binomial_bound(seen, N, independent) > ALPHA,
            "{seen} of {N}"
        );
    }
}
