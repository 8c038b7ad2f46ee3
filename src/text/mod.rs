//! Text at the edges: tokenizers, chat templates, and the pieces of a stream.
//!
//! Everything between is token ids. A model without a tokenizer works with ids alone.

mod chat;
mod differences;
mod error;
mod gguf;
mod guard;
mod metadata;
mod pre;
mod render;
mod stream;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use differences::{Agreement, Difference, Differences};
pub use error::TextError;
pub use gguf::Vocabulary;
pub use guard::is_guarded;
pub use stream::TextStream;
pub use tokenizer::Tokenizer;
