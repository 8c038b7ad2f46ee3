//! mistral.rs decodes with Eyrie.
//!
//! [`EyrieLoader`] loads a target and a drafter and makes pipelines for mistral.rs' engine, which
//! keeps requests, chat templates, stops, streaming and the OpenAI server. Every token comes from
//! Eyrie's round: the pipelines of one loader share one [`Engine`](eyrie::schedule::Engine), whose
//! sequences stay in one pass whatever their lengths and whichever host engine asked.

mod asked;
mod chunks;
mod counters;
mod custom;
mod gate;
mod grammar;
mod loader;
pub mod metrics;
mod pipeline;
mod prompts;
mod runner;
pub mod serve;

pub use loader::{EyrieLoader, Options};
pub use pipeline::EyriePipeline;
pub use runner::Held;
