//! `config.json` of a head: flat, as SafeAILab, SpecForge and SGLang have it, or nested, as
//! speculators does.

use serde_json::{Map, Value};

use super::{
    super::config::Source,
    declared::{Declared, Windows},
    taps::Listed,
};
use crate::model::{
    config::Fields,
    load::{Problem, json},
};

const IDS: &str = "eagle_aux_hidden_state_layer_ids";
const NESTED: &str = "transformer_layer_config";

/// Keys that mean another method, and its name.
const FOREIGN: [(&str, &str); 5] = [
    ("mask_hidden", "P-EAGLE (parallel drafting)"),
    ("pard_token", "PARD (parallel drafting)"),
    ("ptd_token_id", "P-EAGLE (parallel drafting)"),
    ("block_size", "DFlash (block drafting)"),
    (
        "truncated_vocab_size",
        "vLLM v0's EAGLE-1, whose rows are paired in another way",
    ),
];

/// Keys of a head that [`Fields::fixed`] would refuse in a target.
const OPEN: [&str; 6] = [
    "attention_bias",
    "layer_types",
    "qk_layernorm",
    "qk_norm",
    "sliding_window",
    "use_sliding_window",
];

/// Keys that are read here.
const KNOWN: [&str; 18] = [
    "bias",
    "draft_vocab_size",
    IDS,
    "eagle_config",
    "eagle_fc_bias",
    "fc_norm",
    "layer_types",
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
    "num_aux_hidden_states",
    "qk_norm",
    "qkv_bias",
    "rope_theta",
    "sliding_window",
    "target_hidden_size",
    "use_aux_norm",
    "use_sliding_window",
];

/// What Hugging Face's class of a model type takes for a missing key.
struct Defaults {
    vocab: usize,
    hidden: usize,
    intermediate: usize,
    heads: usize,
    /// `None`: as many as `heads`.
    kv_heads: Option<usize>,
    /// `None`: `hidden / heads`.
    head_dim: Option<usize>,
    max_position: usize,
}

const LLAMA: Defaults = Defaults {
    vocab: 32_000,
    hidden: 4096,
    intermediate: 11_008,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    max_position: 2048,
};

const QWEN3: Defaults = Defaults {
    vocab: 151_936,
    hidden: 4096,
    intermediate: 22_016,
    heads: 32,
    kv_heads: Some(32),
    head_dim: Some(128),
    max_position: 32_768,
};

impl Declared {
    /// Reads the text of a head's `config.json`.
    ///
    /// # Errors
    /// A [`Problem`] that names the key, its value and what would be accepted.
    pub fn from_json(text: &str) -> Result<Self, Problem> {
        let map = json::object("the configuration", text)?;
        for (key, method) in FOREIGN {
            if let Some(value) = map.get(key).filter(|value| !value.is_null()) {
                let value = format!("{}, a key of {method}", json::brief(value));
                return Err(Problem::key(key, value, "a head of EAGLE-1 or EAGLE-3"));
            }
        }
        match map.get("speculators_model_type") {
            Some(kind) => speculators(&map, kind),
            None if map.contains_key(NESTED) => Err(Problem::missing(
                "speculators_model_type",
                "\"eagle3\" or \"eagle\"",
            )),
            None => flat(&map),
        }
    }
}

