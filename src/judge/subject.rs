//! What is judged.

use std::fmt::Debug;

use crate::{
    accept::{Block, Match, Rejection, Rule},
    draft::{Drafter, Pick},
};

/// The build under judgement: what it makes of a rule and of a drafter.
///
/// The honest build uses both as they are. A build that is broken on purpose wraps one of them.
pub trait Subject: Debug + Sync {
    /// The rule in place of `honest`.
    fn rule(&self, honest: Box<dyn Rule>) -> Box<dyn Rule> {
        honest
    }

    /// The drafter in place of `honest`.
    fn drafter(&self, honest: Box<dyn Drafter>) -> Box<dyn Drafter> {
        honest
    }
}

/// This build, as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Honest;

impl Subject for Honest {}

#[cfg(feature = "mutants")]
impl Subject for crate::mutant::Mutant {
    fn rule(&self, honest: Box<dyn Rule>) -> Box<dyn Rule> {
        Self::rule(*self, honest)
    }

    fn drafter(&self, honest: Box<dyn Drafter>) -> Box<dyn Drafter> {
        Self::drafter(*self, honest)
    }
}

/// A rule by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Match`].
    Match,
    /// [`Rejection`].
    Rejection,
    /// [`Block`].
    Block,
}

impl Kind {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Match, Self::Rejection, Self::Block];

    /// The rule.
    #[must_use]
    pub fn rule(self) -> Box<dyn Rule> {
        match self {
            Self::Match => Box::new(Match),
            Self::Rejection => Box::new(Rejection),
            Self::Block => Box::new(Block),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Rejection => "rejection",
            Self::Block => "block",
        }
    }

    /// The pick that goes with it by default.
    #[must_use]
    pub fn pick(self) -> Pick {
        match self {
            Self::Match => Pick::Coupled,
            Self::Rejection | Self::Block => Pick::Drawn,
        }
    }

    /// Chains, and for the rules that judge them, trees.
    pub(super) fn shapes(self) -> usize {
        match self {
            Self::Match | Self::Rejection => 2,
            Self::Block => 1,
        }
    }
}
