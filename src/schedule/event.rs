//! What the engine tells its caller.

use crate::{
    TokenId,
    report::{ChoiceReport, Logprob, RoundTrace},
};

/// A submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestHandle(pub u64);

/// One thing that happened during a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A token was delivered. The texts of a choice, joined, are its final text.
    Piece {
        /// Its request.
        request: RequestHandle,
        /// Index of the choice.
        choice: usize,
        /// The token; none for text that was held back when the choice failed.
        token: Option<TokenId>,
        /// Text that became certain with it; often empty.
        text: String,
        /// The token's log-probability and the likeliest tokens', if they were asked for.
        logprob: Option<Logprob>,
    },
    /// A choice went through a round.
    Round {
        /// Its request.
        request: RequestHandle,
        /// What happened.
        trace: RoundTrace,
    },
    /// A choice ended.
    Finished {
        /// Its request.
        request: RequestHandle,
        /// The result.
        report: ChoiceReport,
    },
}
