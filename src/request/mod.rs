//! What a user asks for, after validation.
//!
//! A [`Request`] is made by resolving a [`RequestSpec`] (the flags of `generate`, or one line of a
//! requests file) against a target: prompts become tokens, every value is checked, and a seed is
//! there. The engine can therefore not meet an invalid one.

mod error;
mod line;
mod resolve;
mod spec;

#[cfg(test)]
mod tests;

pub use error::RequestError;
pub use resolve::Resolver;
pub use spec::RequestSpec;

use std::sync::Arc;

use crate::{
    TokenId,
    sample::{Processor, SamplingParams},
};

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
    /// What changes the scores beside the parameters, in this order.
    pub processors: Vec<Arc<dyn Processor>>,
}

/// A seed from the system, below 2^53 so that every JSON reader keeps it exactly.
#[must_use]
pub fn system_seed() -> u64 {
    rand::random::<u64>() >> 11
}

/// What a target and its cache can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Token ids are below this.
    pub vocab: usize,
    /// Positions of the target.
    pub context: usize,
    /// Tokens that the cache holds.
    pub kv_tokens: usize,
    /// There is a tokenizer.
    pub text: bool,
}

impl Request {
    /// Checks what the engine relies on.
    ///
    /// # Errors
    /// Naming the first field that does not hold.
    pub fn check(&self, limits: &Limits) -> Result<(), RequestError> {
        let refuse = |field: &str, value: String, accepted: String| {
            Err(RequestError::value(field, value, accepted))
        };
        let (count, most) = (self.prompt.len(), limits.context.min(limits.kv_tokens));
        if count == 0 || count > most {
            let accepted = format!(
                "a prompt has 1..={most} tokens (positions of the model {}, kv_tokens {})",
                limits.context, limits.kv_tokens
            );
            return refuse("prompt", format!("of {count} tokens"), accepted);
        }
        let ids = self.prompt.iter().map(|id| ("prompt_ids", id));
        let stops = self.stop_ids.iter().map(|id| ("stop_id", id));
        let biased = self.params.logit_bias.keys().map(|id| ("logit_bias", id));
        let outside = |id: &u32| *id as usize >= limits.vocab;
        if let Some((field, id)) = ids.chain(stops).chain(biased).find(|(_, id)| outside(id)) {
            return refuse(
                field,
                id.to_string(),
                format!("token ids lie in 0..{}", limits.vocab),
            );
        }
        if self.n == 0 || self.max_tokens == 0 {
            let field = if self.n == 0 { "n" } else { "max_tokens" };
            return refuse(field, "0".to_owned(), "at least 1".to_owned());
        }
        match self.stop.first() {
            Some(stop) if !limits.text => refuse(
                "stop",
                format!("{stop:?}"),
                "stop texts need a tokenizer".to_owned(),
            ),
            _ if self.stop.iter().any(String::is_empty) => refuse(
                "stop",
                "\"\"".to_owned(),
                "a text that is not empty".to_owned(),
            ),
            _ => Ok(()),
        }
    }
}
