//! The integration tests, one binary.

mod cases;
mod fixtures;
mod law;
mod forward;
mod load;
mod lossless;
mod support;
mod text;
