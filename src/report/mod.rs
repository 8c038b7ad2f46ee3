//! What is reported: results, rounds, times. The JSON here is the contract of the command line.

mod choice;
mod timing;
mod trace;

pub use choice::{ChoiceReport, FinishReason, Logprob, RoundCount, Usage};
pub use timing::{Stage, Timing};
pub(crate) use trace::nodes;
pub use trace::{RoundTrace, StageMillis};
