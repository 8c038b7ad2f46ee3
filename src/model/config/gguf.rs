//! GGUF metadata of architecture `llama`.

use super::{Config, Declared, Keys, RopeConfig, RopeScaling, derived_head_dim};
use crate::model::load::{
    Problem, eos_id,
    gguf::{Metadata, Value},
};

const KEYS: Keys = Keys {
    hidden: "llama.embedding_length",
    intermediate: "llama.feed_forward_length",
    layers: "llama.block_count",
    heads: "llama.attention.head_count",
    kv_heads: "llama.attention.head_count_kv",
    head_dim: "llama.attention.key_length",
    vocab: "llama.vocab_size",
    max_position: "llama.context_length",
    eps: "llama.attention.layer_norm_rms_epsilon",
    theta: "llama.rope.freq_base",
};

const VALUE_LENGTH: &str = "llama.attention.value_length";
const ROPE_DIMENSION: &str = "llama.rope.dimension_count";
const SCALING: &str = "llama.rope.scaling.type";
const EOS: &str = "tokenizer.ggml.eos_token_id";

/// Keys that change the computation, each with the only number (or flag, as 0 or 1) that leaves it
/// as we compute it; `None`: the key must not be there.
const FIXED: [(&str, Option<f64>); 16] = [
    ("llama.attention.causal", Some(1.0)),
    ("llama.attention.clamp_kqv", None),
    ("llama.attention.scale", None),
    ("llama.attention.sliding_window", Some(0.0)),
    ("llama.attn_logit_softcapping", None),
    ("llama.embedding_scale", Some(1.0)),
    ("llama.expert_count", Some(0.0)),
    ("llama.expert_used_count", Some(0.0)),
    ("llama.final_logit_softcapping", None),
    ("llama.interleave_moe_layer_step", None),
    ("llama.logit_scale", Some(1.0)),
    ("llama.residual_scale", Some(1.0)),
    ("llama.rope.scale_linear", Some(1.0)),
    ("llama.rope.scaling.attn_factor", Some(1.0)),
    ("llama.use_parallel_residual", Some(0.0)),
    ("split.count", Some(1.0)),
];

/// Further keys of the architecture that were read or have no bearing.
const INERT: [&str; 6] = [
    VALUE_LENGTH,
    ROPE_DIMENSION,
    SCALING,
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.finetuned",
];

pub(super) fn read(
    metadata: &Metadata,
    vocab: usize,
    factors: Option<Vec<f32>>,
) -> Result<Declared, Problem> {
    of_architecture(metadata, "llama")?;
    for (key, only) in FIXED {
        if let Some(value) = metadata.get(key) {
            let number = number(value);
            if only.is_none() || number != only {
                let accepted = only.map_or("no such key".to_owned(), |only| only.to_string());
                return Err(Problem::key(key, value, &accepted));
            }
        }
    }
    match metadata.str(SCALING)? {
        None | Some("none") => {}
        Some(other) => {
            let accepted = "\"none\" (with rope_freqs.weight for llama 3.1's scaling)";
            return Err(Problem::key(SCALING, format!("{other:?}"), accepted));
        }
    }

    let hidden = size(metadata, KEYS.hidden)?;
    let heads = size(metadata, KEYS.heads)?;
    let head_dim = match optional_size(metadata, KEYS.head_dim)? {
        Some(head_dim) => head_dim,
        None => match optional_size(metadata, ROPE_DIMENSION)? {
            Some(head_dim) => head_dim,
            None => derived_head_dim(&KEYS, hidden, heads)?,
        },
    };
    of_width(metadata, &[VALUE_LENGTH, ROPE_DIMENSION], head_dim)?;
    if let Some(declared) = optional_size(metadata, KEYS.vocab)?
        && declared != vocab
    {
        return Err(Problem::contradiction(
            format!("{} is {declared}", KEYS.vocab),
            format!("token_embd.weight has {vocab} rows"),
            "the same number",
        ));
    }
    let mut warnings = Vec::new();
    let eps = metadata
        .float(KEYS.eps)?
        .ok_or_else(|| Problem::missing(KEYS.eps, "a number between 0 and 1"))?;
    let theta = metadata.float(KEYS.theta)?.unwrap_or_else(|| {
        warnings.push(format!(
            "key {} is missing; 10000 is its default",
            KEYS.theta
        ));
        10_000.0
    });
    let config = Config {
        hidden,
        intermediate: size(metadata, KEYS.intermediate)?,
        layers: size(metadata, KEYS.layers)?,
        heads,
        kv_heads: optional_size(metadata, KEYS.kv_heads)?.unwrap_or(heads),
        head_dim,
        vocab,
        eps,
        rope: RopeConfig {
            theta,
            scaling: factors.map_or(RopeScaling::None, RopeScaling::Factors),
        },
        max_position: size(metadata, KEYS.max_position)?,
        tied: false,
    };
    config.check(&KEYS)?;
    let eos = metadata
        .uint(EOS)?
        .map(|id| eos_id(EOS, id, vocab).map(|id| vec![id]))
        .transpose()?;
    warnings.extend(unknown(metadata));
    Ok(Declared {
        config,
        tied: None,
        eos,
        warnings,
    })
}

