//! The output law of sampling and of the rules: exact where that is possible, then by
//! statistics, then broken variants of the same code, each caught by a named test.
//!
//! Statistical tests have alpha = 1e-6 and fixed seeds, a seed a test; each states its sample size
//! and the smallest total variation that it would have rejected with probability 0.99.

mod broken;
mod dry;
mod exact;
mod grown;
mod host;
mod keys;
mod matching;
mod mutants;
mod naive;
mod noise;
mod params;
mod processors;
mod rounds;
mod twin;
mod walk;

use eyrie::{
    judge::Rows,
    sample::{Chain, Counts, Dist, History, RawParams, SamplingParams},
};

const ALPHA: f64 = 1e-6;
const POWER: f64 = 0.99;

fn chain(raw: RawParams, vocab: usize) -> Chain {
    Chain::new(SamplingParams::new(raw).unwrap(), vocab, vocab, vec![]).unwrap()
}

/// The law with these weights, up to the rounding of a logit to f32; weight 0 is outside of it.
fn law_of(weights: &[f64]) -> Dist {
    let banned = (0..).zip(weights).filter(|(_, w)| **w == 0.0);
    let raw = RawParams {
        temperature: 1.0,
        logit_bias: banned.map(|(id, _)| (id, f64::NEG_INFINITY)).collect(),
        ..RawParams::default()
    };
    let logit = |w: &f64| if *w > 0.0 { single(w.ln()) } else { 0.0 };
    let logits: Vec<f32> = weights.iter().map(logit).collect();
    let history = History {
        counts: &Counts::new(&[]),
        tokens: &[],
        path: &[],
    };
    chain(raw, weights.len()).law(&logits, &history).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "a logit is an f32")]
fn single(x: f64) -> f32 {
    x as f32
}

/// The probabilities of a law on `0..vocab`.
fn table(law: &Dist, vocab: u32) -> Vec<f64> {
    (0..vocab).map(|id| law.p(id)).collect()
}
