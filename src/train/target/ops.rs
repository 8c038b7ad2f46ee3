//! What candle's tape has no gradient for, or does in many passes over memory. Each is an operation of
//! one argument or two with its gradient, on f32 in host memory.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor, bail};

use crate::{
    kernels::{self, softmax},
    train::{
        norm::Normed,
        unroll::{silu, silu_gradient},
    },
};

/// The values of an argument, in their order.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let all = storage.as_slice::<f32>()?;
    match layout.contiguous_offsets() {
        Some((from, to)) => Ok(&all[from..to]),
        None => bail!("values that do not lie one after the other"),
    }
}

fn held(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

fn like(tensor: &Tensor, values: Vec<f32>) -> Result<Option<Tensor>> {
    let made = Tensor::from_vec(values, tensor.shape(), tensor.device())?;
    Ok(Some(made))
}

/// The norm of rows `[rows, width]` by a weight `[width]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm {
    pub(super) eps: f32,
}

impl CustomOp2 for Norm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        rows: &Layout,
        weight: &CpuStorage,
        width: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight) = (values(x, rows)?, values(weight, width)?);
        let mut out = vec![0.0; x.len()];
        kernels::rms_norm(x, weight, self.eps, &mut out);
        Ok((CpuStorage::F32(out), rows.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _out: &Tensor,
        d: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (rows, values, d) = (held(x)?, held(weight)?, held(d)?);
        let normed = Normed::of(&rows, values.len(), self.eps);
        let (mut dx, mut dw) = (vec![0.0; rows.len()], vec![0.0; values.len()]);
        normed.weight_gradient(&d, &mut dw);
        normed.input_gradient(&d, &values, &mut dx);
        Ok((like(x, dx)?, like(weight, dw)?))
    }
}

/// `silu(g) u` of rows `[g; u]`, `[rows, 2 * width]` to `[rows, width]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate;

impl CustomOp1 for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn cpu_fwd(&self, both: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, wide) = layout.shape().dims2()?;
        let out = silu(values(both, layout)?, wide / 2);
        Ok((CpuStorage::F32(out), (rows, wide / 2).into()))
    }

    fn bwd(&self, both: &Tensor, _out: &Tensor, d: &Tensor) -> Result<Option<Tensor>> {
        let (_, wide) = both.dims2()?;
        like(both, silu_gradient(&held(both)?, &held(d)?, wide / 2))
    }
}

/// The softmax of scores over the keys up to a row's own: rows `[…, context, context]`, times `scale`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Causal {
    pub(super) scale: f32,
}

impl CustomOp1 for Causal {
    fn name(&self) -> &'static str {
        "causal-softmax"
    }

    fn cpu_fwd(&self, scores: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let context = layout.shape().dims().last().copied().unwrap_or(1);
        let scores = values(scores, layout)?;
        let (mut out, mut scaled) = (vec![0.0; scores.len()], vec![0.0; context]);
        let rows = scores.chunks(context).zip(out.chunks_mut(context));
        for (row, (scores, law)) in rows.enumerate() {
            let seen = row % context + 1;
            for (scaled, score) in scaled.iter_mut().zip(&scores[..seen]) {
                *scaled = self.scale * score;
            }
            softmax(&scaled[..seen], &mut law[..seen]);
        }
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _scores: &Tensor, law: &Tensor, d: &Tensor) -> Result<Option<Tensor>> {
        let context = law.dims().last().copied().unwrap_or(1);
        let (laws, mut d) = (held(law)?, held(d)?);
        let rows = laws.chunks(context).zip(d.chunks_mut(context));
        for (row, (law, d)) in rows.enumerate() {
            let seen = row % context + 1;
            let mean = crate::train::mat::dot(&law[..seen], &d[..seen]);
            for (d, p) in d[..seen].iter_mut().zip(law) {
                *d = self.scale * p * (*d - mean);
            }
            d[seen..].fill(0.0);
        }
        like(law, d)
    }
}

/// Rows of queries, keys and values, `[windows * context, (heads + 2 * kv_heads) * head_dim]`, to one
/// row of values: queries `[kv_heads, windows, heads / kv_heads, context, head_dim]`, then keys and
/// values, `[kv_heads, windows, context, head_dim]` each. Queries and keys are turned by their
/// positions (Su et al. 2021, arXiv 2104.09864).
#[derive(Clone, Debug)]
pub(super) struct Heads {
    pub(super) windows: usize,
    pub(super) context: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// Cosines and sines by position, `[context, head_dim / 2]`.
    pub(super) turns: Arc<Vec<(f32, f32)>>,
}

