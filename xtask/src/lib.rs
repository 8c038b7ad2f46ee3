//! Long jobs of the repository, and the pieces of them that tests use in small.

pub mod cover;
pub mod grid;
pub mod host;