/// A number, or a flag as 0 or 1.
pub(crate) fn number(value: &Value) -> Option<f64> {
    let flag = value.as_bool().map(|flag| f64::from(u8::from(flag)));
    let int = || {
        value
            .as_int()
            .and_then(|int| i32::try_from(int).ok())
            .map(f64::from)
    };
    flag.or_else(|| value.as_float()).or_else(int)
}

/// A size; an array (one number a layer) only if all its numbers agree.
pub(crate) fn optional_size(metadata: &Metadata, key: &str) -> Result<Option<usize>, Problem> {
    const ACCEPTED: &str = "a positive integer, the same for every layer";
    let Some(value) = metadata.get(key) else {
        return Ok(None);
    };
    let one = match value.as_array() {
        Some([first, rest @ ..]) if rest.iter().all(|other| other == first) => first,
        _ => value,
    };
    one.as_uint()
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size > 0)
        .map(Some)
        .ok_or_else(|| Problem::key(key, value, ACCEPTED))
}

/// Refuses metadata of another architecture.
pub(crate) fn of_architecture(metadata: &Metadata, name: &str) -> Result<(), Problem> {
    const KEY: &str = "general.architecture";
    let accepted = format!("{name:?}");
    match metadata.str(KEY)? {
        Some(found) if found == name => Ok(()),
        Some(other) => Err(Problem::key(KEY, format!("{other:?}"), &accepted)),
        None => Err(Problem::missing(KEY, &accepted)),
    }
}

/// Refuses one of `keys`, where it is there, that is not the width of a head.
pub(crate) fn of_width(metadata: &Metadata, keys: &[&str], head_dim: usize) -> Result<(), Problem> {
    for key in keys {
        if let Some(other) = optional_size(metadata, key)?
            && other != head_dim
        {
            return Err(Problem::contradiction(
                format!("{key} is {other}"),
                format!("the width of a head is {head_dim}"),
                "the same number",
            ));
        }
    }
    Ok(())
}

pub(crate) fn size(metadata: &Metadata, key: &str) -> Result<usize, Problem> {
    optional_size(metadata, key)?.ok_or_else(|| Problem::missing(key, "a positive integer"))
}

fn unknown(metadata: &Metadata) -> impl Iterator<Item = String> {
    let sizes = KEYS.all();
    metadata
        .iter()
        .filter(|(key, _)| key.starts_with("llama."))
        .filter(move |(key, _)| {
            !(sizes.contains(key)
                || INERT.contains(key)
                || FIXED.iter().any(|(fixed, _)| fixed == key))
        })
        .map(|(key, value)| format!("key {key} ({value}) is unknown; it is ignored"))
}
