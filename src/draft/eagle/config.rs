//! What a head computes: the one configuration that every file format becomes.
//!
//! Whether a norm or a bias is applied, which streams are tapped, how draft ids map to target ids:
//! each is decided when a head is loaded, and has one meaning here, whatever the file called it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{TokenId, model::config::RopeConfig};

/// A head: EAGLE-1 (Li et al. 2024, arXiv 2401.15077) or EAGLE-3 (Li et al. 2025, arXiv
/// 2503.01840).
///
/// Row i of the drafter holds the embedding of token i + 1 and the feature of token i, at position
/// i, and guesses token i + 2:
///
/// ```text
/// EAGLE-1   x = fc([embed(t_{i+1}); f_i])        layers(x) = o      head(o)
/// EAGLE-3   h = fc([tap; tap; ...]), or o        layers([input_layernorm(embed(t_{i+1})); hidden_norm(h)]) = o
///                                                head(norm(o))
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HeadConfig {
    /// Which network.
    pub version: Version,
    /// The code base whose conventions the file follows.
    pub source: Source,
    /// Width of the head's own stream.
    pub hidden: usize,
    /// Width of the target's residual stream; equal to `hidden` if there is no `fc`.
    pub target_hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head, even.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// The target's vocabulary: rows of the embedding.
    pub vocab: usize,
    /// Rows of the head's logits, at most `vocab`.
    pub draft_vocab: usize,
    /// Added to the mean square in every norm.
    pub eps: f64,
    /// The head's own rotary embedding, half-split; never the target's.
    pub rope: RopeConfig,
    /// Positions that the head was made for: no row at a position from here on is fed.
    pub max_position: usize,

    /// What the head is fed by the target.
    pub feature: Feature,
    /// How the file numbered its taps; `None` for [`Feature::Final`].
    pub taps_convention: Option<TapsConvention>,

    /// Whether there is `fc.weight`. EAGLE-1: `[hidden, 2 * hidden]`, on embedding and feature, in
    /// every row. EAGLE-3: `[hidden, taps * target_hidden]`, on the taps alone, so not in drafted
    /// rows; without it the feature is used as it is.
    pub fc: bool,
    /// Whether `fc.bias` `[hidden]` is added.
    pub fc_bias: bool,
    /// EAGLE-3: whether one norm, `input_norm.weight` `[taps * target_hidden]`, is applied to the
    /// concatenated taps before `fc`.
    pub norm_before_fc: bool,
    /// EAGLE-3: whether a norm for each tap, `fc_norm.J.weight` `[target_hidden]`, is applied
    /// before they are concatenated. Never together with `norm_before_fc`.
    pub fc_norm: bool,
    /// EAGLE-1: whether the embedding is normed (`embed_norm.weight`) before `fc`.
    pub embed_norm: bool,
    /// Whether layer 0 has `input_layernorm.weight`: on the embedding in EAGLE-3, where it always
    /// has; on the output of `fc` in EAGLE-1, where most releases have none. Layers from 1 on
    /// always have theirs, on their input.
    pub input_norm: bool,
    /// EAGLE-3: whether layer 0 adds its attention to the normed `h` instead of to `h`.
    pub norm_before_residual: bool,
    /// EAGLE-3: whether `norm(o)` is fed back instead of `o` (EAGLE-3.1).
    pub norm_output: bool,
    /// Whether `norm.weight` is applied before the head. Always in EAGLE-3, but for heads of old
    /// SpecForge versions; rarely in EAGLE-1, where it does not touch what is fed back.
    pub norm_before_head: bool,

    /// Whether queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the attention's output has a bias.
    pub output_bias: bool,
    /// Whether queries and keys are normed by head (`q_norm.weight`, `k_norm.weight` `[head_dim]`)
    /// before they are rotated.
    pub qk_norm: bool,
    /// For each layer, how many of the latest keys a query sees, its own included; `None` for all.
    pub sliding_window: Vec<Option<usize>>,

    /// Whether the head has an embedding of its own; else the target's is used.
    pub own_embedding: bool,
    /// Whether it has an output head of its own; else the target's is used.
    pub own_head: bool,
    /// Which target token a row of the logits is.
    pub vocab_map: VocabMap,
    /// How the file stored the map.
    pub map_form: MapForm,

    /// What was not understood and is taken not to matter, defaults that were taken, and what
    /// engines disagree on.
    pub warnings: Vec<String>,
}

