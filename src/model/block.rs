//! One decoder layer.

use super::{
    attention::{AttentionScratch, SelfAttention},
    mlp::{Mlp, MlpScratch},
    plan::Plan,
};
use crate::{
    cache::Txn,
    kernels::{Exec, Keys, Rope, rms_norm},
};

/// Widths that a layer is built from.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) eps: f32,
    pub(crate) rope: Rope,
}

impl Shape {
    /// Width of a row's queries.
    pub(crate) fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of a row's keys, and of its values.
    pub(crate) fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Multiplications of a row in a layer whose attention reads `input` values, attention aside.
    pub(crate) fn work(&self, input: usize) -> usize {
        let (q, kv) = (self.q_width(), self.kv_width());
        input * (q + 2 * kv) + self.hidden * (q + 3 * self.intermediate)
    }
}

/// `layers.N`. The first layer of an EAGLE-1 head has no input norm.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) input_layernorm: Option<Vec<f32>>,
    pub(crate) self_attn: SelfAttention,
    pub(crate) post_attention_layernorm: Vec<f32>,
    pub(crate) mlp: Mlp,
}

/// What a layer needs beside its weights and its input.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) plan: &'a Plan,
    pub(crate) keys: &'a [Keys<'a>],
    pub(crate) exec: Exec,
}

/// Intermediate values, `[rows, width]` each.
#[derive(Debug)]
pub(crate) struct Scratch {
    normed: Vec<f32>,
    delta: Vec<f32>,
    attention: AttentionScratch,
    mlp: MlpScratch,
}

impl Scratch {
    pub(crate) fn new(shape: &Shape, rows: usize) -> Self {
        let zeros = |width: usize| vec![0.0; rows * width];
        Self {
            normed: zeros(shape.hidden),
            delta: zeros(shape.hidden),
            attention: AttentionScratch::new(shape.q_width(), shape.kv_width(), rows),
            mlp: MlpScratch::new(shape.intermediate, rows),
        }
    }
}

impl Block {
    /// Adds the layer's two residuals to `x`, `[rows, hidden]`, and writes the rows' keys and
    /// values as `layer` of the cache.
    pub(crate) fn forward(
        &self,
        layer: usize,
        x: &mut [f32],
        txn: &mut Txn<'_>,
        pass: &Pass<'_>,
        s: &mut Scratch,
    ) {
        let input = match &self.input_layernorm {
            Some(weight) => {
                rms_norm(x, weight, pass.shape.eps, &mut s.normed);
                &s.normed
            }
            None => &*x,
        };
        let (delta, scratch) = (&mut s.delta, &mut s.attention);
        self.self_attn
            .forward((layer, input), delta, txn, pass, scratch);
        self.rest(x, pass, s);
    }

    /// The layer with an attention that reads `input`, `[rows, in]`, in place of `x`.
    pub(crate) fn forward_from(
        &self,
        (layer, input): (usize, &[f32]),
        x: &mut [f32],
        txn: &mut Txn<'_>,
        pass: &Pass<'_>,
        s: &mut Scratch,
    ) {
        let (delta, scratch) = (&mut s.delta, &mut s.attention);
        self.self_attn
            .forward((layer, input), delta, txn, pass, scratch);
        self.rest(x, pass, s);
    }

    /// What follows the attention, whose result is `delta`.
    fn rest(&self, x: &mut [f32], pass: &Pass<'_>, s: &mut Scratch) {
        add(x, &s.delta);
        let weight = &self.post_attention_layernorm;
        rms_norm(x, weight, pass.shape.eps, &mut s.normed);
        self.mlp
            .forward(&s.normed, &mut s.delta, pass.exec, &mut s.mlp);
        add(x, &s.delta);
    }
}

fn add(x: &mut [f32], delta: &[f32]) {
    for (x, d) in x.iter_mut().zip(delta) {
        *x += d;
    }
}
