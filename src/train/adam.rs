//! The optimiser: AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) without decay, at a rate that
//! warms up and then falls along a cosine.

use rayon::prelude::*;

use super::{
    mat::{CHUNK, Mat},
    net::{Form, Gradients, Part, Weights},
};
use crate::error::Result;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.95;
const EPS: f32 = 1e-8;
/// Share of the steps in which the rate rises.
const WARM_UP: f64 = 0.04;
/// Fewest steps in which it does.
const LEAST_WARM_UP: f64 = 5.0;

/// Means of gradients and of their squares, by [`Part`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Adam {
    pub(super) mean: Vec<Vec<f32>>,
    pub(super) square: Vec<Vec<f32>>,
    /// Steps taken.
    pub(super) steps: u64,
}

impl Adam {
    pub(super) fn new(form: &Form) -> Self {
        let zeros = |part| {
            let (rows, cols) = form.shape(part);
            vec![0.0; rows * cols]
        };
        let all: Vec<_> = Part::ALL.into_iter().map(zeros).collect();
        Self {
            mean: all.clone(),
            square: all,
            steps: 0,
        }
    }

    /// Moves `weights` against `gradients`, which are multiplied by `shrink` before.
    pub(super) fn step(
        &mut self,
        weights: &mut Weights,
        gradients: &Gradients,
        rate: f32,
        shrink: f32,
    ) -> Result<()> {
        self.steps += 1;
        let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let (first, second) = (1.0 - BETA1.powi(steps), 1.0 - BETA2.powi(steps));
        for part in Part::ALL {
            let at = part as usize;
            let (old, cols) = (weights.get(part), weights.get(part).cols());
            let old = old.view();
            let mut new = vec![0.0; old.len()];
            let values = new.par_chunks_mut(CHUNK);
            let values = values
                .zip(old.par_chunks(CHUNK))
                .zip(gradients.get(part).par_chunks(CHUNK))
                .zip(self.mean[at].par_chunks_mut(CHUNK))
                .zip(self.square[at].par_chunks_mut(CHUNK));
            values.for_each(|((((new, old), gradient), mean), square)| {
                let values = new.iter_mut().zip(old).zip(gradient);
                for (((new, old), gradient), (mean, square)) in
                    values.zip(mean.iter_mut().zip(square))
                {
                    let gradient = gradient * shrink;
                    *mean += (1.0 - BETA1) * (gradient - *mean);
                    *square += (1.0 - BETA2) * (gradient * gradient - *square);
                    *new = old - rate * (*mean / first) / ((*square / second).sqrt() + EPS);
                }
            });
            drop(old);
            weights.set(part, Mat::new(cols, new)?);
        }
        Ok(())
    }
}

/// The factor of the rate at step `at` of `all`: up to 1, then down to `least` along a cosine.
pub(super) fn schedule(at: usize, all: usize, least: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "numbers of steps")]
    let (at, all) = (at as f64, all as f64);
    let warm = (WARM_UP * all).max(LEAST_WARM_UP);
    let cosine = 0.5 * (1.0 + (std::f64::consts::PI * (at / all).min(1.0)).cos());
    ((at + 1.0) / warm).min(1.0) * (cosine * (1.0 - least) + least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_and_falls() {
        assert!(schedule(0, 1000, 0.3) < 0.03);
        assert!(schedule(39, 1000, 0.3) > 0.99);
        assert!((schedule(500, 1000, 0.3) - 0.65).abs() < 1e-9);
        assert!((schedule(1000, 1000, 0.3) - 0.3).abs() < 1e-9);
    }
}
