//! The losses of a batch, and their gradient.

use super::{
    net::{Gradients, Part},
    objective::Output,
    unroll::Unroll,
};
use crate::{draft::eagle::Version, error::Result};

/// The losses of a batch.
#[derive(Debug)]
pub(super) struct Losses {
    /// Mean of the law's over the rows of step 0, in nats.
    pub(super) first: f64,
    /// Rows judged at step 0.
    pub(super) rows: usize,
    /// What the gradients are of: the sum over steps, weighted.
    pub(super) total: f64,
    pub(super) gradients: Gradients,
}

impl Unroll<'_> {
    /// Losses and gradients over `steps` steps, of which step k counts for `decay` to the k-th.
    pub(super) fn losses(&self, steps: usize, decay: f64) -> Result<Losses> {
        let pass = self.forward(steps)?;
        let outputs: Vec<_> = (0..steps).map(|step| pass.output(step)).collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
        let first = 1.0 / self.batch.rows.len().max(1) as f64;
        let shares = std::iter::successors(Some(first), |share| Some(share * decay));
        let shares: Vec<f64> = shares.take(steps).collect();
        let judged = self.head().judge(self.batch, &outputs, &shares)?;
        let mut gradients = Gradients::zeros(self.form);
        super::mat::add(gradients.get_mut(Part::Norm), &judged.norm);
        let (sums, rows) = (&judged.sums, judged.rows[0]);
        #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
        let mean = sums[0] / rows.max(1) as f64;
        let total = judged.wholes.iter().zip(&shares);
        let total = total.map(|(whole, share)| whole * share);
        let total = total.sum();
        self.backward(&pass, judged.outputs, &mut gradients)?;
        Ok(Losses {
            first: mean,
            rows,
            total,
            gradients,
        })
    }

    /// The output head.
    pub(super) fn head(&self) -> Output<'_> {
        Output {
            norm: (self.form.version == Version::Eagle3).then(|| self.weights.get(Part::Norm)),
            lm_head: &self.frozen.lm_head,
            eps: self.form.eps,
        }
    }
}
