//! Who runs: requests join and leave at every round.
//!
//! A request waits, is *prefilled* (its prompt, chunk by chunk, once for all its choices), and each
//! of its choices then goes through rounds as a [`Sequence`](crate::sequence::Sequence) until it
//! ends. When the cache has no room, the youngest gives its slots back and starts again later from
//! its tokens: with keyed randomness and row-invariant arithmetic it goes on as if it had never
//! stopped.

mod engine;
mod event;
mod group;
mod prefill;

pub use engine::{Engine, EngineOptions, Parts};
pub use event::{Event, RequestHandle};
