//! The llama as it is trained: matrices `[in, out]`, queries, keys and values in one product, gate and
//! up in one.
//!
//! ```text
//! x = E[token]
//! x = x + Wo attention(Wqkv x̂)     x = x + Wdown(silu(g) u)   where [g; u] = Wgu x̂     a layer
//! logits = E x̂
//! ```

use std::sync::Arc;

use candle_core::{Device, Tensor, Var};
use rayon::prelude::*;

use super::{
    ops::{Causal, Gate, Heads, Norm, Surprise},
    recipe::TargetRecipe,
};
use crate::{
    error::Result,
    model::config::{RopeConfig, RopeScaling},
    train::{linalg::single, random::Random},
};

pub(super) const EPS: f64 = 1e-5;
pub(super) const THETA: f64 = 10_000.0;
/// Deviation of the embedding's start values.
const EMBED: f64 = 0.05;
/// Tokens that go through the net at once on a thread, or a window.
const PIECE: usize = 512;

/// A matrix or norm of a layer, in their order among the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    InputNorm,
    Qkv,
    O,
    PostNorm,
    GateUp,
    Down,
}

impl Part {
    pub(super) const ALL: [Self; 6] = [
        Self::InputNorm,
        Self::Qkv,
        Self::O,
        Self::PostNorm,
        Self::GateUp,
        Self::Down,
    ];
}

/// Windows of text, each of `context` tokens, and the token that follows each of theirs.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    pub(super) context: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) targets: Vec<u32>,
}

impl Windows {
    /// The windows of `context` tokens and their followers that begin at `starts` of `tokens`.
    pub(super) fn of(tokens: &[u32], context: usize, starts: &[usize]) -> Self {
        let mut windows = Self {
            context,
            ..Self::default()
        };
        for start in starts {
            let window = &tokens[*start..=start + context];
            windows.tokens.extend_from_slice(&window[..context]);
            windows.targets.extend_from_slice(&window[1..]);
        }
        windows
    }

    /// Windows that go through the net together.
    fn pieces(&self) -> Vec<Self> {
        let size = (PIECE / self.context).max(1) * self.context;
        let pieces = self.tokens.chunks(size).zip(self.targets.chunks(size));
        let pieces = pieces.map(|(tokens, targets)| Self {
            context: self.context,
            tokens: tokens.to_vec(),
            targets: targets.to_vec(),
        });
        pieces.collect()
    }
}

/// Parameters and the pass over them.
#[derive(Debug)]
pub(super) struct Net {
    recipe: TargetRecipe,
    /// The embedding `[vocab, hidden]`, the parts of each layer, the last norm.
    pub(super) vars: Vec<Var>,
    turns: Arc<Vec<(f32, f32)>>,
}

impl Net {
    /// With start values.
    pub(super) fn new(recipe: &TargetRecipe, random: &mut Random) -> Result<Self> {
        let h = recipe.hidden;
        let mut vars = vec![var(
            random.values(recipe.vocab * h, EMBED),
            &[recipe.vocab, h],
        )?];
        #[expect(clippy::cast_precision_loss, reason = "a few layers")]
        let branch = 1.0 / (2.0 * recipe.layers as f64).sqrt();
        for _ in 0..recipe.layers {
            for part in Part::ALL {
                let (from, to, factor) = match part {
                    Part::InputNorm | Part::PostNorm => {
                        vars.push(var(vec![1.0; h], &[h])?);
                        continue;
                    }
                    Part::Qkv => (h, recipe.qkv_width(), 1.0),
                    Part::O => (h, h, branch),
                    Part::GateUp => (h, 2 * recipe.ffn, 1.0),
                    Part::Down => (recipe.ffn, h, branch),
                };
                #[expect(clippy::cast_precision_loss, reason = "a width")]
                let scale = factor / (from as f64).sqrt();
                vars.push(var(random.values(from * to, scale), &[from, to])?);
            }
        }
        vars.push(var(vec![1.0; h], &[h])?);
        let rope = RopeConfig {
            theta: THETA,
            scaling: RopeScaling::None,
        };
        let frequencies = rope.frequencies(recipe.head_dim());
        Ok(Self {
            recipe: recipe.clone(),
            vars,
            turns: Arc::new(turns(&frequencies, recipe.context)),
        })
    }

    /// A part of a layer.
    pub(super) fn part(&self, layer: usize, part: Part) -> &Tensor {
        self.vars[1 + layer * Part::ALL.len() + part as usize].as_tensor()
    }

    pub(super) fn embedding(&self) -> &Tensor {
        self.vars[0].as_tensor()
    }

    pub(super) fn last_norm(&self) -> &Tensor {
        self.vars[self.vars.len() - 1].as_tensor()
    }

