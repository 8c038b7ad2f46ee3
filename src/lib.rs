//! Speculative decoding that provably keeps the target's output law.
//!
//! One round, for a whole batch:
//!
//! ```text
//! draft  ->  verify  ->  accept  ->  commit
//! guess      one target   decide      cache, tokens, stop
//!            pass over
//!            all rows
//! ```
//!
//! The folder list is the algorithm; `docs/ARCHITECTURE.md` has the map and the invariants.

pub mod error;
pub mod types;

mod json;

pub mod sample;
pub mod tree;

pub mod draft;
pub mod verify;

pub mod accept;
pub mod commit;

#[cfg(feature = "mutants")]
pub mod mutant;

pub mod cache;
pub mod kernels;
pub mod model;
pub mod text;

pub mod ending;
pub mod report;
pub mod request;
pub mod round;
pub mod schedule;
pub mod sequence;

pub mod judge;

pub mod check;

pub mod train;

pub mod cli;

pub use error::{Error, ErrorKind, Result};
pub use types::{Matrix, Node, SeqId, TokenId};
