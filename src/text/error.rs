//! What can be wrong with a tokenizer or a chat template.

use std::path::PathBuf;

/// The underlying error of a library.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// What can be wrong with a tokenizer or a chat template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file that cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is no JSON, or JSON of another shape.
    #[error("{}: {message}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What was found and what would be accepted.
        message: String,
    },
    /// A tokenizer that the tokenizers library refuses.
    #[error("tokenizer {name}: {source}")]
    Tokenizer {
        /// The file, or `GGUF metadata`.
        name: String,
        /// The library's reason.
        source: Source,
    },
    /// A GGUF tokenizer of a kind that cannot be built from metadata.
    #[error(
        "tokenizer.ggml.model {found:?}: only \"gpt2\" (byte-level BPE) can be built from GGUF \
         metadata; prompts given as token ids work"
    )]
    Model {
        /// The value in the file.
        found: String,
    },
    /// A GGUF pre-tokenizer with unknown rules.
    #[error("tokenizer.ggml.pre {found:?}: accepted are {accepted}")]
    Pre {
        /// The value in the file; empty if there was none.
        found: String,
        /// The accepted names.
        accepted: String,
    },
    /// A GGUF key of another type.
    #[error("GGUF metadata: {0}")]
    Metadata(#[from] crate::model::load::Problem),
    /// A decoder that the tokenizers library cannot run on every sequence.
    #[error("tokenizer {name}: decoder {found}: {accepted}")]
    Decoder {
        /// The file.
        name: String,
        /// The step.
        found: String,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// GGUF tokenizer metadata that contradicts itself.
    #[error("GGUF tokenizer metadata: {0}")]
    Vocabulary(String),
    /// A chat template that does not parse, or that refuses the conversation.
    #[error("chat template {name}: {message}")]
    Template {
        /// Where the template came from.
        name: String,
        /// The template engine's words, or the template's own.
        message: String,
    },
    /// A text that the tokenizer cannot encode.
    #[error("the tokenizer cannot encode this text: {0}")]
    Encode(Source),
    /// Tokens that the tokenizer cannot decode.
    #[error("the tokenizer cannot decode these tokens: {0}")]
    Decode(Source),
}
