//! Broken variants of drafters and rules, each a bug that somebody has had or could have.
//!
//! A test of a law is worth what it would have caught. So every variant here is the production code
//! with one lie told to it at a seam: the draws it asks, the rows it reads, the tree it judges, the
//! chain it drafts with; a few replace the token that it recovers with. Production code does not
//! know of any of this. The feature `mutants`, which is off, has to be asked for.
//!
//! A variant has a lie for the [rule](Mutant::rule), for the [drafter](Mutant::drafter), or for
//! both; whoever builds an engine wraps both and gets the variant.
//!
//! ```
//! use eyrie::{accept::Rejection, mutant::Mutant};
//!
//! let mutant = Mutant::from_name("always-accept").unwrap();
//! let broken = mutant.rule(Box::new(Rejection));
//! assert_eq!(broken.name(), "rejection");
//! assert!(mutant.rules().contains(&"rejection"));
//! ```

mod drafter;
mod draws;
mod graft;
mod rows;
mod rule;

use crate::{accept::Rule, draft::Drafter};

const ANY: &[&str] = &["match", "rejection", "block"];
const DRAWING: &[&str] = &["rejection", "block"];
const MATCH: &[&str] = &["match"];
const REJECTION: &[&str] = &["rejection"];
const BLOCK: &[&str] = &["block"];

