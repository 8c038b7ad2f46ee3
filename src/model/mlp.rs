//! The feed-forward part of one layer.

use super::linear::Linear;
use crate::kernels::{Exec, silu_mul};

/// `mlp`: down(silu(gate(x)) * up(x)).
#[derive(Clone, Debug)]
pub(crate) struct Mlp {
    pub(crate) gate_proj: Linear,
    pub(crate) up_proj: Linear,
    pub(crate) down_proj: Linear,
}

/// Intermediate values, `[rows, intermediate]` each.
#[derive(Debug)]
pub(super) struct MlpScratch {
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl MlpScratch {
    pub(super) fn new(intermediate: usize, rows: usize) -> Self {
        let zeros = || vec![0.0; rows * intermediate];
        Self {
            gate: zeros(),
            up: zeros(),
        }
    }
}

impl Mlp {
    /// `[rows, hidden]` to `[rows, hidden]`.
    pub(super) fn forward(&self, x: &[f32], out: &mut [f32], exec: Exec, s: &mut MlpScratch) {
        let both = [
            (&self.gate_proj, &mut s.gate[..]),
            (&self.up_proj, &mut s.up[..]),
        ];
        Linear::apply_all(both, x, exec);
        silu_mul(&mut s.gate, &s.up, exec);
        self.down_proj.apply(&s.gate, out, exec);
    }
}