fn flat(map: &Map<String, Value>) -> Result<Declared, Problem> {
    let mut fields = Fields::new(map);
    fields.fixed(&OPEN)?;
    let qwen3 = match map.get("model_type").map(|kind| (kind, kind.as_str())) {
        None | Some((Value::Null, _)) => false,
        Some((_, Some("llama" | "mistral" | "qwen2"))) => false,
        Some((_, Some("qwen3"))) => true,
        Some((kind, _)) => {
            let accepted = "\"llama\", \"mistral\", \"qwen2\" or \"qwen3\"";
            return Err(Problem::key("model_type", json::brief(kind), accepted));
        }
    };
    let eagle_config = fields.section("eagle_config")?.unwrap_or_default();
    let nested = Fields::new(&eagle_config);
    let forge = !eagle_config.is_empty()
        || map
            .get("architectures")
            .and_then(Value::as_array)
            .is_some_and(|names| {
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .any(|name| name.contains("Eagle"))
            });
    let source = if forge {
        Source::SpecForge
    } else {
        Source::SafeAiLab
    };
    let mut declared = layer(&mut fields, source, None)?;
    declared.qk_norm = qwen3.then_some(true);
    declared.draft_vocab = fields.optional_size("draft_vocab_size")?;
    declared.target_hidden = fields.optional_size("target_hidden_size")?;
    declared.tap_count = fields.optional_size("num_aux_hidden_states")?;
    let nested_ids = ids(&nested, "eagle_config.", IDS)?;
    let layer_ids = ids(&nested, "eagle_config.", "layer_ids")?;
    let top = ids(&fields, "", IDS)?;
    if let (Some(one), Some(other)) = (&top, &layer_ids)
        && one != other
    {
        return Err(Problem::contradiction(
            format!("{IDS} is {one:?}"),
            format!("eagle_config.layer_ids is {other:?}"),
            "the same list, or one of the two",
        ));
    }
    declared.taps = Listed {
        top: top.or(layer_ids),
        called: None,
        nested: nested_ids,
    };
    declared.use_taps = nested.flag("use_aux_hidden_state")?;
    declared.norm_before_fc = either(&fields, &nested, "norm_before_fc")?;
    let other = fields.flag("use_aux_norm")?;
    declared.fc_norm = fields.flag("fc_norm")?.or(other);
    declared.norm_before_residual =
        either(&fields, &nested, "norm_before_residual")?.unwrap_or(false);
    if declared.norm_before_residual {
        fields.warnings.push(
            "norm_before_residual is true: SGLang and the paper's code would ignore it".to_owned(),
        );
    }
    declared.norm_output = either(&fields, &nested, "norm_output")?;
    declared.fc_bias = match fields.flag("eagle_fc_bias")? {
        None => fields.flag("bias")?,
        some => some,
    };
    fields.unknown(&KNOWN);
    declared.warnings.extend(fields.warnings);
    let known = [
        IDS,
        "layer_ids",
        "use_aux_hidden_state",
        "norm_before_fc",
        "norm_before_residual",
        "norm_output",
    ];
    for (key, value) in &eagle_config {
        if !known.contains(&key.as_str()) {
            let value = json::brief(value);
            declared.warnings.push(format!(
                "key eagle_config.{key} ({value}) is unknown; it is ignored"
            ));
        }
    }
    Ok(declared)
}

/// A flag at top level or in `eagle_config`; the latter wins, as where it is read.
fn either(top: &Fields<'_>, nested: &Fields<'_>, key: &str) -> Result<Option<bool>, Problem> {
    let outer = top.flag(key)?;
    Ok(nested.flag(key)?.or(outer))
}

