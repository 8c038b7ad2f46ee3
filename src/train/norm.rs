//! RMS norms and their gradients.
//!
//! ```text
//! r = 1 / sqrt(mean(x²) + eps)      x̂ = r x      y = w x̂
//! dw = Σ_rows dy x̂      dx̂ = w dy      dx = r (dx̂ - x̂ mean(dx̂ x̂))
//! ```

use rayon::prelude::*;

/// Rows without their length: what a norm keeps for its gradient.
#[derive(Clone, Debug, Default)]
pub(super) struct Normed {
    /// x̂, `[rows, width]`.
    pub(super) unit: Vec<f32>,
    /// r of each row.
    pub(super) scale: Vec<f32>,
}

impl Normed {
    /// The rows of `x`.
    pub(super) fn of(x: &[f32], width: usize, eps: f32) -> Self {
        let mut unit = vec![0.0; x.len()];
        let rows = unit.par_chunks_mut(width).zip(x.par_chunks(width));
        let scale = rows.map(|(unit, x)| {
            let mean = x.iter().map(|x| x * x).sum::<f32>() / width_of(width);
            let scale = 1.0 / (mean + eps).sqrt();
            for (unit, x) in unit.iter_mut().zip(x) {
                *unit = x * scale;
            }
            scale
        });
        let scale = scale.collect();
        Self { unit, scale }
    }

    /// `w x̂`.
    pub(super) fn weighted(&self, weight: &[f32]) -> Vec<f32> {
        let mut y = self.unit.clone();
        y.par_chunks_mut(weight.len()).for_each(|row| {
            for (y, w) in row.iter_mut().zip(weight) {
                *y *= w;
            }
        });
        y
    }

    /// Adds the gradient of the weight to `dw`.
    pub(super) fn weight_gradient(&self, dy: &[f32], dw: &mut [f32]) {
        let width = dw.len();
        for (dy, unit) in dy.chunks(width).zip(self.unit.chunks(width)) {
            for ((dw, dy), unit) in dw.iter_mut().zip(dy).zip(unit) {
                *dw += dy * unit;
            }
        }
    }

    /// Adds the gradient of the input to `dx`.
    pub(super) fn input_gradient(&self, dy: &[f32], weight: &[f32], dx: &mut [f32]) {
        let width = weight.len();
        let rows = dx.par_chunks_mut(width).zip(dy.par_chunks(width));
        let rows = rows.zip(self.unit.par_chunks(width)).zip(&self.scale);
        rows.for_each(|(((dx, dy), unit), scale)| {
            let along = dy.iter().zip(weight).zip(unit);
            let along: f32 = along.map(|((dy, w), unit)| dy * w * unit).sum();
            let along = along / width_of(width);
            for (((dx, dy), w), unit) in dx.iter_mut().zip(dy).zip(weight).zip(unit) {
                *dx += scale * (dy * w - unit * along);
            }
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "a width is far below 2^24")]
fn width_of(width: usize) -> f32 {
    width as f32
}
