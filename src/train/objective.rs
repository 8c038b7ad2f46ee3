//! What a head is trained for: the target's law over the tokens that the head has rows for.
//!
//! ```text
//! p = softmax(W f)          of the target, W the rows of its output head, f its normed last stream
//! loss = -Σ p ln softmax(W ô)            gradient of the logits: softmax - p
//! ```
//!
//! Neither law is ever stored: both are made from `hidden` values a row when they are needed, for a chunk
//! of the target's rows and all steps that are judged by them, and so are logits and their gradient.
//! So memory does not grow with the vocabulary times the rows.

use rayon::prelude::*;

use super::{
    batch::Batch,
    linalg::single,
    mat::{Mat, dot},
    norm::Normed,
};
use crate::{error::Result, kernels::softmax};

/// Rows whose laws and logits are in memory at once.
const CHUNK: usize = 1024;

/// The output head, and the norm before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'a> {
    /// `[1, hidden]`
    pub(super) norm: &'a Mat,
    /// `[draft_vocab, hidden]`
    pub(super) lm_head: &'a Mat,
    pub(super) eps: f32,
}

/// Losses of an unrolled batch, and their gradients.
#[derive(Debug)]
pub(super) struct Judged {
    /// By step, the sum over the rows that were judged, in nats, not weighted.
    pub(super) sums: Vec<f64>,
    /// By step, how many these are.
    pub(super) rows: Vec<usize>,
    /// By step, of the outputs, `[queries, hidden]`.
    pub(super) outputs: Vec<Vec<f32>>,
    /// Of the norm's weight.
    pub(super) norm: Vec<f32>,
}

impl Output<'_> {
    /// Judges the outputs of each step, `[queries, hidden]` before the norm, of which every row's loss
    /// counts for the step's share.
    pub(super) fn judge(&self, batch: &Batch, outputs: &[&Mat], shares: &[f64]) -> Result<Judged> {
        let (queries, width) = (batch.rows.len(), self.norm.cols());
        let mut judged = Judged {
            sums: vec![0.0; outputs.len()],
            rows: vec![0; outputs.len()],
            outputs: vec![vec![0.0; queries * width]; outputs.len()],
            norm: vec![0.0; width],
        };
        // Step 0 is judged by every law that a later step is judged by.
        let needed: Vec<usize> = batch.judged(0).map(|(_, law)| law).collect();
        for some in needed.chunks(CHUNK) {
            let laws = self.laws(&batch.finals.gather(some.iter().copied())?)?;
            for (step, share) in shares.iter().enumerate() {
                let here = batch.judged(step).filter_map(|(query, law)| {
                    let place = some.binary_search(&law).ok()?;
                    Some((query, place))
                });
                let (queries, places): (Vec<_>, Vec<_>) = here.unzip();
                let rows = Rows {
                    outputs: &outputs[step].gather(queries.iter().copied())?,
                    laws: &laws,
                    places: &places,
                    share: single(*share),
                };
                let (sum, d) = self.loss(&rows, &mut judged.norm)?;
                judged.sums[step] += sum;
                judged.rows[step] += queries.len();
                for (query, d) in queries.iter().zip(d.chunks(width)) {
                    judged.outputs[step][query * width..(query + 1) * width].copy_from_slice(d);
                }
            }
        }
        Ok(judged)
    }

    /// The loss of some rows and the gradient of their outputs; that of the norm's weight is added.
    fn loss(&self, rows: &Rows<'_>, norm: &mut [f32]) -> Result<(f64, Vec<f32>)> {
        let (width, vocab) = (self.norm.cols(), self.lm_head.rows());
        let mut d = vec![0.0; rows.places.len() * width];
        if d.is_empty() {
            return Ok((0.0, d));
        }
        let normed = Normed::of(&rows.outputs.view(), width, self.eps);
        let weight = self.norm.view();
        let input = Mat::new(width, normed.weighted(&weight))?;
        let logits = input.times_t(self.lm_head)?;
        let mut back = vec![0.0; rows.places.len() * vocab];
        let (said, judged) = (logits.view(), back.par_chunks_mut(vocab));
        let judged = judged.zip(said.par_chunks(vocab)).zip(rows.places);
        let losses = judged.map(|((back, logits), place)| {
            let law = &rows.laws[place * vocab..(place + 1) * vocab];
            let total = softmax(logits, back);
            for (back, p) in back.iter_mut().zip(law) {
                *back = rows.share * (*back - p);
            }
            f64::from(total) - f64::from(dot(logits, law))
        });
        let losses: Vec<f64> = losses.collect();
        let back = Mat::new(vocab, back)?.times(self.lm_head)?;
        normed.weight_gradient(&back.view(), norm);
        normed.input_gradient(&back.view(), &weight, &mut d);
        Ok((losses.iter().sum(), d))
    }

    /// The target's laws at rows of its normed last stream, `[rows, draft_vocab]`.
    fn laws(&self, finals: &Mat) -> Result<Vec<f32>> {
        let (vocab, logits) = (self.lm_head.rows(), finals.times_t(self.lm_head)?);
        let mut laws = vec![0.0; finals.rows() * vocab];
        let rows = laws.par_chunks_mut(vocab);
        rows.zip(logits.view().par_chunks(vocab))
            .for_each(|(law, logits)| {
                softmax(logits, law);
            });
        Ok(laws)
    }

    /// The row of the output head that each output makes the likeliest, of equals the lowest.
    pub(super) fn guesses(&self, outputs: &Mat) -> Result<Vec<usize>> {
        let width = outputs.cols();
        let (all, norm) = (outputs.view(), self.norm.view());
        let mut guesses = Vec::with_capacity(outputs.rows());
        for rows in all.chunks(CHUNK * width) {
            let normed = Normed::of(rows, width, self.eps).weighted(&norm);
            let logits = Mat::new(width, normed)?.times_t(self.lm_head)?;
            let logits = logits.view();
            guesses.par_extend(logits.par_chunks(self.lm_head.rows()).map(largest));
        }
        Ok(guesses)
    }
}

/// Rows of one step that are judged together.
#[derive(Clone, Copy, Debug)]
struct Rows<'a> {
    /// `[rows, hidden]`
    outputs: &'a Mat,
    /// `[laws, draft_vocab]`
    laws: &'a [f32],
    /// The law of each row.
    places: &'a [usize],
    /// Factor of every row's loss.
    share: f32,
}

fn largest(row: &[f32]) -> usize {
    let best = row.iter().enumerate();
    let best = best.fold((0, f32::NEG_INFINITY), |best, (i, x)| {
        if *x > best.1 { (i, *x) } else { best }
    });
    best.0
}
