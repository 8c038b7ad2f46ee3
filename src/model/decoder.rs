//! The llama decoder: embedding, layers, final norm, head.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    block::{Block, Pass, Scratch, Shape},
    linear::Linear,
    plan::Plan,
    rows::Rows,
};
use crate::{
    Matrix, TokenId,
    cache::Txn,
    error::{ErrorKind, Result},
    kernels::{Exec, Format, rms_norm},
};

/// The network. `head` is `embed_tokens` where they are tied.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    pub(super) shape: Shape,
    pub(super) vocab: usize,
    pub(super) context: usize,
    pub(super) embed_tokens: Arc<Linear>,
    pub(super) layers: Vec<Block>,
    pub(super) norm: Vec<f32>,
    pub(super) lm_head: Arc<Linear>,
}

/// What a pass gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// `[wanted rows, vocab]`, in the order of [`Rows::wanted`].
    pub logits: Matrix,
    /// `[rows, taps * hidden]`: the residual streams asked for, side by side; `None` without taps.
    pub taps: Option<Matrix>,
}

impl Decoder {
    pub(super) fn check(&self, rows: &Rows, txn: &Txn<'_>, taps: &[usize]) -> Result<()> {
        if let Some(token) = rows.tokens().iter().find(|t| **t as usize >= self.vocab) {
            let vocab = self.vocab;
            return Err(
                ErrorKind::Rows(format!("token {token}, accepted are ids below {vocab}")).into(),
            );
        }
        let width = self.shape.kv_heads * self.shape.head_dim;
        if txn.width() != width {
            let found = txn.width();
            return Err(ErrorKind::Cache(format!(
                "keys of {found} values, accepted are the network's {width}"
            ))
            .into());
        }
        if let Some(tap) = taps.iter().find(|tap| **tap > self.layers.len()) {
            let layers = self.layers.len();
            return Err(ErrorKind::Setting {
                name: "tap",
                value: tap.to_string(),
                accepted: format!("accepted are 0 (embeddings) to {layers} (after the last layer)"),
            }
            .into());
        }
        Ok(())
    }

    pub(super) fn forward(
        &self,
        rows: &Rows,
        txn: &mut Txn<'_>,
        taps: &[usize],
        exec: Exec,
    ) -> Result<Forward> {
        let shape = &self.shape;
        let plan = Plan::new(rows, txn, &shape.rope, self.context)?;
        let keys = plan.keys();
        let pass = Pass {
            shape,
            plan: &plan,
            keys: &keys,
            exec,
        };
        let mut scratch = Scratch::new(shape, rows.len());
        let mut tapped =
            (!taps.is_empty()).then(|| Matrix::zeros(rows.len(), taps.len() * shape.hidden));

        let mut x = self.embed(rows.tokens());
        for (i, layer) in self.layers.iter().enumerate() {
            tap(i, &x, taps, tapped.as_mut());
            layer.forward(i, x.as_mut_slice(), txn, &pass, &mut scratch);
        }
        tap(self.layers.len(), &x, taps, tapped.as_mut());

        let mut last = x.gather(rows.wanted().iter().copied());
        self.final_norm(&mut last);
        Ok(Forward {
            logits: self.head(&last, exec),
            taps: tapped,
        })
    }

    pub(super) fn embed(&self, tokens: &[TokenId]) -> Matrix {
        let mut x = Matrix::zeros(tokens.len(), self.shape.hidden);
        for (i, token) in tokens.iter().enumerate() {
            self.embed_tokens.row(*token as usize, x.row_mut(i));
        }
        x
    }

    pub(super) fn final_norm(&self, x: &mut Matrix) {
        let rows = x.clone();
        rms_norm(
            rows.as_slice(),
            &self.norm,
            self.shape.eps,
            x.as_mut_slice(),
        );
    }

    pub(super) fn head(&self, normed: &Matrix, exec: Exec) -> Matrix {
        let mut logits = Matrix::zeros(normed.rows(), self.vocab);
        self.lm_head
            .apply(normed.as_slice(), logits.as_mut_slice(), exec);
        logits
    }

    /// Matrices by format: how many, and their bytes.
    pub(super) fn formats(&self) -> BTreeMap<Format, (usize, usize)> {
        let tied = Arc::ptr_eq(&self.embed_tokens, &self.lm_head);
        let top = [&*self.embed_tokens, &*self.lm_head];
        let layers = self.layers.iter().flat_map(|layer| {
            [
                &layer.q_proj,
                &layer.k_proj,
                &layer.v_proj,
                &layer.o_proj,
                &layer.gate_proj,
                &layer.up_proj,
                &layer.down_proj,
            ]
        });
        let mut formats = BTreeMap::<_, (usize, usize)>::new();
        for matrix in top.into_iter().skip(usize::from(tied)).chain(layers) {
            let (count, bytes) = formats.entry(matrix.weight().format()).or_default();
            *count += 1;
            *bytes += matrix.weight().bytes();
        }
        formats
    }

    /// Multiplications of a row of a pass, attention aside.
    pub(super) fn work(&self) -> usize {
        let Shape {
            hidden,
            intermediate,
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
        let layer = hidden * (2 * (heads + kv_heads) * head_dim + 3 * intermediate);
        self.layers.len() * layer + self.vocab * hidden
    }
}

/// Copies the residual stream entering layer `at` to the places that ask for it.
fn tap(at: usize, x: &Matrix, taps: &[usize], tapped: Option<&mut Matrix>) {
    let Some(tapped) = tapped else { return };
    let asked = taps.iter().enumerate().filter(|(_, tap)| **tap == at);
    for (place, _) in asked {
        let columns = place * x.cols()..(place + 1) * x.cols();
        for row in 0..x.rows() {
            tapped.row_mut(row)[columns.clone()].copy_from_slice(x.row(row));
        }
    }
}
