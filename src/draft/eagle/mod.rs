//! EAGLE heads: a small network that guesses from the target's own features.

pub mod config;

pub use config::{Feature, HeadConfig, MapForm, Source, TapsConvention, Version, VocabMap};
