//! What is taken from the target and not trained.

use super::{TrainError, mat::Mat};
use crate::{
    TokenId,
    error::Result,
    kernels::Format,
    model::{Dtype, Linear, config::Config, load::Checkpoint},
};

/// The target's embedding, and the rows of its output head that are guessed among.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) embed: Linear,
    /// Target ids of the rows, ascending.
    pub(super) ids: Vec<TokenId>,
    /// `[ids, hidden]`
    pub(super) lm_head: Mat,
}

impl Frozen {
    /// Reads both, the rows of `ids` (ascending) of the head.
    pub(super) fn read(checkpoint: &Checkpoint, ids: Vec<TokenId>) -> Result<Self> {
        let embed = "model.embed_tokens.weight";
        let head = if checkpoint.config().tied {
            embed
        } else {
            "lm_head.weight"
        };
        let embed = Linear::from_stored(checkpoint.stored(embed)?, Dtype::AsStored)?;
        let rows = Linear::from_stored(checkpoint.stored(head)?, Dtype::AsStored)?;
        let hidden = checkpoint.config().hidden;
        let mut values = vec![0.0; ids.len() * hidden];
        for (id, row) in ids.iter().zip(values.chunks_mut(hidden)) {
            rows.row(*id as usize, row);
        }
        Ok(Self {
            embed,
            ids,
            lm_head: Mat::new(hidden, values)?,
        })
    }

    /// Embeddings of tokens, one after the other.
    pub(super) fn embed(&self, tokens: &[TokenId]) -> Vec<f32> {
        let hidden = self.lm_head.cols();
        let mut all = vec![0.0; tokens.len() * hidden];
        for (token, row) in tokens.iter().zip(all.chunks_mut(hidden)) {
            self.embed.row(*token as usize, row);
        }
        all
    }
}

/// A tensor of the target as floats, row after row.
pub(super) fn floats(checkpoint: &Checkpoint, name: &str) -> Result<Vec<f32>> {
    let stored = checkpoint.stored(name)?;
    if stored.shape.len() != 2 {
        return Ok(stored.floats().map_err(|p| p.in_file(checkpoint.path()))?);
    }
    let (rows, cols) = (stored.rows(), stored.cols());
    let linear = Linear::from_stored(stored, Dtype::To(Format::F32))?;
    let mut values = vec![0.0; rows * cols];
    for (i, row) in values.chunks_mut(cols).enumerate() {
        linear.row(i, row);
    }
    Ok(values)
}

/// Refuses a target that no portable head can be made for.
pub(super) fn fits(config: &Config) -> Result<(), TrainError> {
    let (width, heads, hidden) = (config.head_dim, config.heads, config.hidden);
    if width * heads == hidden {
        return Ok(());
    }
    Err(TrainError::Unfit(format!(
        "the target has {heads} heads of {width} values in a stream of {hidden}; accepted is head_dim \
         {hidden} / {heads}, as every engine that loads EAGLE-3 heads has it"
    )))
}
