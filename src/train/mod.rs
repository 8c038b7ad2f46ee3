//! EAGLE heads trained for a target on its own answers.
//!
//! ```text
//! prompts -> distill -> data -> batch -> unroll -> objective -> backward -> adam -> export
//!            the target         packed   the head   the target's law                 a plain head
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `distill`, `data` | the target answers; what it held at every token, on disk |
//! | `frozen`, `vocab` | what is taken from the target as it is; which tokens are guessed among |
//! | `start`, `start_eagle1` | start values: EAGLE-3's copy and look at themselves |
//! | `batch`, `unroll`, `attention`, `norm` | the head over its own outputs, and its gradient |
//! | `objective`, `losses` | the loss against the target's law |
//! | `recipe`, `split`, `trainer`, `adam` | what is done with which answers, step by step |
//! | `save`, `files` | going on after a stop |
//! | `measure` | acceptance on held-out answers, beside what costs nothing |
//! | `export` | the head as every engine loads it |
//! | `target` | a small llama from nothing, on plain text |
//! | `mat`, `linalg`, `random` | products, and what start values need |
//!
//! The gradient is written by hand. The network is one layer, so it is short; it holds what it needs and
//! nothing else, where a general tape would keep every intermediate of a loss over thousands of logits a
//! row; and nearly all of the time is in the same products either way.

mod adam;
mod attention;
mod batch;
mod data;
mod distill;
mod error;
mod export;
mod files;
mod frozen;
mod linalg;
mod losses;
mod mat;
mod measure;
mod net;
mod norm;
mod objective;
mod random;
mod recipe;
mod save;
mod split;
mod start;
mod start_eagle1;
mod target;
mod trainer;
mod unroll;
mod vocab;

#[cfg(test)]
mod tests;

pub use data::{Data, Drawn, Entry, Facts, Record, Sequence, Writer, default_taps, fingerprint};
pub use distill::{Answered, Answering, Prompt, distill};
pub use error::TrainError;
pub use export::HeadType;
pub use measure::{DEPTH, Measured, Walk};
pub use recipe::Recipe;
pub use target::{TargetRecipe, TargetStepped, TargetTrainer, Texts};
pub use trainer::{Place, Stepped, Trainer};