fn speculators(map: &Map<String, Value>, kind: &Value) -> Result<Declared, Problem> {
    const KIND: &str = "speculators_model_type";
    const LAYER: &str = "transformer_layer_architecture";
    let eagle3 = match kind.as_str() {
        Some("eagle3") => true,
        Some("eagle") => false,
        _ => {
            return Err(Problem::key(
                KIND,
                json::brief(kind),
                "\"eagle3\" or \"eagle\"",
            ));
        }
    };
    let mut outer = Fields::new(map);
    let Some(inner) = outer.section(NESTED)? else {
        return Err(Problem::missing(
            NESTED,
            "the configuration of the head's layer",
        ));
    };
    let mut fields = Fields::new(&inner);
    fields.fixed(&OPEN)?;
    let key = format!("{NESTED}.model_type");
    let (defaults, qwen3) = match inner.get("model_type").map(|kind| (kind, kind.as_str())) {
        Some((_, Some("llama"))) => (LLAMA, false),
        Some((_, Some("qwen3"))) => (QWEN3, true),
        Some((kind, _)) => {
            return Err(Problem::key(
                key,
                json::brief(kind),
                "\"llama\" or \"qwen3\"",
            ));
        }
        None => return Err(Problem::missing(&key, "\"llama\" or \"qwen3\"")),
    };
    let mut declared = layer(&mut fields, Source::Speculators, Some(&defaults))?;
    fields.unknown(&KNOWN);
    let inner_warnings = std::mem::take(&mut fields.warnings);
    declared.warnings.extend(
        inner_warnings
            .into_iter()
            .map(|text| format!("{NESTED}: {text}")),
    );
    declared.eagle3 = Some(eagle3);
    let mut known = vec![
        "speculators_config",
        "speculators_version",
        KIND,
        NESTED,
        "auto_map",
        "transformers_version",
    ];
    if eagle3 {
        declared.qk_norm = Some(qwen3);
        // A class of its own: null and missing are its default.
        declared.draft_vocab = Some(match outer.optional_size("draft_vocab_size")? {
            Some(size) => size,
            None => {
                declared.warnings.push(
                    "key draft_vocab_size is missing; 32000 is the default of its class".to_owned(),
                );
                32_000
            }
        });
        declared.target_hidden = outer.optional_size("target_hidden_size")?;
        let top = ids(&outer, "", IDS)?;
        declared.taps = Listed {
            top,
            ..Listed::default()
        };
        declared.norm_before_fc = Some(outer.flag("norm_before_fc")?.unwrap_or(false));
        declared.fc_norm = Some(outer.flag("fc_norm")?.unwrap_or(false));
        declared.norm_output = Some(outer.flag("norm_output")?.unwrap_or(false));
        declared.norm_before_residual = match outer.flag("norm_before_residual")? {
            Some(flag) => flag,
            None => {
                let text = "key norm_before_residual is missing; false is the default of its class, and vLLM takes true";
                declared.warnings.push(text.to_owned());
                false
            }
        };
        known.extend([
            "draft_vocab_size",
            "target_hidden_size",
            IDS,
            "norm_before_fc",
            "fc_norm",
            "norm_output",
            "norm_before_residual",
            "embed_requires_grad",
        ]);
    } else {
        declared.layernorms = Some(outer.flag("layernorms")?.unwrap_or(false));
        declared.fc_bias = Some(outer.flag("fusion_bias")?.unwrap_or(false));
        known.extend(["layernorms", "fusion_bias", LAYER]);
        if let Some(value) = outer.get(LAYER)
            && value.as_str() != Some("LlamaDecoderLayer")
        {
            return Err(Problem::key(
                LAYER,
                json::brief(value),
                "\"LlamaDecoderLayer\"",
            ));
        }
    }
    outer.unknown(&known);
    declared.warnings.extend(outer.warnings);
    Ok(declared)
}

