//! How a target is trained.

use serde::{Deserialize, Serialize};

use crate::train::TrainError;

/// Bytes, and the token that ends a text.
const FEWEST_TOKENS: usize = 257;

/// The sizes of a llama, and how it is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRecipe {
    /// Layers.
    pub layers: usize,
    /// Width of the stream.
    pub hidden: usize,
    /// Width between the matrices of the feed-forward block.
    pub ffn: usize,
    /// Heads, of `hidden / heads` values.
    pub heads: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Tokens of a window, and the positions that the model has.
    pub context: usize,
    /// Steps in all.
    pub steps: usize,
    /// Windows of a step.
    pub batch: usize,
    /// Highest rate.
    pub rate: f64,
    /// Seed of start values and orders.
    pub seed: u64,
}

impl Default for TargetRecipe {
    fn default() -> Self {
        Self {
            layers: 8,
            hidden: 128,
            ffn: 384,
            heads: 4,
            kv_heads: 2,
            vocab: 4096,
            context: 256,
            steps: 2000,
            batch: 8,
            rate: 3e-3,
            seed: 0,
        }
    }
}

impl TargetRecipe {
    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let sizes = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("ffn", self.ffn),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("context", self.context),
            ("steps", self.steps),
            ("batch", self.batch),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return unfit(format!("{name} is 0; accepted is 1 or more"));
        }
        let (hidden, heads, kv_heads) = (self.hidden, self.heads, self.kv_heads);
        if !hidden.is_multiple_of(2 * heads) {
            return unfit(format!(
                "hidden is {hidden} and heads {heads}; accepted is a multiple of {}, twice the heads",
                2 * heads
            ));
        }
        if !heads.is_multiple_of(kv_heads) {
            return unfit(format!(
                "heads is {heads} and kv_heads {kv_heads}; accepted is a divisor of the heads"
            ));
        }
        if self.vocab < FEWEST_TOKENS {
            return unfit(format!(
                "vocab is {}; accepted is {FEWEST_TOKENS} or more: every byte, and the end of a text",
                self.vocab
            ));
        }
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return unfit(format!(
                "rate is {}; accepted is a number above 0",
                self.rate
            ));
        }
        Ok(())
    }

    /// Values of a head.
    pub(super) fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Values of a row of queries, keys and values.
    pub(super) fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim()
    }

    /// Values of all parameters.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let (h, mlp) = (self.hidden, self.ffn);
        let layer = h * self.qkv_width() + h * h + 3 * h * mlp + 2 * h;
        self.vocab * h + self.layers * layer + h
    }
}

pub(super) fn unfit<T>(what: String) -> Result<T, TrainError> {
    Err(TrainError::Unfit(what))
}
