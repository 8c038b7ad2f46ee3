//! The integration tests, one binary.

mod law;
