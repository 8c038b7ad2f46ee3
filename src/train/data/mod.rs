//! Answers of a target on disk: tokens, and what the target held while it was fed them.
//!
//! A folder has three kinds of files:
//!
//! ```text
//! data.json          what it was made from: target, taps, seed, temperatures
//! index.jsonl        a line a sequence: where it lies, and how long it is
//! shard-00000.bin …  the sequences, one after the other
//! ```
//!
//! A sequence of n tokens, of which the first `prompt_tokens` were given, was fed n - 1 of them: the
//! last one was never fed. All numbers are little-endian:
//!
//! ```text
//! tokens   u32 [n]
//! taps     f16 [n - 1, taps * hidden]     the streams entering the tapped layers, un-normed
//! finals   f16 [n - 1, hidden]            the stream after the last layer, normed
//! ```
//!
//! Both files only grow, the shard first, in the order of prompts: whatever moment a writer is killed
//! at, the lines of the index whose bytes are there are whole sequences, and what comes after them is
//! cut off by the next writer. So a run that was killed and begun again ends with the bytes of one
//! that was not.

mod index;
mod read;
mod write;

pub use index::Entry;
pub use read::{Data, Sequence};
pub use write::{Record, Writer};

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::TrainError;
use crate::{
    error::Result,
    json::brief,
    model::{config::Config, load::Checkpoint},
};

const FACTS: &str = "data.json";
const INDEX: &str = "index.jsonl";
/// Version of the layout.
const FORMAT: u32 = 1;

/// What the data of a folder were made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Version of the layout.
    format: u32,
    /// The target, by [`fingerprint`].
    pub target: String,
    /// The target's vocabulary.
    pub vocab: usize,
    /// Width of its streams.
    pub hidden: usize,
    /// Its layers.
    pub layers: usize,
    /// The streams that were kept, as [`Target::forward`](crate::model::Target::forward) takes them.
    pub taps: Vec<usize>,
    /// How the target's weights were held.
    pub dtype: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Temperatures, of which each prompt has one.
    pub temperatures: Vec<f64>,
    /// Most tokens of an answer.
    pub max_tokens: usize,
}

impl Facts {
    /// Facts of a target, for answers that are drawn so.
    ///
    /// # Errors
    /// If a tensor of the target cannot be read.
    pub fn of(checkpoint: &Checkpoint, taps: Vec<usize>, draws: Drawn) -> Result<Self> {
        let config = checkpoint.config();
        Ok(Self {
            format: FORMAT,
            vocab: config.vocab,
            hidden: config.hidden,
            layers: config.layers,
            taps,
            target: fingerprint(checkpoint)?,
            dtype: draws.dtype,
            seed: draws.seed,
            temperatures: draws.temperatures,
            max_tokens: draws.max_tokens,
        })
    }

    /// Bytes of a sequence of `tokens` tokens; of more than there can be, the most.
    pub(super) fn bytes(&self, tokens: usize) -> usize {
        let width = self.hidden.saturating_mul(self.taps.len() + 1);
        let rows = tokens.saturating_sub(1).saturating_mul(width);
        (4_usize.saturating_mul(tokens)).saturating_add(rows.saturating_mul(2))
    }
}

/// The first key in which what is on disk differs from what there is now.
pub(super) fn difference(there: &impl Serialize, now: &impl Serialize) -> Option<String> {
    let (there, now) = (json!(there), json!(now));
    let pairs = now.as_object()?.iter();
    let mut pairs = pairs.map(|(key, now)| (key, &there[key], now));
    let (key, there, now) = pairs.find(|(_, there, now)| there != now)?;
    Some(format!(
        "{key} is {}; accepted is {}, as now, or another folder",
        brief(there),
        brief(now)
    ))
}

/// How answers are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// How the target's weights are held.
    pub dtype: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Temperatures, of which each prompt has one.
    pub temperatures: Vec<f64>,
    /// Most tokens of an answer.
    pub max_tokens: usize,
}

/// The streams that EAGLE-3 heads tap unless told otherwise: 2, n / 2 and n - 3 of n layers.
///
/// # Errors
/// If these are not three different layers: less than 7 layers.
pub fn default_taps(config: &Config) -> Result<Vec<usize>> {
    let n = config.layers;
    if n < 7 {
        return Err(TrainError::Unfit(format!(
            "a target of {n} layers has no three taps 2, n / 2, n - 3; accepted are 7 layers or more"
        ))
        .into());
    }
    Ok(vec![2, n / 2, n - 3])
}

/// A target by its sizes, its constants and two of its tensors, as 32 hexadecimal digits.
///
/// # Errors
/// If a tensor cannot be read.
pub fn fingerprint(checkpoint: &Checkpoint) -> Result<String> {
    let c = checkpoint.config();
    let mut hash = Sha256::new();
    let widths = [c.vocab, c.hidden, c.intermediate, c.head_dim];
    for size in widths.into_iter().chain([c.layers, c.heads, c.kv_heads]) {
        hash.update((size as u64).to_le_bytes());
    }
    hash.update(c.eps.to_le_bytes());
    hash.update(c.rope.theta.to_le_bytes());
    let last = c.layers.saturating_sub(1);
    let last = format!("model.layers.{last}.self_attn.q_proj.weight");
    for name in ["model.norm.weight", &last] {
        hash.update(&checkpoint.stored(name)?.bytes);
    }
    let digits = hash.finalize();
    Ok(digits[..16].iter().map(|b| format!("{b:02x}")).collect())
}

fn shard_name(shard: u32) -> String {
    format!("shard-{shard:05}.bin")
}

fn read_facts(dir: &Path) -> Result<Facts, TrainError> {
    let path = dir.join(FACTS);
    let text = std::fs::read_to_string(&path).map_err(TrainError::io(&path, "read it"))?;
    let facts: Facts = serde_json::from_str(&text).map_err(|error| {
        TrainError::file(&path, format!("{error}; accepted is what distill writes"))
    })?;
    if facts.format != FORMAT {
        let found = facts.format;
        return Err(TrainError::file(
            &path,
            format!("format {found}; accepted is {FORMAT}"),
        ));
    }
    let (taps, layers) = (&facts.taps, facts.layers);
    let ascend = taps.is_sorted_by(|a, b| a < b);
    if taps.is_empty() || !ascend || taps.iter().any(|tap| *tap > layers) {
        let what = format!("taps {taps:?}; accepted are ascending ones, 0 to its {layers} layers");
        return Err(TrainError::file(&path, what));
    }
    Ok(facts)
}
