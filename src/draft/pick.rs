//! How a drafter with a law of its own chooses nodes.

use crate::{
    TokenId,
    sample::{Dist, Draws, choose},
};

/// The pick of a drafter at temperature above 0; at 0 both are the argmax.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// argmax of ln q + G with the target's own G, so that target and drafter agree as often as
    /// their laws are close, and always if they are equal (Daliri et al. 2024).
    #[default]
    Coupled,
    /// argmax of q.
    Greedy,
}

impl Pick {
    /// The drafted token at a row that chooses generated token `t`.
    #[must_use]
    pub fn token(self, law: &Dist, t: u64, draws: &dyn Draws) -> TokenId {
        match self {
            Self::Coupled => choose(law, t, draws),
            Self::Greedy => law.argmax(),
        }
    }
}
