//! The integration tests, one binary.

mod text;
mod law;
mod fixtures;
mod load;
