//! The benches, one binary.

fn main() {}
