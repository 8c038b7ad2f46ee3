//! `config.json`.

use serde_json::{Map, Value};

use super::{Config, Declared, Keys, RopeConfig, RopeScaling, derived_head_dim};
use crate::model::load::{Problem, json};

const KEYS: Keys = Keys {
    hidden: "hidden_size",
    intermediate: "intermediate_size",
    layers: "num_hidden_layers",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
    vocab: "vocab_size",
    max_position: "max_position_embeddings",
    eps: "rms_norm_eps",
    theta: "rope_theta",
};

/// Keys with no bearing on what an inference pass computes.
const INERT: [&str; 26] = [
    "_attn_implementation",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "hidden_dropout",
    "initializer_range",
    "is_llama_config",
    "is_decoder",
    "is_encoder_decoder",
    "max_length",
    "max_window_layers",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "return_dict",
    "tie_word_embeddings",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

/// Keys that change the computation, each with the only values that leave it as we compute it.
/// `null` always does.
const FIXED: [(&str, Only); 31] = [
    ("attention_bias", Only::False),
    ("attention_multiplier", Only::Never),
    ("attn_logit_softcapping", Only::Never),
    ("clip_qkv", Only::Never),
    ("embedding_multiplier", Only::One),
    ("expert_used_count", Only::Never),
    ("final_logit_softcapping", Only::Never),
    ("hidden_act", Only::Silu),
    ("hidden_activation", Only::Silu),
    ("layer_types", Only::FullAttention),
    ("logit_scale", Only::One),
    ("logits_scaling", Only::One),
    ("mlp_bias", Only::False),
    ("mup_base_width", Only::Never),
    ("no_rope_layers", Only::Never),
    ("num_experts", Only::Never),
    ("num_experts_per_tok", Only::Never),
    ("num_local_experts", Only::Never),
    ("partial_rotary_factor", Only::One),
    ("pretraining_tp", Only::One),
    ("qk_layernorm", Only::False),
    ("qk_norm", Only::False),
    ("quantization_config", Only::Never),
    ("query_pre_attn_scalar", Only::Never),
    ("residual_multiplier", Only::One),
    ("rope_interleaved", Only::False),
    ("scale_emb", Only::One),
    ("scale_depth", Only::Never),
    ("sliding_window", Only::Never),
    ("use_qk_norm", Only::False),
    ("use_sliding_window", Only::False),
];

/// What a key may say without changing the computation.
#[derive(Clone, Copy)]
enum Only {
    Never,
    False,
    One,
    Silu,
    FullAttention,
}

impl Only {
    fn admits(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            Self::Never => false,
            Self::False => *value == Value::Bool(false),
            Self::One => value.as_f64() == Some(1.0),
            Self::Silu => matches!(value.as_str(), Some("silu" | "swish")),
            Self::FullAttention => value
                .as_array()
                .is_some_and(|kinds| kinds.iter().all(|kind| kind == "full_attention")),
        }
    }

    fn accepted(self) -> &'static str {
        match self {
            Self::Never => "null, or no such key",
            Self::False => "false",
            Self::One => "1",
            Self::Silu => "\"silu\"",
            Self::FullAttention => "\"full_attention\" for every layer",
        }
    }
}