/// A broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// Accepts every draft that is possible.
    AlwaysAccept,
    /// Accepts with `min(1, q / p)`.
    InverseRatio,
    /// The last of several rejected siblings is left in the residual.
    SiblingLeftIn,
    /// Recovers from p instead of the residual.
    ResampleFromP,
    /// Recovers from p without the drafted token.
    DraftedZeroed,
    /// The drafter claims q at temperature 1.
    QWithoutTemperature,
    /// The drafter claims q without the filters that it drew through.
    QUnfiltered,
    /// The number that rejected a draft also recovers.
    UniformReused,
    /// Later siblings are judged by a residual that is not renormalised.
    SiblingUnnormalised,
    /// Draft and recovered token are chosen with the same Gumbel noise.
    SharedNoise,
    /// Target rows are not filtered.
    FilterSkipped,
    /// A drafted token is dropped because the drafter finds it unlikely.
    DroppedByValue,
    /// Penalties count the drafts twice.
    PenaltyTwice,
    /// A draft claims the q of the row before its own.
    StaleQ,
    /// Keys of a round do not say which round.
    KeysWithoutAnchor,
    /// Keys of a round say the node's position instead of the round.
    KeysByPosition,
    /// Keys of a round do not say which node.
    KeysWithoutNode,
    /// The drafter takes the argmax and claims the softmax.
    ArgmaxClaimsSoftmax,
    /// After a mismatch the target's token is drawn anew.
    FreshDraw,
    /// Noise does not know the token's index.
    NoiseWithoutIndex,
    /// Noise of every row of a round is that of its first.
    NoiseOfTheAnchor,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::AlwaysAccept,
        Self::InverseRatio,
        Self::SiblingLeftIn,
        Self::ResampleFromP,
        Self::DraftedZeroed,
        Self::QWithoutTemperature,
        Self::QUnfiltered,
        Self::UniformReused,
        Self::SiblingUnnormalised,
        Self::SharedNoise,
        Self::FilterSkipped,
        Self::DroppedByValue,
        Self::PenaltyTwice,
        Self::StaleQ,
        Self::KeysWithoutAnchor,
        Self::KeysByPosition,
        Self::KeysWithoutNode,
        Self::ArgmaxClaimsSoftmax,
        Self::FreshDraw,
        Self::NoiseWithoutIndex,
        Self::NoiseOfTheAnchor,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.card().0
    }

    /// What is wrong with it, in a sentence.
    #[must_use]
    pub fn what(self) -> &'static str {
        self.card().1
    }

    /// The rules that it breaks; with the others it is the honest code.
    #[must_use]
    pub fn rules(self) -> &'static [&'static str] {
        self.card().2
    }

    /// The variant of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }

    /// The rule with this variant's lie, if it has one for it.
    #[must_use]
    pub fn rule(self, honest: Box<dyn Rule>) -> Box<dyn Rule> {
        if self.rules().contains(&honest.name()) {
            Box::new(rule::Broken::new(self, honest))
        } else {
            honest
        }
    }

    /// The drafter with this variant's lie, if it has one for it.
    #[must_use]
    pub fn drafter(self, honest: Box<dyn Drafter>) -> Box<dyn Drafter> {
        Box::new(drafter::Broken::new(self, honest))
    }

    /// Whether it draws the token that replaces a rejected draft itself.
    fn recovers(self) -> bool {
        matches!(
            self,
            Self::SiblingLeftIn
                | Self::ResampleFromP
                | Self::DraftedZeroed
                | Self::SiblingUnnormalised
                | Self::SharedNoise
        )
    }

    fn card(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::AlwaysAccept => (
                "always-accept",
                "Every draft that is possible is accepted.",
                ANY,
            ),
            Self::InverseRatio => (
                "inverse-ratio",
                "A draft is accepted with min(1, q / p).",
                REJECTION,
            ),
            Self::SiblingLeftIn => (
                "sibling-left-in",
                "The last of several rejected siblings is left in the residual.",
                REJECTION,
            ),
            Self::ResampleFromP => (
                "resample-from-p",
                "After a rejection the token is drawn from p, not from the residual.",
                DRAWING,
            ),
            Self::DraftedZeroed => (
                "drafted-zeroed",
                "After a rejection the token is drawn from p without the drafted tokens.",
                DRAWING,
            ),
            Self::QWithoutTemperature => (
                "q-without-temperature",
                "A draft drawn at the request's temperature claims q at temperature 1.",
                DRAWING,
            ),
            Self::QUnfiltered => (
                "q-unfiltered",
                "A draft drawn from the top-k claims q without filters.",
                DRAWING,
            ),
            Self::UniformReused => (
                "uniform-reused",
                "The number that rejected a draft also draws what replaces it.",
                DRAWING,
            ),
            Self::SiblingUnnormalised => (
                "sibling-unnormalised",
                "Later siblings are judged by a residual that is not renormalised.",
                REJECTION,
            ),
            Self::SharedNoise => (
                "shared-noise",
                "A draft and what replaces it are chosen with the same Gumbel noise.",
                REJECTION,
            ),
            Self::FilterSkipped => (
                "filter-skipped",
                "Target rows are judged without top-k, top-p and min-p.",
                ANY,
            ),
            Self::DroppedByValue => (
                "dropped-by-value",
                "A draft less than half as likely as the drafter's best is dropped after it was drawn.",
                DRAWING,
            ),
            Self::PenaltyTwice => (
                "penalty-twice",
                "Penalties of a target row count the drafts before it twice.",
                ANY,
            ),
            Self::StaleQ => (
                "stale-q",
                "A draft claims the q of the row before its own.",
                DRAWING,
            ),
            Self::KeysWithoutAnchor => (
                "keys-without-anchor",
                "Every round draws with the same keys.",
                DRAWING,
            ),
            Self::KeysByPosition => (
                "keys-by-position",
                "Keys have the position of the node in place of the round, so that draws behind a cut return.",
                BLOCK,
            ),
            Self::KeysWithoutNode => (
                "keys-without-node",
                "All nodes of a round draw with the same keys.",
                DRAWING,
            ),
            Self::ArgmaxClaimsSoftmax => (
                "argmax-claims-softmax",
                "The drafter takes the argmax and claims to have drawn it from q.",
                DRAWING,
            ),
            Self::FreshDraw => (
                "fresh-draw",
                "After a mismatch the token is drawn anew, not the one that the draft differed from.",
                MATCH,
            ),
            Self::NoiseWithoutIndex => (
                "noise-without-index",
                "The noise of a choice does not depend on the index of the token.",
                MATCH,
            ),
            Self::NoiseOfTheAnchor => (
                "noise-of-the-anchor",
                "All rows of a round choose with the noise of its first.",
                MATCH,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mutant;

    #[test]
    fn names_are_kebab_case_and_lead_back() {
        for mutant in Mutant::ALL {
            let name = mutant.name();
            assert!(
                name.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{name}"
            );
            assert_eq!(Mutant::from_name(name), Some(mutant));
            assert!(mutant.what().ends_with('.') && !mutant.rules().is_empty());
        }
        assert_eq!(Mutant::from_name("honest"), None);
    }
}
