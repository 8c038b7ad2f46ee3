//! From what the files declare and hold to the one configuration.

use std::collections::BTreeSet;

use super::{
    super::config::{Feature, HeadConfig, Source, TapsConvention, Version},
    HeadOptions, NormOutput, TargetFacts,
    declared::Declared,
    shapes::Shapes,
    taps,
    vocab::Maps,
};
use crate::model::{
    config::{MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_POSITION, MAX_VOCAB, MAX_WIDTH},
    load::Problem,
};

/// A configuration, and what has to be done to the file's tensors so that they fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The configuration.
    pub config: HeadConfig,
    /// For each row of the head, its row in the file; `None` if they are the same rows.
    pub order: Option<Vec<usize>>,
    /// Tensors of the file that the configuration leaves unused on purpose.
    pub dropped: BTreeSet<String>,
}

impl Declared {
    /// Decides what the head computes. Shapes are compared with the decision afterwards, by
    /// [`Resolved::check`].
    ///
    /// # Errors
    /// What the file says twice in two ways, what does not fit the target, and what cannot be known.
    pub fn resolve(
        mut self,
        shapes: &Shapes,
        maps: &Maps,
        target: &TargetFacts,
        options: &HeadOptions,
    ) -> Result<Resolved, Problem> {
        let mut warnings = std::mem::take(&mut self.warnings);
        self.check()?;
        let version = self.version(shapes, maps)?;
        let eagle3 = version == Version::Eagle3;
        let has = |name: &str| shapes.contains_key(name);
        let layers = self.count_layers(shapes, &mut warnings)?;
        let (feature, convention) =
            self.feature(version, shapes, target, options, &mut warnings)?;
        let taps = feature.taps().len();
        let norm_before_fc = flagged(
            "norm_before_fc",
            self.norm_before_fc,
            "input_norm.weight",
            has("input_norm.weight"),
        )?;
        let fc_norms = shapes
            .keys()
            .filter(|name| name.starts_with("fc_norm."))
            .count();
        let fc_norm = flagged("fc_norm", self.fc_norm, "fc_norm.0.weight", fc_norms > 0)?;
        if norm_before_fc && fc_norm {
            return Err(Problem::contradiction(
                "norm_before_fc is true",
                "fc_norm is true",
                "one of the two",
            ));
        }
        if taps == 0 && (norm_before_fc || fc_norm) {
            return Err(Problem::contradiction(
                "the head taps no streams",
                "it has norms for taps",
                "norms with fc.weight",
            ));
        }
        let qk_norm = has("layers.0.self_attn.q_norm.weight");
        match self.qk_norm {
            Some(said) if said != qk_norm => {
                let model = if said { "qwen3" } else { "llama" };
                let there = if qk_norm { "there" } else { "missing" };
                return Err(Problem::contradiction(
                    format!("model_type is {model}"),
                    format!("tensor layers.0.self_attn.q_norm.weight is {there}"),
                    "norms of queries and keys with qwen3, none with llama",
                ));
            }
            _ => {}
        }
        let attention_bias = has("layers.0.self_attn.q_proj.bias");
        biased(
            "attention_bias",
            self.attention_bias,
            "layers.0.self_attn.q_proj.bias",
            attention_bias,
            &mut warnings,
        )?;
        let fc_bias = has("fc.bias");
        if let Some(said) = self.fc_bias.filter(|said| *said != fc_bias) {
            let there = if fc_bias { "has" } else { "has no" };
            warnings.push(format!("the configuration says that the bias of fc is {said}; the file {there} fc.bias, which decides"));
        }
        let embed_norm = !eagle3 && has("embed_norm.weight");
        let input_norm = has("layers.0.input_layernorm.weight");
        if let Some(said) = self.layernorms {
            for name in [
                "embed_norm.weight",
                "layers.0.input_layernorm.weight",
                "norm.weight",
            ] {
                if has(name) != said {
                    let there = if said { "missing" } else { "there" };
                    return Err(Problem::contradiction(
                        format!("layernorms is {said}"),
                        format!("tensor {name} is {there}"),
                        "all three norms with true, none with false",
                    ));
                }
            }
        }
        let mut dropped = BTreeSet::new();
        let (norm_output, norm_before_head) = if eagle3 {
            self.output_norms(options, &mut dropped, &mut warnings)?
        } else if options.norm_output.is_some() {
            return Err(no_norm_output());
        } else {
            (false, has("norm.weight"))
        };
        let output = self.output(version, shapes, maps, target, &mut warnings)?;
        self.embedding(shapes, target, &mut warnings)?;
        let mut rope = self.rope.clone();
        if let Some(theta) = options.theta {
            rope.theta = theta;
        }
        rope.check(
            if options.theta.is_some() {
                "--head-theta"
            } else {
                "rope_theta"
            },
            self.head_dim,
        )?;
        let max_position = match options.context {
            Some(context) if (1..=MAX_POSITION).contains(&context) => context,
            Some(context) => {
                return Err(Problem::key(
                    "--head-context",
                    context,
                    &format!("1 to {MAX_POSITION}"),
                ));
            }
            None => self.max_position,
        };
        let config = HeadConfig {
            version,
            source: self.source,
            hidden: self.hidden,
            target_hidden: target.hidden,
            layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            intermediate: self.intermediate,
            vocab: target.vocab,
            draft_vocab: output.rows,
            eps: self.eps,
            rope,
            max_position,
            fc: taps > 0 || !eagle3,
            feature,
            taps_convention: convention,
            fc_bias,
            norm_before_fc,
            fc_norm,
            embed_norm,
            input_norm: input_norm || eagle3,
            norm_before_residual: eagle3 && self.norm_before_residual,
            norm_output,
            norm_before_head,
            attention_bias,
            output_bias: has("layers.0.self_attn.o_proj.bias"),
            qk_norm,
            sliding_window: self.windows.of(layers)?,
            own_embedding: has("embed_tokens.weight"),
            own_head: output.own,
            vocab_map: output.map,
            map_form: output.form,
            warnings,
        };
        Ok(Resolved {
            config,
            order: output.order,
            dropped,
        })
    }

