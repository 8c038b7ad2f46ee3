//! What a pipeline that decodes by itself must know of a sequence.

use std::sync::Arc;

use super::Sequence;

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

    /// The same for all choices of a request, and for them alone while one of them lives.
    pub fn group_key(&self) -> usize {
        Arc::as_ptr(&self.group).addr()
    }

    /// The bytes of its text so far, in which stop strings are searched.
    pub fn completion_bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.completion_bytes
    }
}
