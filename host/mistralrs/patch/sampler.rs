//! What a request asks of its sampler, for a pipeline that samples by itself.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{CustomLogitsProcessor, Sampler};

/// The settings of a [`Sampler`], as [`Sampler::new`] resolved them.
pub struct SamplerSettings<'a> {
    /// `None`: the argmax.
    pub temperature: Option<f64>,
    /// Likeliest tokens to report with each token.
    pub top_n_logprobs: usize,
    pub frequency_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub dry: Option<DrySettings<'a>>,
    /// Not positive: off.
    pub top_k: i64,
    pub top_p: f64,
    pub min_p: f64,
    pub logits_bias: Option<&'a HashMap<u32, f32>>,
    pub logits_processors: &'a [Arc<dyn CustomLogitsProcessor>],
}

/// The settings of the DRY penalty.
pub struct DrySettings<'a> {
    pub sequence_breakers: &'a HashSet<u32>,
    pub multiplier: f32,
    pub base: f32,
    pub allowed_length: usize,
}

impl Sampler {
    /// What was asked for.
    pub fn settings(&self) -> SamplerSettings<'_> {
        SamplerSettings {
            temperature: self.temperature,
            top_n_logprobs: self.top_n_logprobs,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repetition_penalty: self.repetition_penalty,
            dry: self.dry_params.as_ref().map(|dry| DrySettings {
                sequence_breakers: &dry.sequence_breakers,
                multiplier: dry.multiplier,
                base: dry.base,
                allowed_length: dry.allowed_length,
            }),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            logits_bias: self.logits_bias.as_ref(),
            logits_processors: &self.logits_processors,
        }
    }

    /// The sampler with the request's logit bias, which [`Sampler::sample`] does not look at.
    pub(crate) fn with_logits_bias(mut self, bias: Option<HashMap<u32, f32>>) -> Self {
        self.logits_bias = bias;
        self
    }
}
