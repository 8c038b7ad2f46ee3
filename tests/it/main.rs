//! The integration tests, one binary.

mod text;