impl Heads {
    /// Calls `each` for every head of every row with where it lies in rows, where by heads, and the
    /// angles that it is turned by, if it is.
    fn each(&self, mut each: impl FnMut(usize, usize, Option<&[(f32, f32)]>)) {
        let (dim, group) = (self.head_dim, self.heads / self.kv_heads);
        let all = self.heads + 2 * self.kv_heads;
        let block = self.windows * self.context * dim;
        for window in 0..self.windows {
            for at in 0..self.context {
                let row = (window * self.context + at) * all * dim;
                let turn = &self.turns[at * dim / 2..(at + 1) * dim / 2];
                for head in 0..all {
                    let to = if head < self.heads {
                        let (kv, of) = (head / group, head % group);
                        kv * group * block + ((window * group + of) * self.context + at) * dim
                    } else {
                        head * block + (window * self.context + at) * dim
                    };
                    let turned = head < self.heads + self.kv_heads;
                    each(row + head * dim, to, turned.then_some(turn));
                }
            }
        }
    }
}

/// Turns the pairs (i, i + half) of `from` into `to`; `back` by the angles' negatives.
fn turn(from: &[f32], to: &mut [f32], by: Option<&[(f32, f32)]>, back: bool) {
    let Some(by) = by else {
        to.copy_from_slice(from);
        return;
    };
    let (low, high) = from.split_at(by.len());
    let (to_low, to_high) = to.split_at_mut(by.len());
    let pairs = to_low.iter_mut().zip(to_high).zip(low.iter().zip(high));
    for (((to_low, to_high), (low, high)), (cos, sin)) in pairs.zip(by) {
        let sin = if back { -sin } else { *sin };
        *to_low = low * cos - high * sin;
        *to_high = high * cos + low * sin;
    }
}

impl CustomOp1 for Heads {
    fn name(&self) -> &'static str {
        "heads"
    }

    fn cpu_fwd(&self, rows: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, dim) = (values(rows, layout)?, self.head_dim);
        let mut out = vec![0.0; rows.len()];
        self.each(|row, head, by| {
            turn(&rows[row..row + dim], &mut out[head..head + dim], by, false);
        });
        let count = out.len();
        Ok((CpuStorage::F32(out), count.into()))
    }

    fn bwd(&self, rows: &Tensor, _out: &Tensor, d: &Tensor) -> Result<Option<Tensor>> {
        let (d, dim) = (held(d)?, self.head_dim);
        let mut out = vec![0.0; d.len()];
        self.each(|row, head, by| {
            turn(&d[head..head + dim], &mut out[row..row + dim], by, true);
        });
        like(rows, out)
    }
}

/// The sum of `-ln p(target)` of rows of logits `[rows, vocab]`, in nats.
#[derive(Clone, Debug)]
pub(super) struct Surprise {
    /// `[rows]`, below the vocabulary.
    pub(super) targets: Vec<u32>,
}

impl CustomOp1 for Surprise {
    fn name(&self) -> &'static str {
        "surprise"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, vocab) = layout.shape().dims2()?;
        let rows = values(logits, layout)?.chunks(vocab).zip(&self.targets);
        let mut law = vec![0.0; vocab];
        let losses = rows.map(|(logits, target)| {
            f64::from(softmax(logits, &mut law)) - f64::from(logits[*target as usize])
        });
        let total = crate::train::linalg::single(losses.sum());
        Ok((CpuStorage::F32(vec![total]), ().into()))
    }

    fn bwd(&self, logits: &Tensor, _out: &Tensor, d: &Tensor) -> Result<Option<Tensor>> {
        let (_, vocab) = logits.dims2()?;
        let (values, d) = (held(logits)?, d.to_scalar::<f32>()?);
        let mut out = vec![0.0; values.len()];
        let rows = values.chunks(vocab).zip(out.chunks_mut(vocab));
        for ((logits, out), target) in rows.zip(&self.targets) {
            softmax(logits, out);
            out[*target as usize] -= 1.0;
            out.iter_mut().for_each(|x| *x *= d);
        }
        like(logits, out)
    }
}