/// Which network a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// EAGLE-1, also drafted with as EAGLE-2.
    Eagle1,
    /// EAGLE-3.
    Eagle3,
}

impl Version {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Eagle1 => "eagle1",
            Self::Eagle3 => "eagle3",
        }
    }
}

/// The code base whose conventions a file follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The paper's own code.
    SafeAiLab,
    /// SpecForge, and what SGLang and vLLM read beside it.
    SpecForge,
    /// vLLM's speculators.
    Speculators,
    /// llama.cpp.
    Gguf,
}

impl Source {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SafeAiLab => "safeailab",
            Self::SpecForge => "specforge",
            Self::Speculators => "speculators",
            Self::Gguf => "gguf",
        }
    }
}

/// What a head is fed by the target for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Residual streams, un-normed and concatenated in this order: k is the stream that enters
    /// layer k, so 0 is the embedding, and the number of layers what leaves the last one.
    Taps(Vec<usize>),
    /// The target's final norm of its last stream.
    Final,
}

impl Feature {
    /// The taps; none for [`Feature::Final`].
    #[must_use]
    pub fn taps(&self) -> &[usize] {
        match self {
            Self::Taps(taps) => taps,
            Self::Final => &[],
        }
    }
}

/// How a file numbers its taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapsConvention {
    /// It does not: layers 2, n / 2 and n - 3 of n, by their inputs.
    Default,
    /// By the layer that the stream enters, as here.
    Input,
    /// By the layer that the stream leaves: one less than here.
    Output,
}

impl TapsConvention {
    /// Its name in reports, and for `--taps-convention`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// Which target token each row of the head's logits is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VocabMap {
    /// Row i is token i, for the whole vocabulary.
    Identity,
    /// Row i is token `ids[i]`: ascending, below the target's vocabulary, `draft_vocab` of them.
    Reduced(Arc<[TokenId]>),
}

/// How a file stores its vocabulary map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapForm {
    /// Not at all, or as a map that changes nothing.
    Identity,
    /// Token of row i less i.
    Offsets,
    /// Token of row i.
    Absolute,
}

impl MapForm {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Offsets => "offsets",
            Self::Absolute => "absolute",
        }
    }
}

impl HeadConfig {
    /// Width of a token's key in a layer, and of its value.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Width that layer `layer`'s queries, keys and values are made from: embedding and stream
    /// side by side in layer 0 of an EAGLE-3 head, the stream elsewhere.
    #[must_use]
    pub fn attention_input(&self, layer: usize) -> usize {
        match self.version {
            Version::Eagle3 if layer == 0 => 2 * self.hidden,
            _ => self.hidden,
        }
    }

