//! EAGLE-3 heads trained for a target on its own answers.

mod adam;
mod attention;
mod batch;
mod data;
mod distill;
mod error;
mod frozen;
mod mat;
mod net;
mod norm;
mod objective;
mod random;
mod unroll;
mod vocab;

pub use data::{Data, Drawn, Entry, Facts, Record, Sequence, Writer, default_taps, fingerprint};
pub use distill::{Answered, Answering, Prompt, distill};
pub use error::TrainError;
