//! Seeds made from seeds.

use super::draws::{Domain, Keyed};

/// The seed of line `line` of a request file under the global seed `seed`; below 2^53.
#[must_use]
pub fn derive_line(seed: u64, line: u64) -> u64 {
    derive(seed, line, Domain::Line)
}

/// The seed of choice `j` of a request with seed `seed`: the seed itself for choice 0, so that the
/// seed reported with a choice replays that choice alone; else below 2^53.
#[must_use]
pub fn derive_choice(seed: u64, j: u64) -> u64 {
    if j == 0 {
        return seed;
    }
    derive(seed, j, Domain::Choice)
}

/// 53 bits: every seed survives a JSON reader that has only doubles.
fn derive(seed: u64, index: u64, domain: Domain) -> u64 {
    Keyed::new(seed).words(0, index, domain)[0] >> 11
}