/// What a decoder layer's configuration says; `defaults` for keys that may be left out.
fn layer(
    fields: &mut Fields<'_>,
    source: Source,
    defaults: Option<&Defaults>,
) -> Result<Declared, Problem> {
    let size = |fields: &mut Fields<'_>, key: &str, default: Option<usize>| match (
        fields.optional_size(key)?,
        default,
    ) {
        (Some(size), _) => Ok(size),
        (None, Some(default)) => Ok(fields.default(key, default)),
        (None, None) => Err(Problem::missing(key, "a positive integer")),
    };
    let hidden = size(fields, "hidden_size", defaults.map(|d| d.hidden))?;
    let heads = size(fields, "num_attention_heads", defaults.map(|d| d.heads))?;
    let kv_default = defaults.and_then(|d| d.kv_heads).unwrap_or(heads);
    let kv_heads = size(fields, "num_key_value_heads", Some(kv_default))?;
    let head_dim = match (
        fields.optional_size("head_dim")?,
        defaults.and_then(|d| d.head_dim),
    ) {
        (Some(head_dim), _) => head_dim,
        (None, Some(default)) => fields.default("head_dim", default),
        (None, None) if hidden.is_multiple_of(heads) => hidden / heads,
        (None, None) => {
            return Err(Problem::contradiction(
                format!("hidden_size is {hidden}"),
                format!("num_attention_heads is {heads} and head_dim is missing"),
                "a width that the number of heads divides, or an explicit head_dim",
            ));
        }
    };
    let rope = fields.rope()?;
    let eps = match fields.number("rms_norm_eps")? {
        Some(eps) => eps,
        None => fields.default("rms_norm_eps", 1e-6),
    };
    let positions = defaults.map_or(2048, |d| d.max_position);
    let vocab = match defaults {
        Some(defaults) => Some(size(fields, "vocab_size", Some(defaults.vocab))?),
        None => fields.optional_size("vocab_size")?,
    };
    let tied = fields.flag("tie_word_embeddings")?.unwrap_or(false);
    Ok(Declared {
        source,
        eagle3: None,
        hidden,
        intermediate: size(
            fields,
            "intermediate_size",
            defaults.map(|d| d.intermediate),
        )?,
        layers: fields.optional_size("num_hidden_layers")?,
        heads,
        kv_heads,
        head_dim,
        vocab,
        draft_vocab: None,
        target_hidden: None,
        eps,
        rope,
        max_position: size(fields, "max_position_embeddings", Some(positions))?,
        taps: Listed::default(),
        tap_count: None,
        use_taps: None,
        norm_before_fc: None,
        fc_norm: None,
        norm_before_residual: false,
        norm_output: None,
        layernorms: None,
        fc_bias: None,
        attention_bias: fields.flag("attention_bias")?,
        qk_norm: None,
        tied,
        windows: windows(fields)?,
        warnings: Vec::new(),
    })
}

fn windows(fields: &mut Fields<'_>) -> Result<Windows, Problem> {
    const TYPES: &str = "layer_types";
    let width = fields.optional_size("sliding_window")?;
    let on = fields.flag("use_sliding_window")?;
    let sliding = match fields.get(TYPES) {
        None => None,
        Some(value) => {
            let accepted = "a list of \"full_attention\" and \"sliding_attention\"";
            let wrong = || Problem::key(TYPES, json::brief(value), accepted);
            let one = |kind: &Value| match kind.as_str() {
                Some("full_attention") => Ok(false),
                Some("sliding_attention") => Ok(true),
                _ => Err(wrong()),
            };
            let list = value.as_array().ok_or_else(wrong)?;
            Some(list.iter().map(one).collect::<Result<Vec<_>, _>>()?)
        }
    };
    let from = match (on, &sliding) {
        (Some(true), None) => Some(match fields.get("max_window_layers") {
            None => fields.default("max_window_layers", 28),
            Some(value) => {
                let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
                number.ok_or_else(|| {
                    Problem::key(
                        "max_window_layers",
                        json::brief(value),
                        "a number of layers",
                    )
                })?
            }
        }),
        (None, None) if width.is_some() => {
            fields.warnings.push("sliding_window is set, and no layer_types says for which layers; it is ignored, as vLLM does".to_owned());
            None
        }
        _ => None,
    };
    Ok(Windows {
        width,
        sliding,
        from,
    })
}

fn ids(fields: &Fields<'_>, prefix: &str, key: &str) -> Result<Option<Vec<usize>>, Problem> {
    let Some(value) = fields.get(key) else {
        return Ok(None);
    };
    let wrong = || {
        Problem::key(
            format!("{prefix}{key}"),
            json::brief(value),
            "a list of layers, or null",
        )
    };
    let list = value.as_array().ok_or_else(wrong)?;
    let one = |id: &Value| {
        id.as_u64()
            .and_then(|id| usize::try_from(id).ok())
            .ok_or_else(wrong)
    };
    list.iter()
        .map(one)
        .collect::<Result<Vec<_>, _>>()
        .map(Some)
}
