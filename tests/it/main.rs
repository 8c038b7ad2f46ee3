//! The integration tests, one binary.

mod forward;
mod fixtures;
mod load;
