//! What was understood of a checkpoint.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    error::printable,
    model::config::{RopeConfig, RopeScaling},
};

/// The report of `eyrie inspect`, with the same keys for targets and for heads; what does not
/// apply is null or empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspect {
    /// Network: `llama`, `eagle1`, `eagle3`.
    pub format: &'static str,
    /// Container, or the code base that wrote a head.
    pub source: &'static str,
    /// Taps that a head reads.
    pub taps: Vec<usize>,
    /// How the file numbers its taps.
    pub taps_convention: Option<String>,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the target that a head was made for.
    pub target_hidden: Option<usize>,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Rows of a draft head's own vocabulary.
    pub draft_vocab: Option<usize>,
    /// How draft ids map to target ids.
    pub vocab_map: Option<String>,
    /// Where the embedding comes from.
    pub embedding: &'static str,
    /// Where the head comes from: `own`, `tied` (the embedding) or, for draft heads, `target`.
    pub lm_head: &'static str,
    /// The norms that are there.
    pub norms: Vec<String>,
    /// Rotary embedding: type, theta, scaling.
    pub rope: Value,
    /// Positions that the network was made for.
    pub max_position: usize,
    /// Stored types, the one with most bytes first, joined by `+`.
    pub dtype: String,
    /// Number of tensors.
    pub tensors: usize,
    /// What was not understood and is taken not to matter, and defaults that were taken.
    pub warnings: Vec<String>,
}

pub(crate) fn rope(rope: &RopeConfig) -> Value {
    let scaling = match &rope.scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => json!({ "factor": factor }),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position,
        } => json!({
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position": original_max_position,
        }),
        RopeScaling::Yarn {
            factor,
            original_max_position,
            beta_fast,
            beta_slow,
            attention_factor,
            truncate,
        } => json!({
            "factor": factor,
            "original_max_position": original_max_position,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "attention_factor": attention_factor,
            "truncate": truncate,
        }),
        RopeScaling::Factors(factors) => json!(factors),
    };
    json!({"type": rope.scaling.name(), "theta": rope.theta, "scaling": scaling})
}

/// One line a key, in the order of the JSON; what does not apply is left out.
impl fmt::Display for Inspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        let entries = report.as_object().into_iter().flatten();
        for (key, value) in entries.filter(|(key, _)| *key != "warnings") {
            match value {
                Value::Null => {}
                Value::Array(items) if items.is_empty() => {}
                Value::String(text) => writeln!(f, "{key:<16}{text}")?,
                Value::Array(items) => {
                    let items: Vec<_> = items.iter().map(plain).collect();
                    writeln!(f, "{key:<16}{}", items.join(", "))?;
                }
                Value::Object(entries) => {
                    let entries: Vec<_> = entries
                        .iter()
                        .filter(|(_, value)| !value.is_null())
                        .map(|(key, value)| format!("{key} {}", plain(value)))
                        .collect();
                    writeln!(f, "{key:<16}{}", entries.join(", "))?;
                }
                other => writeln!(f, "{key:<16}{other}")?,
            }
        }
        for warning in &self.warnings {
            writeln!(f, "warning         {}", printable(warning))?;
        }
        Ok(())
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
