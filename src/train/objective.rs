//! What a head is trained for: the target's law over the tokens that the head has rows for.
//!
//! ```text
//! p = softmax(W f)          of the target, W the rows of its output head, f its normed last stream
//! loss = -Σ p ln softmax(W ô)            gradient of the logits: softmax - p
//! ```
//!
//! Neither law is ever stored: both are made from `hidden` values a row when they are needed, in chunks
//! of rows, and the gradient takes the place of the logits. So memory does not grow with the vocabulary
//! times the data.

use rayon::prelude::*;

use super::{mat::Mat, norm::Normed};
use crate::error::Result;

/// Rows whose logits are in memory at once.
const CHUNK: usize = 1024;

/// The rows of one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// Outputs of the head before the norm, `[rows, hidden]`.
    pub(super) outputs: &'a Mat,
    /// The target's laws, `[rows, draft_vocab]`.
    pub(super) laws: &'a Mat,
    /// Of the norm before the output head.
    pub(super) norm: &'a Mat,
    pub(super) lm_head: &'a Mat,
    pub(super) eps: f32,
    /// Factor of every row's loss.
    pub(super) weight: f32,
}

/// The loss of rows, and its gradients.
#[derive(Debug)]
pub(super) struct Loss {
    /// The sum over rows, without the factor.
    pub(super) sum: f64,
    /// Of the outputs, `[rows, hidden]`.
    pub(super) outputs: Vec<f32>,
    /// Of the norm's weight.
    pub(super) norm: Vec<f32>,
}

impl Rows<'_> {
    pub(super) fn loss(&self) -> Result<Loss> {
        let (rows, width) = (self.outputs.rows(), self.outputs.cols());
        let mut loss = Loss {
            sum: 0.0,
            outputs: vec![0.0; rows * width],
            norm: vec![0.0; width],
        };
        let (outputs, norm) = (self.outputs.view(), self.norm.view());
        for from in (0..rows).step_by(CHUNK) {
            let to = rows.min(from + CHUNK);
            let normed = Normed::of(&outputs[from * width..to * width], width, self.eps);
            let input = Mat::new(width, normed.weighted(&norm))?;
            let (sum, logits) = self.chunk(&input, from, to)?;
            loss.sum += sum;
            let d = logits.times(self.lm_head)?;
            normed.weight_gradient(&d.view(), &mut loss.norm);
            let out = &mut loss.outputs[from * width..to * width];
            normed.input_gradient(&d.view(), &norm, out);
        }
        Ok(loss)
    }

    /// The loss of some rows, and the gradient of their logits.
    fn chunk(&self, input: &Mat, from: usize, to: usize) -> Result<(f64, Mat)> {
        let vocab = self.lm_head.rows();
        let mut logits = input.times_t(self.lm_head)?.view().to_vec();
        let laws = self.laws.view();
        let rows = logits
            .par_chunks_mut(vocab)
            .zip(laws[from * vocab..to * vocab].par_chunks(vocab));
        let losses = rows.map(|(logits, law)| {
            let (expected, total) = (expectation(logits, law), softmax(logits));
            for (logit, p) in logits.iter_mut().zip(law) {
                *logit = self.weight * (*logit - p);
            }
            f64::from(total) - expected
        });
        let losses: Vec<f64> = losses.collect();
        Ok((losses.iter().sum(), Mat::new(vocab, logits)?))
    }
}

/// Σ p z, of laws that sum to 1.
fn expectation(logits: &[f32], law: &[f32]) -> f64 {
    let (z, z_rest) = logits.as_chunks::<8>();
    let (p, p_rest) = law.as_chunks::<8>();
    let mut sums = [0.0_f32; 8];
    for (z, p) in z.iter().zip(p) {
        for ((sum, z), p) in sums.iter_mut().zip(z).zip(p) {
            *sum += z * p;
        }
    }
    let rest = z_rest.iter().zip(p_rest).map(|(z, p)| z * p);
    f64::from(sums.iter().sum::<f32>() + rest.sum::<f32>())
}

/// The softmax in place; the logarithm of what it was divided by.
fn softmax(logits: &mut [f32]) -> f32 {
    let peak = logits.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
    let mut total = 0.0;
    for x in logits.iter_mut() {
        *x = (*x - peak).exp();
        total += *x;
    }
    logits.iter_mut().for_each(|x| *x /= total);
    peak + total.ln()
}

/// The target's laws at rows of its normed last stream, `[rows, draft_vocab]`.
pub(super) fn laws(finals: &Mat, lm_head: &Mat) -> Result<Mat> {
    let vocab = lm_head.rows();
    let mut logits = finals.times_t(lm_head)?.view().to_vec();
    logits.par_chunks_mut(vocab).for_each(|row| {
        softmax(row);
    });
    Mat::new(vocab, logits)
}

/// The row of the output head that each output makes the likeliest, of equals the lowest.
pub(super) fn guesses(outputs: &Mat, norm: &Mat, lm_head: &Mat, eps: f32) -> Result<Vec<usize>> {
    let width = outputs.cols();
    let (all, norm) = (outputs.view(), norm.view());
    let mut guesses = Vec::with_capacity(outputs.rows());
    for rows in all.chunks(CHUNK * width) {
        let normed = Normed::of(rows, width, eps).weighted(&norm);
        let logits = Mat::new(width, normed)?.times_t(lm_head)?;
        let logits = logits.view();
        let best = |row: &[f32]| {
            let best = row
                .iter()
                .enumerate()
                .fold((0, f32::NEG_INFINITY), |best, (i, x)| {
                    if *x > best.1 { (i, *x) } else { best }
                });
            best.0
        };
        guesses.par_extend(logits.par_chunks(lm_head.rows()).map(best));
    }
    Ok(guesses)
}
