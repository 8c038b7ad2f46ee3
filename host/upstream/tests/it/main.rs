//! mistral.rs as published: the requests that Eyrie's pipeline must pass there pass here too, and its
//! defects, one test each, are still there.
//!
//! A test of a defect passes while the defect is there. Once it fails, upstream has mended it:
//! docs/MISTRALRS.md says what to change then.

mod decode;
mod draft_model;
mod engine;
mod requests;
mod sampling;
mod stream;

/// The message of a defect that is gone.
fn mended(what: &str) -> String {
    format!("upstream mended {what}: see docs/MISTRALRS.md")
}
