//! Metadata of llama.cpp's architecture `eagle3`.

use super::{
    super::config::Source,
    declared::{Declared, Windows},
    taps::Listed,
};
use crate::model::{
    config::{RopeConfig, RopeScaling, number, of_architecture, of_width, optional_size, size},
    load::{Problem, gguf::Metadata},
};

/// Both spellings of the taps' key.
const TAPS: [&str; 2] = ["eagle3.target_layers", "eagle3.extract_layers"];
const HIDDEN: &str = "eagle3.embedding_length";
const HEADS: &str = "eagle3.attention.head_count";
const KEY_LENGTH: &str = "eagle3.attention.key_length";
const VALUE_LENGTH: &str = "eagle3.attention.value_length";
const ROTARY: &str = "eagle3.rope.dimension_count";
const THETA: &str = "eagle3.rope.freq_base";
const SCALING: &str = "eagle3.rope.scaling.type";
const FACTOR: &str = "eagle3.rope.scaling.factor";
const EPS: &str = "eagle3.attention.layer_norm_rms_epsilon";
const RESIDUAL: &str = "eagle3.norm_before_residual";
const BEFORE_FC: &str = "eagle3.norm_before_fc";

const KNOWN: [&str; 19] = [
    TAPS[0],
    TAPS[1],
    HIDDEN,
    HEADS,
    KEY_LENGTH,
    VALUE_LENGTH,
    ROTARY,
    THETA,
    SCALING,
    FACTOR,
    EPS,
    RESIDUAL,
    BEFORE_FC,
    "eagle3.target_hidden_size",
    "eagle3.block_count",
    "eagle3.context_length",
    "eagle3.feed_forward_length",
    "eagle3.attention.head_count_kv",
    "eagle3.vocab_size",
];

impl Declared {
    /// Reads GGUF metadata; `factors` is the tensor `rope_freqs.weight` if the file has one.
    ///
    /// # Errors
    /// A [`Problem`] that names the key, its value and what would be accepted.
    pub fn from_gguf(metadata: &Metadata, factors: Option<Vec<f32>>) -> Result<Self, Problem> {
        of_architecture(metadata, "eagle3")?;
        let size = |key: &str| size(metadata, key);
        let hidden = size(HIDDEN)?;
        let heads = size(HEADS)?;
        let head_dim = match (
            optional_size(metadata, KEY_LENGTH)?,
            optional_size(metadata, ROTARY)?,
        ) {
            (Some(head_dim), _) | (None, Some(head_dim)) => head_dim,
            (None, None) if hidden.is_multiple_of(heads) => hidden / heads,
            (None, None) => return Err(Problem::missing(KEY_LENGTH, "the width of a head")),
        };
        of_width(metadata, &[VALUE_LENGTH, ROTARY], head_dim)?;
        let mut warnings = Vec::new();
        let theta = metadata.float(THETA)?.unwrap_or_else(|| {
            warnings.push(format!("key {THETA} is missing; 10000 is its default"));
            10_000.0
        });
        let rope = RopeConfig {
            theta,
            scaling: scaling(metadata, factors)?,
        };
        for (key, value) in metadata.iter() {
            if key.starts_with("eagle3.") && !KNOWN.contains(&key) {
                warnings.push(format!("key {key} ({value}) is unknown; it is ignored"));
            }
        }
        Ok(Self {
            source: Source::Gguf,
            eagle3: Some(true),
            hidden,
            intermediate: size("eagle3.feed_forward_length")?,
            layers: Some(size("eagle3.block_count")?),
            heads,
            kv_heads: optional_size(metadata, "eagle3.attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            vocab: optional_size(metadata, "eagle3.vocab_size")?,
            draft_vocab: None,
            target_hidden: optional_size(metadata, "eagle3.target_hidden_size")?,
            eps: metadata
                .float(EPS)?
                .ok_or_else(|| Problem::missing(EPS, "a number between 0 and 1"))?,
            rope,
            max_position: size("eagle3.context_length")?,
            taps: Listed {
                top: taps(metadata)?,
                called: TAPS
                    .into_iter()
                    .find(|key| metadata.get(key).is_some())
                    .or(Some(TAPS[0])),
                nested: None,
            },
            tap_count: None,
            use_taps: Some(true),
            norm_before_fc: Some(metadata.bool(BEFORE_FC)?.unwrap_or(false)),
            fc_norm: Some(false),
            norm_before_residual: metadata.bool(RESIDUAL)?.unwrap_or(false),
            norm_output: None,
            layernorms: None,
            fc_bias: None,
            attention_bias: None,
            qk_norm: None,
            tied: false,
            windows: Windows::default(),
            warnings,
        })
    }
}

fn scaling(metadata: &Metadata, factors: Option<Vec<f32>>) -> Result<RopeScaling, Problem> {
    let kind = metadata.str(SCALING)?;
    match (kind, factors) {
        (None | Some("none"), None) => Ok(RopeScaling::None),
        (None | Some("none"), Some(factors)) => Ok(RopeScaling::Factors(factors)),
        (Some("linear"), None) => match metadata.get(FACTOR).map(|value| (value, number(value))) {
            Some((_, Some(factor))) => Ok(RopeScaling::Linear { factor }),
            Some((value, None)) => Err(Problem::key(FACTOR, value, "a number")),
            None => Err(Problem::missing(FACTOR, "a number, for linear scaling")),
        },
        (Some("linear"), Some(_)) => Err(Problem::contradiction(
            format!("{SCALING} is linear"),
            "there is a tensor rope_freqs.weight",
            "one of the two",
        )),
        (Some(other), _) => {
            let accepted =
                "\"none\" or \"linear\" (with rope_freqs.weight for llama 3.1's scaling)";
            Err(Problem::key(SCALING, format!("{other:?}"), accepted))
        }
    }
}

fn taps(metadata: &Metadata) -> Result<Option<Vec<usize>>, Problem> {
    let read = |key: &str| -> Result<Option<Vec<usize>>, Problem> {
        let Some(ids) = metadata.ints(key)? else {
            return Ok(None);
        };
        let taps: Option<Vec<usize>> = ids.iter().map(|id| usize::try_from(*id).ok()).collect();
        let wrong = || Problem::key(key, format!("{ids:?}"), "three layers, by their inputs");
        taps.filter(|taps| taps.len() == 3)
            .map(Some)
            .ok_or_else(wrong)
    };
    match (read(TAPS[0])?, read(TAPS[1])?) {
        (Some(one), Some(other)) if one != other => Err(Problem::contradiction(
            format!("{} is {one:?}", TAPS[0]),
            format!("{} is {other:?}", TAPS[1]),
            "the same layers, or one of the two",
        )),
        (one, other) => Ok(one.or(other)),
    }
}
