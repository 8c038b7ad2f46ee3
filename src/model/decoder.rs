//! The llama decoder: embedding, layers, final norm, head.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    block::{Block, Pass, Scratch, Shape},
    limits::Limits,
    linear::Linear,
    plan::Plan,
    rows::Rows,
};
use crate::{
    Matrix, TokenId,
    cache::Txn,
    error::Result,
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
    /// What the network can be fed, with keys and values in host memory.
    pub(super) fn limits(&self) -> Limits<'static> {
        Limits {
            vocab: self.vocab,
            layers: self.layers.len(),
            width: self.shape.kv_heads * self.shape.head_dim,
            device: None,
        }
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
                &layer.self_attn.q_proj,
                &layer.self_attn.k_proj,
                &layer.self_attn.v_proj,
                &layer.self_attn.o_proj,
                &layer.mlp.gate_proj,
                &layer.mlp.up_proj,
                &layer.mlp.down_proj,
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
        let hidden = self.shape.hidden;
        self.layers.len() * self.shape.work(hidden) + self.vocab * hidden
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
