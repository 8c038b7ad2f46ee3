//! A small llama from nothing, trained on plain text.
//!
//! ```text
//! texts -> tokenizer -> windows -> net -> backward -> adamw -> export
//!          byte-level BPE           candle's tape            a plain checkpoint
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `recipe` | the sizes, and what is done |
//! | `texts` | files, the tokenizer made of them, tokens to train on and to measure with |
//! | `ops` | what candle's tape lacks or does in many passes, each with its gradient |
//! | `net` | parameters and the pass |
//! | `adamw`, `trainer` | steps |
//! | `save` | going on after a stop |
//! | `export` | the checkpoint as every engine loads it |
//!
//! Unlike a head's, this gradient is candle's: eight layers are long to write out, and a vocabulary of a
//! few thousand leaves the tape small.

mod adamw;
mod export;
mod net;
mod ops;
mod recipe;
mod save;
mod texts;
mod trainer;

#[cfg(test)]
mod tests;

pub use recipe::TargetRecipe;
pub use texts::Texts;
pub use trainer::{TargetStepped, TargetTrainer};