pub(super) fn read(text: &str) -> Result<Declared, Problem> {
    let map = json::object("the configuration", text)?;
    let mistral = match map.get("model_type").and_then(Value::as_str) {
        Some("llama") => false,
        Some("mistral") => true,
        _ => {
            let accepted = "\"llama\" or \"mistral\"";
            return Err(match map.get("model_type") {
                Some(value) => Problem::key("model_type", json::brief(value), accepted),
                None => Problem::missing("model_type", accepted),
            });
        }
    };
    let mut file = Fields::new(&map);
    file.fixed(&[])?;
    if mistral && !map.contains_key("sliding_window") {
        let accepted = "null (a mistral configuration without the key means a window of 4096)";
        return Err(Problem::missing("sliding_window", accepted));
    }

    let hidden = file.size(KEYS.hidden)?;
    let heads = file.size(KEYS.heads)?;
    let kv_heads = match file.optional_size(KEYS.kv_heads)? {
        Some(kv_heads) => kv_heads,
        None if mistral && !map.contains_key(KEYS.kv_heads) => 8,
        None => heads,
    };
    let head_dim = match file.optional_size(KEYS.head_dim)? {
        Some(head_dim) => head_dim,
        None => derived_head_dim(&KEYS, hidden, heads)?,
    };
    let rope = file.rope()?;
    let tied = file.flag("tie_word_embeddings")?;
    let config = Config {
        hidden,
        intermediate: file.size(KEYS.intermediate)?,
        layers: file.size(KEYS.layers)?,
        heads,
        kv_heads,
        head_dim,
        vocab: file.size(KEYS.vocab)?,
        eps: match file.number(KEYS.eps)? {
            Some(eps) => eps,
            None => file.default(KEYS.eps, 1e-6),
        },
        rope,
        max_position: match file.optional_size(KEYS.max_position)? {
            Some(positions) => positions,
            None => file.default(KEYS.max_position, if mistral { 131_072 } else { 2048 }),
        },
        tied: tied.unwrap_or(false),
    };
    config.check(&KEYS)?;
    let eos = crate::model::load::eos_ids(&map, config.vocab)?;
    file.unknown(&[]);
    Ok(Declared {
        config,
        tied,
        eos,
        warnings: file.warnings,
    })
}

/// The keys of a configuration, and what is to be said of them.
pub(crate) struct Fields<'m> {
    map: &'m Map<String, Value>,
    pub(crate) warnings: Vec<String>,
}

impl<'m> Fields<'m> {
    pub(crate) fn new(map: &'m Map<String, Value>) -> Self {
        let warnings = Vec::new();
        Self { map, warnings }
    }

    /// Refuses what changes the computation, but for the keys `known` to the caller.
    pub(crate) fn fixed(&self, known: &[&str]) -> Result<(), Problem> {
        for (key, only) in FIXED.iter().filter(|(key, _)| !known.contains(key)) {
            if let Some(value) = self.map.get(*key)
                && !only.admits(value)
            {
                return Err(Problem::key(*key, json::brief(value), only.accepted()));
            }
        }
        Ok(())
    }