    /// Every tensor of the head: canonical name, shape `[out, in]`, and the words for the shape.
    #[must_use]
    pub fn tensors(&self) -> Vec<(String, Vec<usize>, &'static str)> {
        let mut all = Vec::new();
        let mut add = |there: bool, name: &str, shape: &[usize], why| {
            if there {
                all.push((name.to_owned(), shape.to_vec(), why));
            }
        };
        let h = self.hidden;
        let taps = self.feature.taps().len();
        let eagle3 = self.version == Version::Eagle3;
        let (fused, fused_words) = if eagle3 {
            (taps * self.target_hidden, "[hidden, taps * target_hidden]")
        } else {
            (2 * h, "[hidden, 2 * hidden]")
        };
        add(self.fc, "fc.weight", &[h, fused], fused_words);
        add(self.fc_bias, "fc.bias", &[h], "[hidden]");
        let joint = "[taps * target_hidden]";
        add(self.norm_before_fc, "input_norm.weight", &[fused], joint);
        for tap in 0..taps {
            let (name, shape) = (format!("fc_norm.{tap}.weight"), [self.target_hidden]);
            add(self.fc_norm, &name, &shape, "[target_hidden]");
        }
        let embedding = [self.vocab, h];
        let words = "[vocab, hidden]";
        add(self.own_embedding, "embed_tokens.weight", &embedding, words);
        add(self.embed_norm, "embed_norm.weight", &[h], "[hidden]");
        for layer in 0..self.layers {
            let mut add = |there, name: &str, shape: &[usize], why| {
                add(there, &format!("layers.{layer}.{name}"), shape, why);
            };
            let (q, kv) = (self.heads * self.head_dim, self.kv_width());
            let (wide, mlp) = (self.attention_input(layer), self.intermediate);
            let (q_words, kv_words) = if wide == h {
                (
                    "[heads * head_dim, hidden]",
                    "[kv_heads * head_dim, hidden]",
                )
            } else {
                (
                    "[heads * head_dim, 2 * hidden]",
                    "[kv_heads * head_dim, 2 * hidden]",
                )
            };
            let first = layer == 0;
            let norm = !first || self.input_norm;
            add(norm, "input_layernorm.weight", &[h], "[hidden]");
            add(first && eagle3, "hidden_norm.weight", &[h], "[hidden]");
            add(true, "self_attn.q_proj.weight", &[q, wide], q_words);
            add(true, "self_attn.k_proj.weight", &[kv, wide], kv_words);
            add(true, "self_attn.v_proj.weight", &[kv, wide], kv_words);
            let (bias, q_bias, kv_bias) = (
                self.attention_bias,
                "[heads * head_dim]",
                "[kv_heads * head_dim]",
            );
            add(bias, "self_attn.q_proj.bias", &[q], q_bias);
            add(bias, "self_attn.k_proj.bias", &[kv], kv_bias);
            add(bias, "self_attn.v_proj.bias", &[kv], kv_bias);
            let out = "[hidden, heads * head_dim]";
            add(true, "self_attn.o_proj.weight", &[h, q], out);
            add(self.output_bias, "self_attn.o_proj.bias", &[h], "[hidden]");
            for name in ["self_attn.q_norm.weight", "self_attn.k_norm.weight"] {
                add(self.qk_norm, name, &[self.head_dim], "[head_dim]");
            }
            add(true, "post_attention_layernorm.weight", &[h], "[hidden]");
            add(
                true,
                "mlp.gate_proj.weight",
                &[mlp, h],
                "[intermediate, hidden]",
            );
            add(
                true,
                "mlp.up_proj.weight",
                &[mlp, h],
                "[intermediate, hidden]",
            );
            add(
                true,
                "mlp.down_proj.weight",
                &[h, mlp],
                "[hidden, intermediate]",
            );
        }
        add(self.norm_before_head, "norm.weight", &[h], "[hidden]");
        let head = [self.draft_vocab, h];
        add(
            self.own_head,
            "lm_head.weight",
            &head,
            "[draft_vocab, hidden]",
        );
        all
    }

    /// Names of the norms that apply, for reports.
    #[must_use]
    pub fn norms(&self) -> Vec<&'static str> {
        let eagle3 = self.version == Version::Eagle3;
        let there = [
            ("input_norm", self.norm_before_fc),
            ("fc_norm", self.fc_norm),
            ("embed_norm", self.embed_norm),
            ("input_layernorm", self.input_norm || self.layers > 1),
            ("hidden_norm", eagle3),
            ("q_norm", self.qk_norm),
            ("k_norm", self.qk_norm),
            ("post_attention_layernorm", true),
            ("norm", self.norm_before_head),
            ("norm_before_residual", self.norm_before_residual),
            ("norm_output", self.norm_output),
        ];
        there
            .iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| *name)
            .collect()
    }
}
