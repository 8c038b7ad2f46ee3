//! Streams of several choices.

use std::mem;

use mistralrs_core::{ChunkChoice, CompletionChunkChoice, speculative_host::Sequence};

/// A token that is a message of its own, in the stream of a request.
///
/// The host sends a message once it has as many chunks as there are choices, whosever they are: of
/// choices that are not at the same token the last chunks, with the finish reasons, would never be
/// sent, or not together, which is the sign that the stream is complete. Here only the last chunks
/// wait, for those of the other choices.
pub(crate) struct Alone {
    choices: usize,
    chat: Vec<ChunkChoice>,
    completion: Vec<CompletionChunkChoice>,
}

impl Alone {
    /// Puts the last chunks of other choices aside. None without a stream, and with tools: a call may
    /// end the choice with any token.
    pub(crate) fn begin(seq: &Sequence) -> Option<Self> {
        if seq.tools.is_some() {
            return None;
        }
        let mut group = seq.get_mut_group();
        group.is_streaming.then(|| Self {
            choices: group.set_chunks(1),
            chat: mem::take(&mut group.chat_streaming_chunks),
            completion: mem::take(&mut group.completion_streaming_chunks),
        })
    }

    /// Puts them back.
    pub(crate) fn end(self, seq: &Sequence) {
        let mut group = seq.get_mut_group();
        group.set_chunks(self.choices);
        group.chat_streaming_chunks = self.chat;
        group.completion_streaming_chunks = self.completion;
    }
}
