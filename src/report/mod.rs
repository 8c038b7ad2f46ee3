//! What is reported: results, rounds, times, and what is counted over many of them. The JSON here is
//! the contract of the command line.

mod acceptance;
mod choice;
mod delivery;
mod speedup;
mod timing;
mod trace;

pub use acceptance::{Acceptance, COUNTING};
pub use choice::{ChoiceReport, FinishReason, Logprob, RoundCount, Usage};
pub use delivery::{Deliveries, Pace, Percentiles, TIMING};
pub use speedup::{Speedup, Throughput};
pub use timing::{Stage, Timing};
pub(crate) use trace::nodes;
pub use trace::{RoundTrace, StageMillis};
