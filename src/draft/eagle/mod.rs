//! EAGLE heads: a small network that guesses from the target's own features.
//!
//! | file | what it is |
//! |---|---|
//! | `load`, `config` | files of every format, and the one configuration that they become |
//! | `save` | a head written in another format, or refused |
//! | `pairing` | which token meets which feature, and when: what all versions share |
//! | `eagle1`, `eagle3` | the two networks |
//! | `head`, `parts` | a network over its target, and its tensors |
//! | `sequences`, `branches` | the true rows of sequences, the passing rows of drafts |
//! | `drafter` | the drafter |
//!
//! Both versions draft chains and the trees of EAGLE-2 (Li et al. 2024, arXiv 2406.16858), which are
//! grown by [`grow`](super::grow()).

mod branches;
pub mod config;
mod drafter;
mod eagle1;
mod eagle3;
mod head;
pub mod load;
mod pairing;
mod parts;
pub mod save;
mod sequences;

pub use config::{Feature, HeadConfig, MapForm, Source, TapsConvention, Version, VocabMap};
pub use drafter::EagleDrafter;
pub use head::Head;
pub use load::{HeadCheckpoint, HeadOptions, NormOutput, TargetFacts};
pub use parts::TensorSource;
pub use sequences::HeadState;
