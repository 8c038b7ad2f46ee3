//! What users of other engines met, each a test by its number.
//!
//! | cases | file |
//! |---|---|
//! | 1 to 11 | `sampling`: the output law, the sampling parameters, seeds |
//! | 12 to 17 | `acceptance`: what the rules accept, and what they are given |
//! | 18 to 25 | `stopping`: ends, limits, log-probabilities, usage |
//! | 26 to 38 | `semantics`: what a drafter must know of the target |
//! | 39 to 48 | `formats`: checkpoints, vocabularies, tokenizers |
//! | 49 to 59 | `caches`: caches, batches, who runs when |
//! | 27, 28, 30, 33, 34, 37, 49, 58, 66 | `eagle`: what they mean for EAGLE heads |
//! | 3, 4, 20, 38, 51 | `eagle_law`: that the tokens are the target's whatever heads draft |
//! | 26, 29 to 32 | `eagle_reading`: norms and taps of heads in files |
//! | 39 to 46 | `eagle_formats`: the files of heads |
//! | 35, 36, 56, 60 to 65 | `measuring`: what is measured, and what the numbers are called |
//!
//! Laws are tested on N = 4,000 choices at alpha = 1e-6, which over four cells sees a total variation
//! of 0.08 with probability 0.99; a wrong law that a case quotes is farther away, and excluded by name.

mod acceptance;
mod caches;
mod eagle;
mod eagle_files;
mod eagle_formats;
mod eagle_law;
mod eagle_reading;
mod formats;
mod measuring;
mod sampling;
mod semantics;
mod stopping;

use eyrie::{
    TokenId,
    accept::{Block, Match, Rejection, Rule},
    draft::Drafter,
    request::Request,
};
use eyrie_verifier::chi2;

use crate::support::{Lab, constant_target};

/// No test of a law rejects at this level.
const ALPHA: f64 = 1e-6;
/// Choices of a test of a law.
const N: usize = 4_000;
/// Every rule there is.
const RULES: [fn() -> Box<dyn Rule>; 3] = [
    || Box::new(Match),
    || Box::new(Rejection),
    || Box::new(Block),
];

/// A target that says one law after every token, under a rule.
fn lab(p: &[f64], rule: fn() -> Box<dyn Rule>) -> Lab {
    Lab::new(constant_target(p)).with(|lab| lab.rule = rule)
}

/// The tokens of `n` choices of one request.
fn choices(lab: &Lab, drafter: Box<dyn Drafter>, request: Request, n: usize) -> Vec<Vec<TokenId>> {
    let request = Request { n, ..request };
    lab.run(drafter, &[request]).tokens()
}

/// How often each token of a law of so many cells is at `index`.
fn counts(tokens: &[Vec<TokenId>], index: usize, cells: usize) -> Vec<u64> {
    let mut counts = vec![0u64; cells];
    for line in tokens {
        counts[line[index] as usize] += 1;
    }
    counts
}

/// Fails if the tokens at `index` do not have the law `p`.
fn assert_law(tokens: &[Vec<TokenId>], index: usize, p: &[f64]) {
    let counts = counts(tokens, index, p.len());
    for (token, (count, p)) in counts.iter().zip(p).enumerate() {
        assert!(
            *p > 0.0 || *count == 0,
            "token {token} at index {index} has no mass, seen {count} times"
        );
    }
    let test = chi2::goodness_of_fit(&counts, p).unwrap();
    assert!(
        test.p_value > ALPHA,
        "index {index}: {counts:?} against {p:?}: {test:?}"
    );
}

/// Fails if the tokens at `index` could have the law `wrong` that a case quotes.
fn assert_not_law(tokens: &[Vec<TokenId>], index: usize, wrong: &[f64]) {
    let counts = counts(tokens, index, wrong.len());
    let outside = counts.iter().zip(wrong).any(|(n, p)| *p <= 0.0 && *n > 0);
    let test = chi2::goodness_of_fit(&counts, wrong).unwrap();
    assert!(
        outside || test.rejects(ALPHA),
        "index {index}: {counts:?} is not told from {wrong:?}: {test:?}"
    );
}
