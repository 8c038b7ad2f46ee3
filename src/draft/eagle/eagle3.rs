//! EAGLE-3 (Li et al. 2025, arXiv 2503.01840): tokens are guessed directly, from several streams of
//! the target.
//!
//! ```text
//! g_i = fc([tap; tap; ...])                where the target has been; no fc for the final feature
//! h_i = g_i, or the o of the row before    where it has not
//! a_i = attention([input_layernorm(embed(t_{i+1})); hidden_norm(h_i)])
//! r_i = h_i + a_i                          h un-normed, or hidden_norm(h_i) + a_i
//! o_i = r_i + mlp(post_attention_layernorm(r_i)), further layers as in the target
//! lm_head(norm(o_i))                       guesses t_{i+2}, over a vocabulary of its own
//! ```
//!
//! What is fed back is o before the norm, or after it in EAGLE-3.1.

use super::{
    config::Feature,
    head::{Network, side_by_side},
    parts::{Norm, Parts},
};
use crate::{
    Matrix,
    cache::Txn,
    error::Result,
    kernels::Exec,
    model::{Block, Linear, Pass, Scratch},
};

/// The network of an EAGLE-3 head.
#[derive(Clone, Debug)]
pub(super) struct Eagle3 {
    /// Of the concatenated taps, before `fc`.
    input_norm: Option<Norm>,
    /// Of each tap, before they are concatenated.
    fc_norm: Vec<Norm>,
    fc: Option<Linear>,
    hidden: usize,
    /// Of the embedding.
    input_layernorm: Norm,
    hidden_norm: Norm,
    norm_before_residual: bool,
    first: Block,
    further: Vec<Block>,
    norm: Option<Norm>,
    norm_output: bool,
}

impl Eagle3 {
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Self> {
        let config = parts.config().clone();
        let taps = match &config.feature {
            Feature::Taps(taps) if config.fc_norm => taps.len(),
            _ => 0,
        };
        let fc_norm = (0..taps).map(|tap| parts.norm(&format!("fc_norm.{tap}.weight")));
        let fc_norm = fc_norm.collect::<Result<_>>()?;
        let fc = config.fc.then(|| parts.linear("fc", config.fc_bias));
        Ok(Self {
            fc: fc.transpose()?,
            input_norm: parts.norm_if(config.norm_before_fc, "input_norm.weight")?,
            fc_norm,
            hidden: config.hidden,
            input_layernorm: parts.norm("layers.0.input_layernorm.weight")?,
            hidden_norm: parts.norm("layers.0.hidden_norm.weight")?,
            norm_before_residual: config.norm_before_residual,
            first: parts.block(0, false)?,
            further: parts.layers(1)?,
            norm: parts.norm_if(config.norm_before_head, "norm.weight")?,
            norm_output: config.norm_output,
        })
    }

    /// The norm of each tap, `[rows, taps * target_hidden]`.
    fn norm_taps(&self, taps: &Matrix) -> Matrix {
        let width = taps.cols() / self.fc_norm.len();
        let mut out = taps.clone();
        for (i, norm) in self.fc_norm.iter().enumerate() {
            let columns = i * width..(i + 1) * width;
            let tap = (0..taps.rows()).flat_map(|row| &taps.row(row)[columns.clone()]);
            let normed = norm.of(&Matrix::new(width, tap.copied().collect()));
            for row in 0..out.rows() {
                out.row_mut(row)[columns.clone()].copy_from_slice(normed.row(row));
            }
        }
        out
    }
}

impl Network for Eagle3 {
    fn fuse(&self, taps: Matrix, exec: Exec) -> Matrix {
        let taps = match &self.input_norm {
            Some(norm) => norm.of(&taps),
            None if !self.fc_norm.is_empty() => self.norm_taps(&taps),
            None => taps,
        };
        let Some(fc) = &self.fc else {
            return taps;
        };
        let mut g = Matrix::zeros(taps.rows(), self.hidden);
        fc.apply(taps.as_slice(), g.as_mut_slice(), exec);
        g
    }

    fn forward(&self, embedded: Matrix, h: &Matrix, txn: &mut Txn<'_>, pass: &Pass<'_>) -> Matrix {
        let normed = self.hidden_norm.of(h);
        let input = side_by_side(&self.input_layernorm.of(&embedded), &normed);
        let mut x = if self.norm_before_residual {
            normed
        } else {
            h.clone()
        };
        let mut scratch = Scratch::new(pass.shape, x.rows());
        let first = (0, input.as_slice());
        self.first
            .forward_from(first, x.as_mut_slice(), txn, pass, &mut scratch);
        for (i, layer) in (1..).zip(&self.further) {
            layer.forward(i, x.as_mut_slice(), txn, pass, &mut scratch);
        }
        x
    }

    fn before_head(&self, o: &Matrix) -> Matrix {
        self.norm.as_ref().map_or(o.clone(), |norm| norm.of(o))
    }

    fn fed_back(&self, o: Matrix) -> Matrix {
        match &self.norm {
            Some(norm) if self.norm_output => norm.of(&o),
            _ => o,
        }
    }
}
