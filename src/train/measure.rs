//! How well a head in training guesses, beside a drafter that costs nothing.
//!
//! Held-out answers are walked as drafting would: from every row a chain of guesses, of which those
//! count that the answer goes on with, and a round ends behind the first that does not. Rows are fed the
//! answer's own tokens instead of the guesses, which changes nothing: where the two differ the chain has
//! ended. A token that the head has no row for is a wrong guess.

use serde::{Deserialize, Serialize};

use super::{
    Place, TrainError, Trainer,
    batch::{Batch, Next},
    data::Sequence,
};
use crate::{
    SeqId, TokenId,
    draft::{Anchor, Drafter, Ngram},
    error::Result,
    sample::{Chain, Counts, Keyed, SamplingParams},
    tree::DraftTree,
};

/// Guesses in a chain.
pub const DEPTH: usize = 4;
/// Tokens in one pass, but for its last sequence.
const TOGETHER: usize = 1024;

/// What was measured on held-out answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Rows guessed from.
    pub rows: usize,
    /// Of them, those whose next token the head has a row for.
    pub covered: usize,
    /// Mean loss of those, in nats.
    pub loss: f64,
    /// By position, chains whose guesses before were all right, and of them those where this one was too.
    pub chains: [(usize, usize); DEPTH],
    /// First guesses that `ngram` made and got right.
    pub ngram_first: usize,
    /// Walks with the head; with `ngram`; with `ngram` where it guesses at all, else the head.
    pub walks: [Walk; 3],
}

/// Rounds of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// Rounds.
    pub rounds: usize,
    /// Tokens that they would have emitted: right guesses, and one more each.
    pub tokens: usize,
}

impl Walk {
    /// Mean acceptance length, the token after the guesses included: 1 if no guess is ever right.
    #[must_use]
    pub fn length(&self) -> f64 {
        ratio(self.tokens, self.rounds)
    }
}

impl Measured {
    /// By position, how often a guess is right if all before it are.
    #[must_use]
    pub fn rates(&self) -> [f64; DEPTH] {
        self.chains.map(|(chains, right)| ratio(right, chains))
    }

    /// How often the first guess of `ngram` is right, over all rows.
    #[must_use]
    pub fn ngram_rate(&self) -> f64 {
        ratio(self.ngram_first, self.rows)
    }

    /// The share of rows whose next token the head has a row for.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        ratio(self.covered, self.rows)
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "numbers of rows")]
    let ratio = part as f64 / whole.max(1) as f64;
    ratio
}

impl Trainer {
    /// What was measured so far, and after which step (`None`: before the first).
    #[must_use]
    pub fn history(&self) -> &[(Option<Place>, Measured)] {
        &self.history
    }

    /// Measures after a step (`None`: before the first), and keeps it in the [history](Self::history).
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn note(&mut self, after: Option<Place>) -> Result<&Measured> {
        let noted = (after, self.measure()?);
        self.history.push(noted);
        Ok(&self.history[self.history.len() - 1].1)
    }

    /// Measures the head as it is on the held-out sequences.
    ///
    /// # Errors
    /// If the data cannot be read, or the loss is no number.
    pub fn measure(&self) -> Result<Measured> {
        let mut measured = Measured::default();
        let mut loss = 0.0;
        let (mut some, mut rows) = (Vec::new(), 0);
        for (i, (entry, from)) in self.held.iter().enumerate() {
            some.push((self.data.sequence(entry)?, *from));
            rows += entry.tokens;
            if rows >= TOGETHER || i + 1 == self.held.len() {
                loss += self.measure_some(&some, &mut measured)?;
                some.clear();
                rows = 0;
            }
        }
        measured.loss = loss / ratio(measured.covered, 1).max(1.0);
        if measured.loss.is_finite() {
            return Ok(measured);
        }
        Err(TrainError::Unfit(format!(
            "the loss on held-out answers is {}; accepted is a finite number",
            measured.loss
        ))
        .into())
    }

    /// Adds some sequences; the sum of their rows' losses.
    fn measure_some(
        &self,
        sequences: &[(Sequence, usize)],
        measured: &mut Measured,
    ) -> Result<f64> {
        let batch = Batch::new(sequences, &self.scales, &self.form, &self.frozen, DEPTH)?;
        let unroll = self.unroll(&batch);
        let (pass, head) = (unroll.forward(DEPTH)?, unroll.head());
        let mut right: Vec<Vec<bool>> = Vec::with_capacity(DEPTH);
        for step in 0..DEPTH {
            let guesses = head.guesses(pass.output(step))?;
            let hits = batch.next[step].iter().zip(guesses);
            let hits = hits.map(|(next, guess)| *next == Next::Row(guess));
            right.push(hits.collect());
        }
        for (span, (sequence, _)) in batch.spans.iter().zip(sequences) {
            let right = |query| right.iter().take_while(|right| right[query]).count();
            let lengths: Vec<usize> = span.queries.clone().map(right).collect();
            let first = batch.positions[batch.rows[span.queries.start]];
            measured.add(sequence, first, &lengths)?;
        }
        let judged = head.judge(&batch, &[pass.output(0)], &[1.0])?;
        measured.covered += judged.rows[0];
        Ok(judged.sums[0])
    }
}

impl Measured {
    /// Adds a sequence whose rows from `first` on have chains of so many right guesses.
    fn add(&mut self, sequence: &Sequence, first: usize, lengths: &[usize]) -> Result<()> {
        self.rows += lengths.len();
        let mut ngram = Vec::with_capacity(lengths.len());
        for row in first..first + lengths.len() {
            // The row holds token row + 1, the last that is known.
            let (known, future) = sequence.tokens.split_at(row + 2);
            let guesses = lookup(known)?;
            let right = guesses.iter().zip(future).take_while(|(a, b)| a == b);
            ngram.push((!guesses.is_empty()).then_some(right.count()));
        }
        self.ngram_first += ngram.iter().filter(|right| right.unwrap_or(0) > 0).count();
        // Only rows that a whole chain fits behind, so that every position is measured on the same ones.
        let Some(last) = lengths.len().checked_sub(DEPTH) else {
            return Ok(());
        };
        for right in &lengths[..=last] {
            for (position, (chains, hits)) in self.chains.iter_mut().enumerate() {
                *chains += usize::from(*right >= position);
                *hits += usize::from(*right > position);
            }
        }
        let head = |at: usize| lengths[at];
        let looked = |at: usize| ngram[at].unwrap_or(0);
        let both = |at: usize| ngram[at].unwrap_or(lengths[at]);
        let walkers: [&dyn Fn(usize) -> usize; 3] = [&head, &looked, &both];
        for (walk, right) in self.walks.iter_mut().zip(walkers) {
            let mut at = 0;
            while at <= last {
                let emitted = right(at) + 1;
                walk.rounds += 1;
                walk.tokens += emitted;
                at += emitted;
            }
        }
        Ok(())
    }
}

/// What the drafter `ngram` would guess behind these tokens.
fn lookup(tokens: &[TokenId]) -> Result<Vec<TokenId>> {
    let chain = Chain::new(SamplingParams::default(), 1, 1, Vec::new())?;
    let mut draws = Keyed::new(0);
    let anchor = Anchor {
        seq: SeqId(0),
        tokens,
        round: 0,
        depth: DEPTH,
        nodes: DEPTH,
        chain: &chain,
        counts: &Counts::default(),
        draws: &mut draws,
    };
    let mut trees = [DraftTree::default()];
    Ngram.propose(&mut [anchor], &mut trees)?;
    let tree = &trees[0];
    Ok(tree.nodes().map(|node| tree.token(node)).collect())
}
