//! The integration tests, one binary.

mod fixtures;
mod load;
