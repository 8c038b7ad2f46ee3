//! What a head is trained for: the target's law over the tokens that the head has rows for.
//!
//! ```text
//! p = softmax(W f)          of the target, W the rows of its output head, f its normed last stream
//! loss = -Σ p ln softmax(W ô)            gradient of the logits: softmax - p
//! ```
//!
//! An EAGLE-1 head's output is a guess of f itself. Its loss is that of its paper (Li et al. 2024, arXiv
//! 2401.15077), a smooth absolute difference of the feature and a tenth of the above:
//!
//! ```text
//! loss = mean s(o - f) + 0.1 (-Σ p ln softmax(W o))      s(x) = x² / 2 up to |x| = 1, |x| - 1/2 beyond
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
/// What the law counts for beside the feature.
const LAW: f64 = 0.1;

/// The output head, and the norm before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'a> {
    /// `[1, hidden]`; none where outputs are features, which are regressed to the target's.
    pub(super) norm: Option<&'a Mat>,
    /// `[draft_vocab, hidden]`
    pub(super) lm_head: &'a Mat,
    pub(super) eps: f32,
}

/// Losses of an unrolled batch, and their gradients.
#[derive(Debug)]
pub(super) struct Judged {
    /// By step, the sum over the rows that were judged, in nats, not weighted.
    pub(super) sums: Vec<f64>,
    /// By step, the sum of what the gradient is of, not weighted by the step's share.
    pub(super) wholes: Vec<f64>,
    /// By step, how many these are.
    pub(super) rows: Vec<usize>,
    /// By step, of the outputs, `[queries, hidden]`.
    pub(super) outputs: Vec<Vec<f32>>,
    /// Of the norm's weight, if there is one.
    pub(super) norm: Vec<f32>,
}

impl Output<'_> {
    /// Judges the outputs of each step, `[queries, hidden]` before the norm, of which every row's loss
    /// counts for the step's share.
    pub(super) fn judge(&self, batch: &Batch, outputs: &[&Mat], shares: &[f64]) -> Result<Judged> {
        let (queries, width) = (batch.rows.len(), self.lm_head.cols());
        let mut judged = Judged {
            sums: vec![0.0; outputs.len()],
            wholes: vec![0.0; outputs.len()],
            rows: vec![0; outputs.len()],
            outputs: vec![vec![0.0; queries * width]; outputs.len()],
            norm: vec![0.0; self.norm.map_or(0, Mat::cols)],
        };
        // Step 0 is judged by every law that a later step is judged by.
        let needed: Vec<usize> = batch.judged(0).map(|(_, law)| law).collect();
        for some in needed.chunks(CHUNK) {
            let finals = batch.finals.gather(some.iter().copied())?;
            let laws = self.laws(&finals)?;
            for (step, share) in shares.iter().enumerate() {
                let here = batch.judged(step).filter_map(|(query, law)| {
                    let place = some.binary_search(&law).ok()?;
                    Some((query, place))
                });
                let (queries, places): (Vec<_>, Vec<_>) = here.unzip();
                let rows = Rows {
                    outputs: &outputs[step].gather(queries.iter().copied())?,
                    laws: &laws,
                    finals: &finals,
                    places: &places,
                    share: single(*share),
                };
                let (sum, whole, d) = self.loss(&rows, &mut judged.norm)?;
                judged.sums[step] += sum;
                judged.wholes[step] += whole;
                judged.rows[step] += queries.len();
                for (query, d) in queries.iter().zip(d.chunks(width)) {
                    judged.outputs[step][query * width..(query + 1) * width].copy_from_slice(d);
                }
            }
        }
        Ok(judged)
    }

    /// The law's part of the loss of some rows, the whole, and the gradient of their outputs; that of the
    /// norm's weight is added.
    fn loss(&self, rows: &Rows<'_>, norm: &mut [f32]) -> Result<(f64, f64, Vec<f32>)> {
        let (width, vocab) = (self.lm_head.cols(), self.lm_head.rows());
        let mut d = vec![0.0; rows.places.len() * width];
        if d.is_empty() {
            return Ok((0.0, 0.0, d));
        }
        let normed = self.norm.map(|weight| {
            let normed = Normed::of(&rows.outputs.view(), width, self.eps);
            (normed, weight.view())
        });
        let input = match &normed {
            Some((normed, weight)) => Mat::new(width, normed.weighted(weight))?,
            None => rows.outputs.clone(),
        };
        let share = match self.norm {
            Some(_) => rows.share,
            None => rows.share * single(LAW),
        };
        let logits = input.times_t(self.lm_head)?;
        let mut back = vec![0.0; rows.places.len() * vocab];
        let (said, judged) = (logits.view(), back.par_chunks_mut(vocab));
        let judged = judged.zip(said.par_chunks(vocab)).zip(rows.places);
        let losses = judged.map(|((back, logits), place)| {
            let law = &rows.laws[place * vocab..(place + 1) * vocab];
            let total = softmax(logits, back);
            for (back, p) in back.iter_mut().zip(law) {
                *back = share * (*back - p);
            }
            f64::from(total) - f64::from(dot(logits, law))
        });
        let losses: Vec<f64> = losses.collect();
        let back = Mat::new(vocab, back)?.times(self.lm_head)?;
        let law = losses.iter().sum();
        let Some((normed, weight)) = &normed else {
            d.copy_from_slice(&back.view());
            let whole = LAW * law + rows.regress(&mut d);
            return Ok((law, whole, d));
        };
        normed.weight_gradient(&back.view(), norm);
        normed.input_gradient(&back.view(), weight, &mut d);
        Ok((law, law, d))
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
        let all = outputs.view();
        let mut guesses = Vec::with_capacity(outputs.rows());
        for rows in all.chunks(CHUNK * width) {
            let normed = match self.norm {
                Some(norm) => Normed::of(rows, width, self.eps).weighted(&norm.view()),
                None => rows.to_vec(),
            };
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
    /// What the laws are of, `[laws, hidden]`.
    finals: &'a Mat,
    /// The law of each row.
    places: &'a [usize],
    /// Factor of every row's loss.
    share: f32,
}

impl Rows<'_> {
    /// How far outputs are from the target's features, the mean over a row's values; the gradient is added.
    fn regress(&self, d: &mut [f32]) -> f64 {
        let width = self.outputs.cols();
        #[expect(clippy::cast_precision_loss, reason = "a width is far below 2^24")]
        let count = width as f32;
        let (outputs, finals) = (self.outputs.view(), self.finals.view());
        let mut sum = 0.0;
        let rows = d.chunks_mut(width).zip(outputs.chunks(width));
        for ((d, output), place) in rows.zip(self.places) {
            let right = &finals[place * width..(place + 1) * width];
            for ((d, x), y) in d.iter_mut().zip(output).zip(right) {
                let off = x - y;
                *d += self.share / count * off.clamp(-1.0, 1.0);
                let near = off.abs().min(1.0);
                sum += f64::from((near * near / 2.0 + (off.abs() - near)) / count);
            }
        }
        sum
    }
}

fn largest(row: &[f32]) -> usize {
    let best = row.iter().enumerate();
    let best = best.fold((0, f32::NEG_INFINITY), |best, (i, x)| {
        if *x > best.1 { (i, *x) } else { best }
    });
    best.0
}
