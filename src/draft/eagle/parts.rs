//! The tensors of a head become its parts.

use std::collections::BTreeMap;

use super::config::HeadConfig;
use crate::{
    Matrix,
    error::{ErrorKind, Result},
    kernels::rms_norm,
    model::{
        Block, Dtype, Linear, Mlp, SelfAttention,
        load::{LoadError, Stored},
    },
};

/// Where the tensors of a head come from: each by its canonical name, asked for once.
pub type TensorSource<'a> = dyn FnMut(&str) -> Result<Stored, LoadError> + 'a;

/// Reads tensors by the names and shapes of a configuration.
pub(super) struct Parts<'a> {
    config: &'a HeadConfig,
    shapes: BTreeMap<String, Vec<usize>>,
    source: &'a mut TensorSource<'a>,
    dtype: Dtype,
}

impl<'a> Parts<'a> {
    pub(super) fn new(
        config: &'a HeadConfig,
        source: &'a mut TensorSource<'a>,
        dtype: Dtype,
    ) -> Self {
        let tensors = config.tensors().into_iter();
        Self {
            config,
            shapes: tensors.map(|(name, shape, _)| (name, shape)).collect(),
            source,
            dtype,
        }
    }

    pub(super) fn config(&self) -> &HeadConfig {
        self.config
    }

    fn stored(&mut self, name: &str) -> Result<Stored> {
        let stored = (self.source)(name)?;
        match self.shapes.get(name) {
            Some(shape) if *shape == stored.shape => Ok(stored),
            expected => {
                let expected = expected.map_or("none".to_owned(), |shape| format!("{shape:?}"));
                Err(ErrorKind::Weight {
                    tensor: name.to_owned(),
                    what: format!("shape {:?}, accepted is {expected}", stored.shape),
                }
                .into())
            }
        }
    }

    pub(super) fn vector(&mut self, name: &str) -> Result<Vec<f32>> {
        let floats = self.stored(name)?.floats();
        floats.map_err(|problem| {
            ErrorKind::Weight {
                tensor: name.to_owned(),
                what: problem.to_string(),
            }
            .into()
        })
    }

    pub(super) fn norm(&mut self, name: &str) -> Result<Norm> {
        let weight = self.vector(name)?;
        let eps = eps(self.config);
        Ok(Norm { weight, eps })
    }

    /// The norm `name` of a network that has it.
    pub(super) fn norm_if(&mut self, there: bool, name: &str) -> Result<Option<Norm>> {
        there.then(|| self.norm(name)).transpose()
    }

    pub(super) fn matrix(&mut self, name: &str, dtype: Dtype) -> Result<Linear> {
        Linear::from_stored(self.stored(name)?, dtype)
    }

    /// `NAME.weight`, and `NAME.bias` if there is one.
    pub(super) fn linear(&mut self, name: &str, bias: bool) -> Result<Linear> {
        let linear = self.matrix(&format!("{name}.weight"), self.dtype)?;
        if !bias {
            return Ok(linear);
        }
        linear.with_bias(self.vector(&format!("{name}.bias"))?)
    }

    /// Layers from `first` on, each with its input norm if it has one.
    pub(super) fn layers(&mut self, first: usize) -> Result<Vec<Block>> {
        let (count, norm) = (self.config.layers, self.config.input_norm);
        (first..count)
            .map(|layer| self.block(layer, layer > 0 || norm))
            .collect()
    }

    pub(super) fn block(&mut self, layer: usize, input_norm: bool) -> Result<Block> {
        let name = |part: &str| format!("layers.{layer}.{part}");
        let config = self.config;
        let qkv = config.attention_bias;
        let norms = config.qk_norm;
        let input = name("input_layernorm.weight");
        Ok(Block {
            input_layernorm: input_norm.then(|| self.vector(&input)).transpose()?,
            self_attn: SelfAttention {
                q_proj: self.linear(&name("self_attn.q_proj"), qkv)?,
                k_proj: self.linear(&name("self_attn.k_proj"), qkv)?,
                v_proj: self.linear(&name("self_attn.v_proj"), qkv)?,
                o_proj: self.linear(&name("self_attn.o_proj"), config.output_bias)?,
                qk_norm: match norms {
                    true => Some((
                        self.vector(&name("self_attn.q_norm.weight"))?,
                        self.vector(&name("self_attn.k_norm.weight"))?,
                    )),
                    false => None,
                },
                window: config.sliding_window.get(layer).copied().flatten(),
            },
            post_attention_layernorm: self.vector(&name("post_attention_layernorm.weight"))?,
            mlp: Mlp {
                gate_proj: self.linear(&name("mlp.gate_proj"), false)?,
                up_proj: self.linear(&name("mlp.up_proj"), false)?,
                down_proj: self.linear(&name("mlp.down_proj"), false)?,
            },
        })
    }
}

/// An RMS norm with its weight.
#[derive(Clone, Debug)]
pub(super) struct Norm {
    weight: Vec<f32>,
    eps: f32,
}

impl Norm {
    /// The norm of every row.
    pub(super) fn of(&self, x: &Matrix) -> Matrix {
        let mut out = Matrix::zeros(x.rows(), x.cols());
        rms_norm(x.as_slice(), &self.weight, self.eps, out.as_mut_slice());
        out
    }
}

/// What is added to mean squares, as it is computed with.
pub(super) fn eps(config: &HeadConfig) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "computed in f32, as trained"
    )]
    let eps = config.eps as f32;
    eps
}
