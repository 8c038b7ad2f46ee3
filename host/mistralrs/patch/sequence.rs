//! What a pipeline that decodes by itself must know of a sequence.

use super::{Sequence, SequenceGroup};
use crate::Usage;

impl Sequence {
    /// Whether the request wants logits in place of tokens.
    pub fn wants_raw_logits(&self) -> bool {
        self.return_raw_logits
    }

    /// Most tokens to generate.
    pub fn max_len(&self) -> Option<usize> {
        self.max_len
    }

    /// Tokens that end it, besides the model's.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// The bytes of its text so far, in which stop strings are searched.
    pub fn completion_bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.completion_bytes
    }
}

impl SequenceGroup {
    /// The number of choices to return, the likeliest ones; `None`: all.
    pub fn best_of(&self) -> Option<usize> {
        self.best_of
    }

    /// Sends a message of a stream once it has `chunks` chunks, and says how many it was before: as many
    /// as there are choices.
    pub fn set_chunks(&mut self, chunks: usize) -> usize {
        std::mem::replace(&mut self.n_choices, chunks)
    }

    /// The usage with the tokens of all choices, where the pipeline counts them; [`Self::get_usage`]
    /// knows those of the last choice alone.
    pub(super) fn counted_usage(&self) -> Option<Usage> {
        let speculative = self.speculative.clone()?;
        let (prompt, completion) = (self.total_prompt_toks, speculative.completion_tokens);
        Some(Usage {
            completion_tokens: completion,
            prompt_tokens: prompt,
            total_tokens: prompt + completion,
            avg_tok_per_sec: rate(prompt + completion, self.total_time),
            avg_prompt_tok_per_sec: rate(prompt, self.total_prompt_time),
            avg_compl_tok_per_sec: rate(completion, self.total_completion_time),
            total_time_sec: seconds(self.total_time),
            total_prompt_time_sec: seconds(self.total_prompt_time),
            total_completion_time_sec: seconds(self.total_completion_time),
            speculative: Some(speculative),
        })
    }
}

#[allow(clippy::cast_precision_loss)]
fn seconds(ms: u128) -> f32 {
    ms as f32 / 1e3
}

#[allow(clippy::cast_precision_loss)]
fn rate(tokens: usize, ms: u128) -> f32 {
    if ms == 0 {
        return 0.0;
    }
    tokens as f32 / seconds(ms)
}