    /// The logits of all tokens, `[windows * context, vocab]`.
    pub(super) fn logits(&self, windows: &Windows) -> candle_core::Result<Tensor> {
        let ids = Tensor::new(windows.tokens.as_slice(), &Device::Cpu)?;
        let mut x = self.embedding().index_select(&ids, 0)?;
        let norm = Norm { eps: single(EPS) };
        for layer in 0..self.recipe.layers {
            let part = |part| self.part(layer, part);
            let input = x.apply_op2(part(Part::InputNorm), norm)?;
            let seen = self.attention(&input.matmul(part(Part::Qkv))?, windows)?;
            x = (x + seen.matmul(part(Part::O))?)?;
            let input = x.apply_op2(part(Part::PostNorm), norm)?;
            let act = input.matmul(part(Part::GateUp))?.apply_op1(Gate)?;
            x = (x + act.matmul(part(Part::Down))?)?;
        }
        let last = x.apply_op2(self.last_norm(), norm)?;
        last.matmul(&self.embedding().t()?)
    }

    /// What rows of queries, keys and values see, `[windows * context, hidden]`.
    fn attention(&self, qkv: &Tensor, windows: &Windows) -> candle_core::Result<Tensor> {
        let (heads, kv, dim) = (
            self.recipe.heads,
            self.recipe.kv_heads,
            self.recipe.head_dim(),
        );
        let (context, group) = (windows.context, heads / kv);
        let count = windows.tokens.len() / context;
        let split = Heads {
            windows: count,
            context,
            heads,
            kv_heads: kv,
            head_dim: dim,
            turns: Arc::clone(&self.turns),
        };
        let all = qkv.apply_op1(split)?;
        let (queries, keys) = (heads * count * context * dim, kv * count * context * dim);
        let q = all.narrow(0, 0, queries)?;
        let q = q.reshape((kv * count, group * context, dim))?;
        let k = all.narrow(0, queries, keys)?;
        let k = k.reshape((kv * count, context, dim))?;
        let v = all.narrow(0, queries + keys, keys)?;
        let v = v.reshape((kv * count, context, dim))?;
        #[expect(clippy::cast_precision_loss, reason = "a width")]
        let scale = single(1.0 / (dim as f64).sqrt());
        let shares = q.matmul(&k.t()?)?.apply_op1(Causal { scale })?;
        let seen = shares.matmul(&v)?;
        let seen = seen.reshape((kv, count, group, context, dim))?;
        let seen = seen.permute((1, 3, 0, 2, 4))?.contiguous()?;
        seen.reshape((count * context, heads * dim))
    }

    /// The sum of the losses of a piece, in nats.
    fn surprise(&self, piece: &Windows) -> candle_core::Result<Tensor> {
        let targets = piece.targets.clone();
        self.logits(piece)?.apply_op1(Surprise { targets })
    }

    /// The mean loss of the tokens of `windows`, in nats, and its gradient by every parameter. Pieces are
    /// added up in their order, so that threads change nothing.
    pub(super) fn gradients(&self, windows: &Windows) -> Result<(f64, Vec<Vec<f32>>)> {
        #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
        let share = 1.0 / windows.tokens.len().max(1) as f64;
        let pieces = windows.pieces();
        let made = pieces.par_iter().map(|piece| {
            let loss = (self.surprise(piece)? * share)?;
            let mut slopes = loss.backward()?;
            let slopes = self.vars.iter().map(|var| match slopes.remove(var) {
                Some(slope) => slope.flatten_all()?.to_vec1::<f32>(),
                None => Ok(vec![0.0; var.elem_count()]),
            });
            let slopes = slopes.collect::<candle_core::Result<Vec<_>>>()?;
            Ok((f64::from(loss.to_scalar::<f32>()?), slopes))
        });
        let made: Vec<_> = made.collect::<candle_core::Result<_>>()?;
        let mut made = made.into_iter();
        let (mut loss, mut sums) = made.next().unwrap_or_default();
        for (more, slopes) in made {
            loss += more;
            for (sum, slope) in sums.iter_mut().zip(&slopes) {
                crate::train::mat::add(sum, slope);
            }
        }
        Ok((loss, sums))
    }

    /// The sum of the losses of the tokens of `windows`, in nats.
    pub(super) fn loss(&self, windows: &Windows) -> Result<f64> {
        let pieces = windows.pieces();
        let losses = pieces.par_iter().map(|piece| {
            let loss = self.surprise(piece)?.to_scalar::<f32>()?;
            Ok(f64::from(loss))
        });
        let losses: Vec<f64> = losses.collect::<candle_core::Result<_>>()?;
        Ok(losses.iter().sum())
    }
}

pub(super) fn var(values: Vec<f32>, shape: &[usize]) -> Result<Var> {
    let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
    Ok(Var::from_tensor(&tensor)?)
}

/// Cosines and sines of every position's angles, `[context, frequencies]`.
fn turns(frequencies: &[f32], context: usize) -> Vec<(f32, f32)> {
    let of = |at: usize| {
        frequencies.iter().map(move |frequency| {
            #[expect(clippy::cast_precision_loss, reason = "a position is far below 2^52")]
            let angle = at as f64 * f64::from(*frequency);
            (single(angle.cos()), single(angle.sin()))
        })
    };
    (0..context).flat_map(of).collect()
}
