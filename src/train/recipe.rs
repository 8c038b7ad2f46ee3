//! How a head is trained.

use serde::{Deserialize, Serialize};

use crate::draft::eagle::Version;

/// How a head is trained. Phase 1 unrolls one step, phase 2 several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Which network it is. Trainings that were saved when there was one are EAGLE-3's.
    #[serde(default = "eagle3")]
    pub head: Version,
    /// Rows of the output head; for EAGLE-1 the target's vocabulary.
    pub draft_vocab: usize,
    /// Key heads; `None`: as many as heads.
    pub kv_heads: Option<usize>,
    /// Epochs of each phase.
    pub epochs: [usize; 2],
    /// Steps unrolled in phase 2.
    pub unroll: usize,
    /// Highest rate of each phase.
    pub rates: [f64; 2],
    /// Where the rate of each phase ends, as a share of the highest.
    pub ends: [f64; 2],
    /// Each unrolled step counts for so much of the one before.
    pub decay: f64,
    /// Rows judged in a step of training, or a few more: sequences stay whole.
    pub rows: usize,
    /// Longest gradient.
    pub clip: f64,
    /// Whether rows whose next token was given count too.
    pub prompt_rows: bool,
    /// Sequences to measure with, not trained on.
    pub held_out: usize,
    /// Only the first so many sequences of the data; `None`: all.
    pub limit: Option<usize>,
    /// Seed of start values and of orders.
    pub seed: u64,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            head: eagle3(),
            draft_vocab: 8192,
            kv_heads: None,
            epochs: [3, 2],
            unroll: 3,
            rates: [2.5e-3, 1.2e-3],
            ends: [0.3, 0.05],
            decay: 0.8,
            rows: 290,
            clip: 0.5,
            prompt_rows: false,
            held_out: 40,
            limit: None,
            seed: 0,
        }
    }
}

fn eagle3() -> Version {
    Version::Eagle3
}
