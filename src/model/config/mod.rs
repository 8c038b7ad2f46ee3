//! What a network computes, from `config.json` or GGUF metadata.
//!
//! Whatever bears on the computation is understood or refused by name; a key that nobody knows
//! becomes a warning.

mod gguf;
mod json;
mod rope;

pub(crate) use gguf::{number, of_architecture, of_width, optional_size, size};
pub(crate) use json::Fields;
pub use rope::{RopeConfig, RopeScaling};

use super::load::Problem;
use crate::TokenId;

/// Limits that keep a lying configuration from asking for more than any real network.
pub(crate) const MAX_WIDTH: usize = 1 << 18;
pub(crate) const MAX_LAYERS: usize = 1 << 10;
pub(crate) const MAX_HEADS: usize = 1 << 10;
pub(crate) const MAX_HEAD_DIM: usize = 1 << 10;
pub(crate) const MAX_VOCAB: usize = 1 << 22;
pub(crate) const MAX_POSITION: usize = 1 << 26;

/// A llama decoder: pre-norm, grouped-query attention, SwiGLU, no biases.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head, even.
    pub head_dim: usize,
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// Added to the mean square in every norm.
    pub eps: f64,
    /// Rotary embedding, half-split.
    pub rope: RopeConfig,
    /// Positions that the network was made for.
    pub max_position: usize,
    /// Whether the embedding is also the head.
    pub tied: bool,
}

/// A configuration as a file declares it, before its tensors have been seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The configuration; `tied` is what the file says, or false.
    pub config: Config,
    /// Whether the file says that the head is the embedding.
    pub tied: Option<bool>,
    /// End-of-sequence ids; `None` if the file is silent.
    pub eos: Option<Vec<TokenId>>,
    /// What was not understood and is taken not to matter, and defaults that were taken.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// A [`Problem`] that names the key, its value and what would be accepted.
    pub fn from_json(text: &str) -> Result<Declared, Problem> {
        json::read(text)
    }

    /// Reads GGUF metadata; the vocabulary is the rows of the embedding, and `factors` the tensor
    /// `rope_freqs.weight` if the file has one.
    ///
    /// # Errors
    /// A [`Problem`] that names the key, its value and what would be accepted.
    pub fn from_gguf(
        metadata: &super::load::gguf::Metadata,
        vocab: usize,
        factors: Option<Vec<f32>>,
    ) -> Result<Declared, Problem> {
        gguf::read(metadata, vocab, factors)
    }

    /// Width of a token's key, and of its value.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Every tensor of the network: canonical name, shape, and the words for the shape.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (String, Vec<usize>, &'static str)> {
        let q = self.heads * self.head_dim;
        let kv = self.kv_width();
        let (hidden, mlp) = (self.hidden, self.intermediate);
        let top = [
            (
                "model.embed_tokens.weight",
                vec![self.vocab, hidden],
                "[vocab, hidden]",
            ),
            ("model.norm.weight", vec![hidden], "[hidden]"),
            (
                "lm_head.weight",
                vec![self.vocab, hidden],
                "[vocab, hidden]",
            ),
        ];
        let layer = [
            ("input_layernorm", vec![hidden], "[hidden]"),
            (
                "self_attn.q_proj",
                vec![q, hidden],
                "[heads * head_dim, hidden]",
            ),
            (
                "self_attn.k_proj",
                vec![kv, hidden],
                "[kv_heads * head_dim, hidden]",
            ),
            (
                "self_attn.v_proj",
                vec![kv, hidden],
                "[kv_heads * head_dim, hidden]",
            ),
            (
                "self_attn.o_proj",
                vec![hidden, q],
                "[hidden, heads * head_dim]",
            ),
            ("post_attention_layernorm", vec![hidden], "[hidden]"),
            ("mlp.gate_proj", vec![mlp, hidden], "[intermediate, hidden]"),
            ("mlp.up_proj", vec![mlp, hidden], "[intermediate, hidden]"),
            ("mlp.down_proj", vec![hidden, mlp], "[hidden, intermediate]"),
        ];
        let top = top
            .into_iter()
            .take(if self.tied { 2 } else { 3 })
            .map(|(name, shape, why)| (name.to_owned(), shape, why));
        top.chain((0..self.layers).flat_map(move |i| {
            layer.clone().into_iter().map(move |(name, shape, why)| {
                (format!("model.layers.{i}.{name}.weight"), shape, why)
            })
        }))
    }

    /// Checks sizes and divisibility; `keys` are the file's names for them.
    fn check(&self, keys: &Keys) -> Result<(), Problem> {
        let bounds = [
            (keys.hidden, self.hidden, MAX_WIDTH),
            (keys.intermediate, self.intermediate, MAX_WIDTH * 4),
            (keys.layers, self.layers, MAX_LAYERS),
            (keys.heads, self.heads, MAX_HEADS),
            (keys.kv_heads, self.kv_heads, MAX_HEADS),
            (keys.head_dim, self.head_dim, MAX_HEAD_DIM),
            (keys.vocab, self.vocab, MAX_VOCAB),
            (keys.max_position, self.max_position, MAX_POSITION),
        ];
        for (key, value, limit) in bounds {
            if !(1..=limit).contains(&value) {
                return Err(Problem::key(key, value, &format!("1 to {limit}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Problem::contradiction(
                format!("{} is {}", keys.heads, self.heads),
                format!("{} is {}", keys.kv_heads, self.kv_heads),
                "a number of key heads that divides the number of heads",
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(Problem::key(
                keys.head_dim,
                self.head_dim,
                "an even number (rope turns pairs)",
            ));
        }
        if !(self.eps > 0.0 && self.eps < 1.0) {
            return Err(Problem::key(keys.eps, self.eps, "a number between 0 and 1"));
        }
        self.rope.check(keys.theta, self.head_dim)
    }
}

/// What a file calls its sizes.
struct Keys {
    hidden: &'static str,
    intermediate: &'static str,
    layers: &'static str,
    heads: &'static str,
    kv_heads: &'static str,
    head_dim: &'static str,
    vocab: &'static str,
    max_position: &'static str,
    eps: &'static str,
    theta: &'static str,
}

impl Keys {
    /// All of them.
    fn all(&self) -> [&'static str; 10] {
        [
            self.hidden,
            self.intermediate,
            self.layers,
            self.heads,
            self.kv_heads,
            self.head_dim,
            self.vocab,
            self.max_position,
            self.eps,
            self.theta,
        ]
    }
}

/// `hidden / heads`, where a file leaves the width of a head to that.
fn derived_head_dim(keys: &Keys, hidden: usize, heads: usize) -> Result<usize, Problem> {
    if heads > 0 && hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    Err(Problem::contradiction(
        format!("{} is {hidden}", keys.hidden),
        format!("{} is {heads} and {} is missing", keys.heads, keys.head_dim),
        "a width that the number of heads divides, or an explicit head width",
    ))
}
