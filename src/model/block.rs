//! One decoder layer.

use super::{linear::Linear, plan::Plan};
use crate::{
    cache::Txn,
    kernels::{Attention, Exec, Keys, Rope, rms_norm, silu_mul},
};

/// Widths that a layer is built from.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) eps: f32,
    pub(super) rope: Rope,
}

/// `model.layers.N`.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) input_layernorm: Vec<f32>,
    pub(super) q_proj: Linear,
    pub(super) k_proj: Linear,
    pub(super) v_proj: Linear,
    pub(super) o_proj: Linear,
    pub(super) post_attention_layernorm: Vec<f32>,
    pub(super) gate_proj: Linear,
    pub(super) up_proj: Linear,
    pub(super) down_proj: Linear,
}

/// What a layer needs beside its weights and its input.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) shape: &'a Shape,
    pub(super) plan: &'a Plan,
    pub(super) keys: &'a [Keys<'a>],
    pub(super) exec: Exec,
}

/// Intermediate values, `[rows, width]` each.
#[derive(Debug)]
pub(super) struct Scratch {
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    delta: Vec<f32>,
}

impl Scratch {
    pub(super) fn new(shape: &Shape, rows: usize) -> Self {
        let zeros = |width: usize| vec![0.0; rows * width];
        let (q, kv) = (
            shape.heads * shape.head_dim,
            shape.kv_heads * shape.head_dim,
        );
        Self {
            normed: zeros(shape.hidden),
            q: zeros(q),
            k: zeros(kv),
            v: zeros(kv),
            attended: zeros(q),
            gate: zeros(shape.intermediate),
            up: zeros(shape.intermediate),
            delta: zeros(shape.hidden),
        }
    }
}

impl Block {
    /// Adds the layer's two residuals to `x`, `[rows, hidden]`, and writes the rows' keys and
    /// values as `layer` of the cache.
    pub(super) fn forward(
        &self,
        layer: usize,
        x: &mut [f32],
        txn: &mut Txn<'_>,
        pass: &Pass<'_>,
        s: &mut Scratch,
    ) {
        let Pass { shape, exec, .. } = *pass;
        rms_norm(x, &self.input_layernorm, shape.eps, &mut s.normed);
        self.q_proj.apply(&s.normed, &mut s.q, exec);
        self.k_proj.apply(&s.normed, &mut s.k, exec);
        self.v_proj.apply(&s.normed, &mut s.v, exec);
        let angles = pass.plan.angles().chunks_exact(shape.head_dim);
        let rows = angles.zip(pass.plan.slots()).enumerate();
        let (q, kv) = (
            shape.heads * shape.head_dim,
            shape.kv_heads * shape.head_dim,
        );
        for (i, (angles, slot)) in rows {
            shape.rope.turn(&mut s.q[i * q..(i + 1) * q], angles);
            let k = &mut s.k[i * kv..(i + 1) * kv];
            shape.rope.turn(k, angles);
            txn.write(layer, *slot, k, &s.v[i * kv..(i + 1) * kv]);
        }
        let (k, v) = txn.layer(layer);
        let attention = Attention {
            q: &s.q,
            k,
            v,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        };
        attention.apply(pass.keys, &mut s.attended, exec);
        self.o_proj.apply(&s.attended, &mut s.delta, exec);
        add(x, &s.delta);

        rms_norm(x, &self.post_attention_layernorm, shape.eps, &mut s.normed);
        self.gate_proj.apply(&s.normed, &mut s.gate, exec);
        self.up_proj.apply(&s.normed, &mut s.up, exec);
        silu_mul(&mut s.gate, &s.up);
        self.down_proj.apply(&s.gate, &mut s.delta, exec);
        add(x, &s.delta);
    }
}

fn add(x: &mut [f32], delta: &[f32]) {
    for (x, d) in x.iter_mut().zip(delta) {
        *x += d;
    }
}
