//! The choice of a token.

use super::{
    dist::Dist,
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
    match law.ids() {
        [only] => *only,
        _ => draws.choose(law, Key::token(t)),
    }
}
