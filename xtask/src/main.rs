//! Long jobs.

fn main() {}
