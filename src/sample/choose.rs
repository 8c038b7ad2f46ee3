//! The choice of a token, and of those that come next.

use super::{
    dist::{Dist, best},
    draws::{Draws, Key},
};
use crate::TokenId;

/// The generated token of index `t` under `law`: the argmax over the support of `ln p + G(t, id)`,
/// of equals the lowest id.
///
/// The whole promise that speculation changes nothing rests on what this does *not* take: the token
/// depends on the law, the seed and `t`, and on nothing else. A law of one token is decided without a
/// draw.
///
/// ```
/// use eyrie::sample::{Dist, Keyed, choose};
///
/// assert_eq!(choose(&Dist::one_hot(3), 0, &Keyed::new(1)), 3);
/// ```
pub fn choose(law: &Dist, t: u64, draws: &dyn Draws) -> TokenId {
    match law.only() {
        Some(only) => only,
        None => draws.choose(law, Key::token(t)),
    }
}

/// The `k` tokens with the largest `ln p + G(t, id)`, descending, of equals the lower id first; all of
/// them if there are fewer. The first is what [`choose`] takes.
///
/// Each comes with `ln softmax(ln p + G)` over the support: how much better than the others it is for
/// these very numbers `G`. A drafter that has them can say so of its guesses; of the target, which has
/// the same `G` and another law, it is an estimate.
///
/// That sum asks for every `G` of the support, two logarithms each, where [`choose`] asks for a few:
/// about forty times its time. `cpu/children` in the benches has both.
///
/// ```
/// use eyrie::sample::{Dist, Keyed, choose_best};
///
/// assert_eq!(choose_best(&Dist::one_hot(3), 0, &Keyed::new(1), 4), [(3, 0.0)]);
/// ```
pub fn choose_best(law: &Dist, t: u64, draws: &dyn Draws, k: usize) -> Vec<(TokenId, f64)> {
    match law.only() {
        Some(_) => law.top(k),
        None => best(draws.noisy(law, Key::token(t)), k),
    }
}
