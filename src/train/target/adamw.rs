//! AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), with moments that can be saved.

use candle_core::{Tensor, Var};
use rayon::prelude::*;

use crate::error::Result;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.95;
const EPS: f32 = 1e-8;
/// Of matrices; norms do not decay.
const DECAY: f32 = 0.1;

/// Means of gradients and of their squares, by parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdamW {
    pub(super) mean: Vec<Vec<f32>>,
    pub(super) square: Vec<Vec<f32>>,
    /// Steps taken.
    pub(super) steps: i32,
}

impl AdamW {
    pub(super) fn new(vars: &[Var]) -> Self {
        let zeros: Vec<_> = vars.iter().map(|var| vec![0.0; var.elem_count()]).collect();
        Self {
            mean: zeros.clone(),
            square: zeros,
            steps: 0,
        }
    }

    /// Moves `vars` against `gradients`, which are multiplied by `shrink` before.
    pub(super) fn step(
        &mut self,
        vars: &[Var],
        gradients: &[Vec<f32>],
        rate: f32,
        shrink: f32,
    ) -> Result<()> {
        self.steps = self.steps.saturating_add(1);
        let (first, second) = (1.0 - BETA1.powi(self.steps), 1.0 - BETA2.powi(self.steps));
        let moments = self.mean.par_iter_mut().zip(&mut self.square);
        let all = vars.par_iter().zip(gradients).zip(moments);
        let moved = all.map(|((var, gradient), (mean, square))| {
            let decay = if var.rank() > 1 { DECAY } else { 0.0 };
            let mut values = var.flatten_all()?.to_vec1::<f32>()?;
            let moments = mean.iter_mut().zip(square);
            for ((x, gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(moments) {
                let gradient = gradient * shrink;
                *mean += (1.0 - BETA1) * (gradient - *mean);
                *square += (1.0 - BETA2) * (gradient * gradient - *square);
                let step = (*mean / first) / ((*square / second).sqrt() + EPS);
                *x -= rate * (step + decay * *x);
            }
            var.set(&Tensor::from_vec(values, var.shape(), var.device())?)
        });
        Ok(moved.collect::<candle_core::Result<()>>()?)
    }
}
