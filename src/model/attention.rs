//! Self-attention of one layer.

use super::{block::Pass, linear::Linear};
use crate::{
    cache::Txn,
    kernels::{Attention, rms_norm},
};

/// `self_attn`. Its input may be wider than the stream that it adds to.
#[derive(Clone, Debug)]
pub(crate) struct SelfAttention {
    pub(crate) q_proj: Linear,
    pub(crate) k_proj: Linear,
    pub(crate) v_proj: Linear,
    pub(crate) o_proj: Linear,
    /// Norms of each query and key head before they are turned, `[head_dim]`.
    pub(crate) qk_norm: Option<(Vec<f32>, Vec<f32>)>,
    /// How many of the latest keys a row sees, its own included; `None` for all.
    pub(crate) window: Option<usize>,
}

/// Intermediate values, `[rows, width]` each.
#[derive(Debug)]
pub(super) struct AttentionScratch {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    attended: Vec<f32>,
}

impl AttentionScratch {
    pub(super) fn new(q: usize, kv: usize, rows: usize) -> Self {
        let zeros = |width: usize| vec![0.0; rows * width];
        Self {
            q: zeros(q),
            k: zeros(kv),
            v: zeros(kv),
            attended: zeros(q),
        }
    }
}

impl SelfAttention {
    /// Attends with rows of `x`, `[rows, in]`, into `out`, `[rows, hidden]`, and writes the rows'
    /// keys and values as `layer` of the cache.
    pub(super) fn forward(
        &self,
        (layer, x): (usize, &[f32]),
        out: &mut [f32],
        txn: &mut Txn<'_>,
        pass: &Pass<'_>,
        s: &mut AttentionScratch,
    ) {
        let Pass { shape, exec, .. } = *pass;
        let heads = [
            (&self.q_proj, &mut s.q[..]),
            (&self.k_proj, &mut s.k[..]),
            (&self.v_proj, &mut s.v[..]),
        ];
        Linear::apply_all(heads, x, exec);
        if let Some((q_norm, k_norm)) = &self.qk_norm {
            // The attended rows are not there yet, so their place is free.
            s.attended.copy_from_slice(&s.q);
            rms_norm(&s.attended, q_norm, shape.eps, &mut s.q);
            let k = &mut s.attended[..s.k.len()];
            k.copy_from_slice(&s.k);
            rms_norm(k, k_norm, shape.eps, &mut s.k);
        }
        let angles = pass.plan.angles().chunks_exact(shape.head_dim);
        let rows = angles.zip(pass.plan.slots()).enumerate();
        let (q, kv) = (shape.q_width(), shape.kv_width());
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
        match self.window {
            None => attention.apply(pass.keys, &mut s.attended, exec),
            Some(window) => {
                let keys = pass.keys.iter().map(|keys| keys.latest(window));
                attention.apply(&keys.collect::<Vec<_>>(), &mut s.attended, exec);
            }
        }
        self.o_proj.apply(&s.attended, out, exec);
    }
}
