//! The integration tests, one binary.

mod fixtures;
mod forward;
mod load;
