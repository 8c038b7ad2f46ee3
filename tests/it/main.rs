//! The integration tests, one binary.

mod forward;
