//! What a user asks for, after validation.
//!
//! A [`Request`] is made by resolving a [`RequestSpec`] (the flags of `generate`, or one line of a
//! requests file) against a target: prompts become tokens, every value is checked, and a seed is
//! there. The engine can therefore not meet an invalid one.

mod error;
mod json;
mod line;
mod resolve;
mod spec;

#[cfg(test)]
mod tests;

pub use error::RequestError;
pub use resolve::Resolver;
pub use spec::RequestSpec;

use crate::{TokenId, sample::SamplingParams};

/// A validated request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name its results carry.
    pub id: String,
    /// The prompt: at least one token, at most the target's context.
    pub prompt: Vec<TokenId>,
    /// How logits become laws.
    pub params: SamplingParams,
    /// Most tokens to generate, at least 1.
    pub max_tokens: usize,
    /// Texts that end a choice.
    pub stop: Vec<String>,
    /// Tokens that end a choice, besides the target's own.
    pub stop_ids: Vec<TokenId>,
    /// The target's end tokens do not end a choice.
    pub ignore_eos: bool,
    /// Choice 0 draws with this seed, choice j with one derived from it.
    pub seed: u64,
    /// Number of independent choices, at least 1.
    pub n: usize,
    /// Report log-probabilities, with this many of the likeliest tokens.
    pub logprobs: Option<usize>,
    /// Decode without drafts.
    pub drafter_off: bool,
}