    fn check(&self) -> Result<(), Problem> {
        let optional = |size: Option<usize>| size.unwrap_or(1);
        for (key, value, limit) in [
            ("hidden_size", self.hidden, MAX_WIDTH),
            ("intermediate_size", self.intermediate, MAX_WIDTH * 4),
            ("num_attention_heads", self.heads, MAX_HEADS),
            ("num_key_value_heads", self.kv_heads, MAX_HEADS),
            ("head_dim", self.head_dim, MAX_HEAD_DIM),
            ("max_position_embeddings", self.max_position, MAX_POSITION),
            ("vocab_size", optional(self.vocab), MAX_VOCAB),
            ("draft_vocab_size", optional(self.draft_vocab), MAX_VOCAB),
        ] {
            if !(1..=limit).contains(&value) {
                return Err(Problem::key(key, value, &format!("1 to {limit}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Problem::contradiction(
                format!("num_attention_heads is {}", self.heads),
                format!("num_key_value_heads is {}", self.kv_heads),
                "a number of key heads that divides the number of heads",
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(Problem::key(
                "head_dim",
                self.head_dim,
                "an even number (rope turns pairs)",
            ));
        }
        if !(self.eps > 0.0 && self.eps < 1.0) {
            return Err(Problem::key(
                "rms_norm_eps",
                self.eps,
                "a number between 0 and 1",
            ));
        }
        Ok(())
    }

    /// EAGLE-3 has a map, a norm for the fed-back stream, or queries from two streams; EAGLE-1 has
    /// none of these, and fuses embedding and feature.
    fn version(&self, shapes: &Shapes, maps: &Maps) -> Result<Version, Problem> {
        let width = |name: &str| shapes.get(name).and_then(|shape| shape.get(1)).copied();
        let wide = width("layers.0.self_attn.q_proj.weight") == Some(2 * self.hidden);
        let normed = shapes.contains_key("layers.0.hidden_norm.weight");
        let version = if maps.d2t.is_some() || maps.t2d.is_some() || normed || wide {
            Version::Eagle3
        } else if width("fc.weight") == Some(2 * self.hidden) {
            Version::Eagle1
        } else {
            return Err(Problem::Unrecognised {
                found: format!("the tensors are of no head of width {}", self.hidden),
                accepted: "EAGLE-1 (fc.weight of width 2 * hidden) or EAGLE-3 (layers.0.hidden_norm.weight)".to_owned(),
            });
        };
        match self.eagle3 {
            Some(said) if said != (version == Version::Eagle3) => Err(Problem::contradiction(
                format!(
                    "the configuration says {}",
                    if said { "EAGLE-3" } else { "EAGLE-1" }
                ),
                format!("the tensors are of {}", version.name()),
                "the same of both",
            )),
            _ => Ok(version),
        }
    }

    /// The layers that the tensors have: what files declare is often the target's number.
    fn count_layers(&self, shapes: &Shapes, warnings: &mut Vec<String>) -> Result<usize, Problem> {
        let number = |name: &String| {
            name.strip_prefix("layers.")?
                .split('.')
                .next()?
                .parse::<usize>()
                .ok()
        };
        let most = shapes.keys().filter_map(number).max().unwrap_or(0);
        let layers = most.saturating_add(1);
        if layers > MAX_LAYERS {
            return Err(Problem::key(
                "the number of layers",
                layers,
                &format!("1 to {MAX_LAYERS}"),
            ));
        }
        for layer in 1..layers {
            let has = |name: &str| shapes.contains_key(&format!("layers.{layer}.{name}"));
            if has("hidden_norm.weight") && !has("input_layernorm.weight") {
                return Err(Problem::UnknownTensor {
                    tensor: format!("layers.{layer}.hidden_norm.weight"),
                    why: "layers from 1 on have input_layernorm (SGLang's several layers are another network)".to_owned(),
                });
            }
        }
        if let Some(said) = self.layers.filter(|said| *said != layers) {
            warnings.push(format!(
                "num_hidden_layers is {said}; the file has tensors of {layers}, which decides"
            ));
        }
        Ok(layers)
    }

    fn feature(
        &self,
        version: Version,
        shapes: &Shapes,
        target: &TargetFacts,
        options: &HeadOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(Feature, Option<TapsConvention>), Problem> {
        if let Some(said) = self.target_hidden.filter(|said| *said != target.hidden) {
            return Err(Problem::contradiction(
                format!("target_hidden_size is {said}"),
                format!("the target's width is {}", target.hidden),
                "a head made for a target of this width",
            ));
        }
        let fc = shapes.get("fc.weight");
        let taps = match (version, fc, self.use_taps) {
            (Version::Eagle1, ..) | (_, None, None | Some(false)) => 0,
            (Version::Eagle3, Some(_), Some(false)) => {
                return Err(Problem::contradiction(
                    "use_aux_hidden_state is false",
                    "there is a tensor fc.weight",
                    "true, or no such tensor",
                ));
            }
            (Version::Eagle3, None, Some(true)) => {
                let accepted =
                    "one of shape [hidden, taps * target_hidden], as the head taps streams"
                        .to_owned();
                let tensor = "fc.weight".to_owned();
                return Err(Problem::MissingTensor { tensor, accepted });
            }
            (Version::Eagle3, Some(shape), _) => {
                let width = shape.get(1).copied().unwrap_or(0);
                if width == 0 || !width.is_multiple_of(target.hidden) {
                    return Err(Problem::contradiction(
                        format!("fc.weight has shape {shape:?}"),
                        format!("the target's width is {}", target.hidden),
                        "a whole number of taps of that width",
                    ));
                }
                width / target.hidden
            }
        };
        if taps > 0 {
            if let Some(said) = self.tap_count.filter(|said| *said != taps) {
                return Err(Problem::contradiction(
                    format!("num_aux_hidden_states is {said}"),
                    format!("fc.weight is as wide as {taps} taps of {}", target.hidden),
                    "the same number",
                ));
            }
            let asked = options.taps_convention;
            let width = target.hidden;
            let fused = taps::Fused { taps, width };
            let (taps, convention) =
                taps::decide(&self.taps, target.layers, fused, asked, warnings)?;
            return Ok((Feature::Taps(taps), Some(convention)));
        }
        if let Some(asked) = options.taps_convention {
            return Err(Problem::key(
                "--taps-convention",
                asked.name(),
                "no such flag: the head taps no streams",
            ));
        }
        if self.hidden != target.hidden {
            return Err(Problem::contradiction(
                format!("hidden_size is {}", self.hidden),
                format!("the target's width is {}", target.hidden),
                "the same width, as the head is fed the target's last stream as it is",
            ));
        }
        Ok((Feature::Final, None))
    }

    /// Whether the normed output is fed back, and whether it is normed for the head. One key has had
    /// two meanings.
    fn output_norms(
        &self,
        options: &HeadOptions,
        dropped: &mut BTreeSet<String>,
        warnings: &mut Vec<String>,
    ) -> Result<(bool, bool), Problem> {
        let flat = matches!(self.source, Source::SpecForge | Source::SafeAiLab);
        match (self.norm_output, options.norm_output) {
            (None, Some(_)) => Err(no_norm_output()),
            (Some(said), Some(NormOutput::Head)) => {
                if !said {
                    dropped.insert("norm.weight".to_owned());
                    warnings.push("norm_output is false: norm.weight is not used".to_owned());
                }
                Ok((false, said))
            }
            (said, _) => {
                if let Some(said) = said.filter(|_| flat && options.norm_output.is_none()) {
                    warnings.push(format!(
                        "norm_output is {said}, read as EAGLE-3.1 does: what is fed back is {}; SpecForge up to 0.2.0 meant the norm before the head by it (--head-norm-output head)",
                        if said { "normed" } else { "not normed" }
                    ));
                }
                Ok((said.unwrap_or(false), true))
            }
        }
    }
}

fn no_norm_output() -> Problem {
    let accepted = "no such flag: the head has no key norm_output";
    Problem::key("--head-norm-output", "given", accepted)
}

/// A norm that a key switches on and a tensor makes possible: both or neither.
fn flagged(key: &str, said: Option<bool>, tensor: &str, there: bool) -> Result<bool, Problem> {
    let said = said.unwrap_or(false);
    if said == there {
        return Ok(there);
    }
    Err(Problem::contradiction(
        format!("{key} is {said}"),
        format!(
            "tensor {tensor} is {}",
            if there { "there" } else { "missing" }
        ),
        "true with the tensor, or false without it",
    ))
}

/// A bias that its tensor decides; a key that promises one that is missing is an error.
fn biased(
    key: &str,
    said: Option<bool>,
    tensor: &str,
    there: bool,
    warnings: &mut Vec<String>,
) -> Result<(), Problem> {
    match said {
        Some(true) if !there => flagged(key, said, tensor, there).map(drop),
        Some(false) | None if there => {
            warnings.push(format!(
                "{key} is {}; the file has {tensor}, which is used",
                said.map_or("missing", |_| "false")
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}