    /// The value of `key`, if there is one that is not null.
    pub(crate) fn get(&self, key: &str) -> Option<&'m Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn optional_size(&self, key: &str) -> Result<Option<usize>, Problem> {
        self.get(key).map(|value| as_size(key, value)).transpose()
    }

    pub(crate) fn size(&self, key: &str) -> Result<usize, Problem> {
        self.optional_size(key)?
            .ok_or_else(|| Problem::missing(key, "a positive integer"))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, Problem> {
        self.get(key).map(|value| as_number(key, value)).transpose()
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        let cast = |value: &Value| {
            let wrong = || Problem::key(key, json::brief(value), "true or false");
            value.as_bool().ok_or_else(wrong)
        };
        self.get(key).map(cast).transpose()
    }

    pub(crate) fn default<T: std::fmt::Display>(&mut self, key: &str, value: T) -> T {
        self.warnings.push(format!(
            "key {key} is missing; {value} is the default of its class"
        ));
        value
    }

    /// Theta and scaling: at top level with `rope_scaling`, or together in `rope_parameters`.
    pub(crate) fn rope(&mut self) -> Result<RopeConfig, Problem> {
        let top = self.number(KEYS.theta)?;
        let old = self.section("rope_scaling")?;
        let new = self.section("rope_parameters")?;
        let mut theta = top.map(|theta| (KEYS.theta.to_owned(), theta));
        let mut scaling = None::<(&str, RopeScaling)>;
        for (name, section) in [("rope_scaling", old), ("rope_parameters", new)] {
            let Some(section) = section else { continue };
            let key = format!("{name}.rope_theta");
            let nested = match section.get("rope_theta").filter(|value| !value.is_null()) {
                Some(value) => Some(as_number(&key, value)?),
                None => None,
            };
            match (&theta, nested) {
                (Some((other, value)), Some(nested)) if *value != nested => {
                    return Err(Problem::contradiction(
                        format!("{other} is {value}"),
                        format!("{key} is {nested}"),
                        "the same number, or one of the two",
                    ));
                }
                (None, Some(nested)) => theta = Some((key, nested)),
                _ => {}
            }
            let found = self.scaling(name, &section)?;
            match &scaling {
                Some((other, value)) if *value != found => {
                    return Err(Problem::contradiction(
                        format!("{other} asks for {}", value.name()),
                        format!("{name} for {}, or with other numbers", found.name()),
                        "the same rotary scaling, or one of the two",
                    ));
                }
                _ => scaling = Some((name, found)),
            }
        }
        Ok(RopeConfig {
            theta: match theta {
                Some((_, theta)) => theta,
                None => self.default(KEYS.theta, 10_000.0),
            },
            scaling: scaling.map_or(RopeScaling::None, |(_, scaling)| scaling),
        })
    }

    pub(crate) fn section(&self, key: &str) -> Result<Option<Map<String, Value>>, Problem> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(section)) if section.is_empty() => Ok(None),
            Some(Value::Object(section)) => Ok(Some(by_layer_type(key, section)?.clone())),
            Some(other) => Err(Problem::key(key, json::brief(other), "an object or null")),
        }
    }

    fn scaling(
        &mut self,
        name: &str,
        section: &Map<String, Value>,
    ) -> Result<RopeScaling, Problem> {
        const ACCEPTED: &str = "\"default\", \"linear\", \"llama3\" or \"yarn\"";
        let kind = |key: &str| match section.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(kind)) => Ok(Some(kind.as_str())),
            Some(other) => Err(Problem::key(
                format!("{name}.{key}"),
                json::brief(other),
                ACCEPTED,
            )),
        };
        let kind = match (kind("rope_type")?, kind("type")?) {
            (Some(one), Some(other)) if one != other => {
                return Err(Problem::contradiction(
                    format!("{name}.rope_type is {one:?}"),
                    format!("{name}.type is {other:?}"),
                    "the same type, or one of the two",
                ));
            }
            (Some(kind), _) | (None, Some(kind)) => kind,
            (None, None) if section.contains_key("factor") => {
                return Err(Problem::missing(&format!("{name}.rope_type"), ACCEPTED));
            }
            (None, None) => "default",
        };
        let number = |key: &str| {
            let key_in = format!("{name}.{key}");
            match section.get(key) {
                Some(value) => as_number(&key_in, value),
                None => Err(Problem::missing(&key_in, "a number, for this rope type")),
            }
        };
        let mut known = vec!["rope_type", "type", "rope_theta", "partial_rotary_factor"];
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => {
                known.push("factor");
                let factor = number("factor")?;
                RopeScaling::Linear { factor }
            }
            "yarn" => {
                const ORIGINAL: &str = "original_max_position_embeddings";
                const CONTEXT: &str = "max_position_embeddings";
                const REFUSED: [&str; 2] = ["mscale", "mscale_all_dim"];
                if let Some(key) = REFUSED.iter().find(|key| section.contains_key(**key)) {
                    let value = json::brief(&section[*key]);
                    return Err(Problem::key(format!("{name}.{key}"), value, "no such key"));
                }
                known.extend([
                    "factor",
                    ORIGINAL,
                    "beta_fast",
                    "beta_slow",
                    "attention_factor",
                    "truncate",
                ]);
                let optional = |key: &str| match section.get(key) {
                    None | Some(Value::Null) => Ok(None),
                    Some(value) => as_number(&format!("{name}.{key}"), value).map(Some),
                };
                let factor = number("factor")?;
                let usual = if factor > 1.0 {
                    0.1 * factor.ln() + 1.0
                } else {
                    1.0
                };
                let key = format!("{name}.{ORIGINAL}");
                RopeScaling::Yarn {
                    factor,
                    original_max_position: match (section.get(ORIGINAL), self.map.get(CONTEXT)) {
                        (Some(value), _) => as_size(&key, value)?,
                        (None, Some(value)) => as_size(CONTEXT, value)?,
                        (None, None) => return Err(Problem::missing(&key, "a positive integer")),
                    },
                    beta_fast: optional("beta_fast")?.unwrap_or(32.0),
                    beta_slow: optional("beta_slow")?.unwrap_or(1.0),
                    attention_factor: optional("attention_factor")?.unwrap_or(usual),
                    truncate: match section.get("truncate") {
                        None | Some(Value::Null) => true,
                        Some(Value::Bool(truncate)) => *truncate,
                        Some(other) => {
                            let key = format!("{name}.truncate");
                            return Err(Problem::key(key, json::brief(other), "true or false"));
                        }
                    },
                }
            }
            "llama3" => {
                const ORIGINAL: &str = "original_max_position_embeddings";
                known.extend(["factor", "low_freq_factor", "high_freq_factor", ORIGINAL]);
                let original = section.get(ORIGINAL);
                let key = format!("{name}.{ORIGINAL}");
                RopeScaling::Llama3 {
                    factor: number("factor")?,
                    low_freq_factor: number("low_freq_factor")?,
                    high_freq_factor: number("high_freq_factor")?,
                    original_max_position: match original {
                        Some(value) => as_size(&key, value)?,
                        None => return Err(Problem::missing(&key, "a positive integer")),
                    },
                }
            }
            other => {
                let key = if section.contains_key("rope_type") {
                    "rope_type"
                } else {
                    "type"
                };
                let value = format!("{other:?}");
                return Err(Problem::key(format!("{name}.{key}"), value, ACCEPTED));
            }
        };
        if let Some(value) = section.get("partial_rotary_factor")
            && !Only::One.admits(value)
        {
            let key = format!("{name}.partial_rotary_factor");
            return Err(Problem::key(key, json::brief(value), Only::One.accepted()));
        }
        for (key, value) in section {
            if value.is_object() {
                let accepted = "one rotary embedding for all layers";
                return Err(Problem::key(
                    format!("{name}.{key}"),
                    json::brief(value),
                    accepted,
                ));
            }
            if !known.contains(&key.as_str()) {
                let value = json::brief(value);
                self.warnings.push(format!(
                    "key {name}.{key} ({value}) is unknown for rope type {kind}; it is ignored"
                ));
            }
        }
        Ok(scaling)
    }

    /// Warns of what nobody knows, the caller's `known` keys included.
    pub(crate) fn unknown(&mut self, known: &[&str]) {
        let sizes = KEYS.all();
        let rope = ["rope_scaling", "rope_parameters"];
        for (key, value) in self.map {
            let key = key.as_str();
            let known = known.contains(&key)
                || sizes.contains(&key)
                || rope.contains(&key)
                || INERT.contains(&key)
                || FIXED.iter().any(|(fixed, _)| *fixed == key);
            if !known {
                let value = json::brief(value);
                self.warnings
                    .push(format!("key {key} ({value}) is unknown; it is ignored"));
            }
        }
    }
}

/// The one section that all layer types have, where they have one each.
fn by_layer_type<'s>(
    key: &str,
    section: &'s Map<String, Value>,
) -> Result<&'s Map<String, Value>, Problem> {
    let inner: Option<Vec<&Map<String, Value>>> = section.values().map(Value::as_object).collect();
    let kinds = section.keys().all(|kind| kind.ends_with("_attention"));
    match inner.as_deref() {
        Some([first, rest @ ..]) if kinds => {
            if rest.iter().all(|other| other == first) {
                return Ok(first);
            }
            let value = json::brief(&Value::Object(section.clone()));
            Err(Problem::key(
                key,
                value,
                "one rotary embedding for all layers",
            ))
        }
        _ => Ok(section),
    }
}

fn as_size(key: &str, value: &Value) -> Result<usize, Problem> {
    value
        .as_u64()
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size > 0)
        .ok_or_else(|| Problem::key(key, json::brief(value), "a positive integer"))
}

fn as_number(key: &str, value: &Value) -> Result<f64, Problem> {
    value
        .as_f64()
        .ok_or_else(|| Problem::key(key, json::brief(value), "a number"))
}
