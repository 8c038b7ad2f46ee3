//! The law of a whole row of scores, before anybody asks for a probability.

use super::{
    buffer::Buffer,
    contest::contenders,
    score::{Score, Scores},
};
use crate::TokenId;

/// Scores of the ids from 0 on over a temperature, of which two at least are not masked: the law is
/// their softmax.
///
/// Which token wins by noise needs no probabilities: `ln p` is the score less one number, the same for
/// all.
#[derive(Clone, Debug)]
pub(super) struct Row {
    values: Values,
    /// Place of the first of the largest.
    at: usize,
    temperature: f64,
}

#[derive(Clone, Debug)]
pub(super) enum Values {
    Logits(Buffer<f32>),
    Scores(Buffer<f64>),
}

impl From<Buffer<f32>> for Values {
    fn from(logits: Buffer<f32>) -> Self {
        Self::Logits(logits)
    }
}

impl From<Buffer<f64>> for Values {
    fn from(scores: Buffer<f64>) -> Self {
        Self::Scores(scores)
    }
}

impl Row {
    /// `at` is the place of the first of the largest.
    pub(super) fn new(values: Values, at: usize, temperature: f64) -> Self {
        Self {
            values,
            at,
            temperature,
        }
    }

    /// The ids that are not masked, ascending, and their scores over the temperature.
    pub(super) fn open(&self) -> (Vec<TokenId>, Vec<f64>) {
        match &self.values {
            Values::Logits(values) => open(self.over(values)),
            Values::Scores(values) => open(self.over(values)),
        }
    }

    /// The token with the largest score and noise, of equals the lowest id. `counter` and `key` are
    /// Philox's for the noise of tokens 0 and 1, and `noise` is that of any.
    pub(super) fn winner(
        &self,
        counter: [u32; 4],
        key: [u32; 2],
        noise: impl Fn(TokenId) -> f64,
    ) -> TokenId {
        match &self.values {
            Values::Logits(values) => winner(self.over(values), counter, key, noise),
            Values::Scores(values) => winner(self.over(values), counter, key, noise),
        }
    }

    fn over<'a, S>(&self, values: &'a [S]) -> Scores<'a, S> {
        Scores {
            values,
            at: self.at,
            temperature: self.temperature,
        }
    }
}

/// The columns that are not masked, as ids, and their scores over the temperature.
fn open<S: Score>(scores: Scores<'_, S>) -> (Vec<TokenId>, Vec<f64>) {
    let over = |z: &S| scores.over(*z);
    if !scores
        .values
        .iter()
        .fold(false, |any, z| any | (*z == S::MASKED))
    {
        let ids = (0..).zip(scores.values).map(|(id, _)| id).collect();
        return (ids, scores.values.iter().map(over).collect());
    }
    (0..)
        .zip(scores.values)
        .filter(|(_, z)| **z > S::MASKED)
        .map(|(id, z): (TokenId, _)| (id, over(z)))
        .unzip()
}

fn winner<S: Score>(
    scores: Scores<'_, S>,
    counter: [u32; 4],
    key: [u32; 2],
    noise: impl Fn(TokenId) -> f64,
) -> TokenId {
    let peak = scores.over(scores.peak());
    let value = |id: TokenId| (scores.over(scores.values[id as usize]) - peak) + noise(id);
    let first = TokenId::try_from(scores.at).expect("a vocabulary has fewer than 2^32 tokens");
    let (mut winner, mut best) = (first, value(first));
    contenders(scores, counter, key, best, |id| {
        let reached = value(id);
        if reached > best || (reached == best && id < winner) {
            (winner, best) = (id, reached);
        }
        best
    });
    winner
}
