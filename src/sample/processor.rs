//! Changes of scores that parameters cannot express.

use std::fmt::Debug;

use super::{chain::Fault, counts::History};

/// A change of a row's scores that parameters cannot express: a grammar's mask, a host's own
/// processing.
///
/// It is asked at every row of a request, the target's and the drafter's: with the same history it
/// must say the same, so that a drafter guesses within the constraint and what is accepted is what
/// plain decoding says. A row's history contains the drafts of its path; nothing is to be taken back
/// when they are rejected.
///
/// # Contract
/// [`process`](Self::process) is a pure function of scores and history: it may remember what it
/// computed, never in which order it was asked.
pub trait Processor: Debug + Send + Sync {
    /// Changes `scores`, one an id of the target's vocabulary without padding, after bias and
    /// penalties and the mask of end tokens and before the temperature. Minus infinity is masked;
    /// ids that the row does not have (a drafter with a smaller vocabulary) are masked too, and
    /// stay so whatever is written there.
    ///
    /// # Errors
    /// A [`Fault`] where it cannot go on: [`Fault::Refused`] with a message that is complete as it
    /// stands. At a row of the target it ends the choice with its tokens so far, at a row of the
    /// drafter it ends the drafts.
    fn process(&self, scores: &mut [f64], history: &History<'_>) -> Result<(), Fault>;
}
