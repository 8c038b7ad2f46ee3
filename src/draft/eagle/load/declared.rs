//! What a head's `config.json` or GGUF metadata says, before its tensors have been seen.

use super::{super::config::Source, taps::Listed};
use crate::model::{config::RopeConfig, load::Problem};

/// A head's configuration as a file declares it, whatever the format.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    pub(super) source: Source,
    /// Whether the file says that it is EAGLE-1, or EAGLE-3.
    pub(super) eagle3: Option<bool>,
    pub(super) hidden: usize,
    pub(super) intermediate: usize,
    pub(super) layers: Option<usize>,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// The target's vocabulary, as the head has it.
    pub(super) vocab: Option<usize>,
    pub(super) draft_vocab: Option<usize>,
    pub(super) target_hidden: Option<usize>,
    pub(super) eps: f64,
    pub(super) rope: RopeConfig,
    pub(super) max_position: usize,
    pub(super) taps: Listed,
    /// Number of taps.
    pub(super) tap_count: Option<usize>,
    /// Whether the head taps streams at all.
    pub(super) use_taps: Option<bool>,
    pub(super) norm_before_fc: Option<bool>,
    pub(super) fc_norm: Option<bool>,
    pub(super) norm_before_residual: bool,
    pub(super) norm_output: Option<bool>,
    /// EAGLE-1 with its optional norms.
    pub(super) layernorms: Option<bool>,
    pub(super) fc_bias: Option<bool>,
    pub(super) attention_bias: Option<bool>,
    pub(super) qk_norm: Option<bool>,
    pub(super) tied: bool,
    pub(super) windows: Windows,
    pub(super) warnings: Vec<String>,
}

/// Which layers see the latest keys only.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Windows {
    pub(super) width: Option<usize>,
    /// Whether a layer has the window, for each.
    pub(super) sliding: Option<Vec<bool>>,
    /// Without that list, the first layer that has.
    pub(super) from: Option<usize>,
}

impl Windows {
    /// For each of `layers` layers, its window.
    pub(super) fn of(&self, layers: usize) -> Result<Vec<Option<usize>>, Problem> {
        let all = match (&self.sliding, self.from) {
            (Some(sliding), _) => {
                let uniform = sliding.windows(2).all(|pair| pair[0] == pair[1]);
                match sliding.first() {
                    Some(one) if uniform => vec![*one; layers],
                    _ if sliding.len() == layers => sliding.clone(),
                    _ => {
                        return Err(Problem::contradiction(
                            format!("layer_types has {} entries", sliding.len()),
                            format!("the head has {layers} layers"),
                            "one entry a layer",
                        ));
                    }
                }
            }
            (None, Some(from)) => (0..layers).map(|layer| layer >= from).collect(),
            (None, None) => vec![false; layers],
        };
        if all.contains(&true) && self.width.is_none() {
            return Err(Problem::missing(
                "sliding_window",
                "the window of the layers that layer_types calls sliding_attention",
            ));
        }
        Ok(all
            .iter()
            .map(|sliding| self.width.filter(|_| *sliding))
            .collect())
    }
}
