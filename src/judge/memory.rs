//! A target that remembers: its logits are a function of all tokens before, read back from the cache.
//!
//! A target whose logits depend on the last token alone never notices what the cache holds. This one has one key of
//! one number a token, the token itself, and mixes the keys along the row's path into its logits. So
//! a row that was kept and should not have been, dropped, left in another order or taken from a neighbour
//! changes the law of everything behind it, and what the law should be is known from the tokens.
//!
//! Its one layer turns the embedding, which is one-hot, into the logits; final norm and head do nothing.

use super::rows::mixed;
use crate::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    error::{ErrorKind, Result},
    model::{Forward, Rows, Target},
};

/// Positions.
const CONTEXT: usize = 1 << 10;

/// Logits lie in `0..SPREAD`.
const SPREAD: f32 = 2.5;

/// The target; two seeds are two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Size of the vocabulary.
    pub vocab: u16,
    /// What its logits are made of.
    pub seed: u32,
}

impl Memory {
    /// The logits after `tokens`.
    #[must_use]
    pub fn logits(&self, tokens: &[TokenId]) -> Vec<f32> {
        mixed(self.seed, self.vocab.into(), SPREAD, tokens)
    }

    fn key(&self, token: TokenId) -> Result<f32> {
        let inside = u16::try_from(token)
            .ok()
            .filter(|token| *token < self.vocab);
        let refused = || {
            ErrorKind::Rows(format!(
                "token {token}, accepted are ids below {}",
                self.vocab
            ))
        };
        Ok(f32::from(inside.ok_or_else(refused)?))
    }

    /// The token that a key was written for.
    fn token(&self, key: f32) -> TokenId {
        let inside = (0..self.vocab).find(|token| f32::from(*token) == key);
        inside.map_or(TokenId::MAX - 1, TokenId::from)
    }
}

impl Target for Memory {
    fn vocab(&self) -> usize {
        usize::from(self.vocab)
    }

    fn context(&self) -> usize {
        CONTEXT
    }

    fn layers(&self) -> usize {
        1
    }

    fn hidden(&self) -> usize {
        self.vocab()
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        KvCache::new(1, 1, slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        let mut x = Matrix::zeros(tokens.len(), self.vocab());
        for (i, token) in tokens.iter().enumerate() {
            x.row_mut(i)[*token as usize] = 1.0;
        }
        x
    }

    fn final_norm(&self, _: &mut Matrix) {}

    fn head(&self, normed: &Matrix) -> Matrix {
        normed.clone()
    }

    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward> {
        if let Some(tap) = taps.iter().find(|tap| **tap > 1) {
            return Err(ErrorKind::Setting {
                name: "tap",
                value: tap.to_string(),
                accepted: "accepted are 0 (embeddings) and 1 (logits)".to_owned(),
            }
            .into());
        }
        let mut last = Matrix::zeros(rows.len(), self.vocab());
        for span in rows.spans() {
            let (prefix, fresh) = (txn.prefix(span.seq).to_vec(), txn.fresh(span.seq).to_vec());
            if prefix.len() != span.base || fresh.len() != span.rows.len() {
                let what = format!("sequence {}: not those of the transaction", span.seq.0);
                return Err(ErrorKind::Rows(what).into());
            }
            for (slot, token) in fresh.iter().zip(&rows.tokens()[span.rows.clone()]) {
                txn.write(0, *slot, &[self.key(*token)?], &[0.0]);
            }
            let (keys, _) = txn.layer(0);
            let parents = &rows.parents()[span.rows.clone()];
            for i in 0..fresh.len() {
                let above = |i: &usize| parents[*i].map(|parent| parent as usize);
                let path = std::iter::successors(Some(i), above).map(|i| fresh[i]);
                let mut slots: Vec<u32> = path.chain(prefix.iter().rev().copied()).collect();
                slots.reverse();
                let read = slots.iter().map(|slot| self.token(keys[*slot as usize]));
                let logits = self.logits(&read.collect::<Vec<_>>());
                last.row_mut(span.rows.start + i).copy_from_slice(&logits);
            }
        }
        let mut logits = Matrix::zeros(rows.wanted().len(), self.vocab());
        for (i, row) in rows.wanted().iter().enumerate() {
            logits.row_mut(i).copy_from_slice(last.row(*row));
        }
        let streams = [self.embed(rows.tokens()), last];
        let tapped = |(row, tap): (usize, usize)| streams[tap].row(row).to_vec();
        let places = (0..rows.len()).flat_map(|row| taps.iter().map(move |tap| (row, *tap)));
        let taps = (!taps.is_empty()).then(|| {
            let values = places.flat_map(tapped).collect();
            Matrix::new(taps.len() * self.vocab(), values)
        });
        Ok(Forward { logits, taps })
    }
}

#[cfg(test)]
mod tests;
