//! EAGLE heads: a small network that guesses from the target's own features.

pub mod config;
pub mod load;

pub use config::{Feature, HeadConfig, MapForm, Source, TapsConvention, Version, VocabMap};
pub use load::{HeadCheckpoint, HeadOptions, NormOutput, TargetFacts};
