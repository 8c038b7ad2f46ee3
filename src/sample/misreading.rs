//! A row of logits read wrongly, by broken variants.

use super::{Chain, Dist, Fault, History};

/// What is wrong with a reader of target rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misreading {
    /// Top-k, top-p and min-p are skipped.
    Unfiltered,
    /// Penalties count every draft between the anchor and the row twice.
    DraftsTwice,
}

impl Misreading {
    /// The law of a row in this reading.
    ///
    /// # Errors
    /// As [`Chain::law`].
    ///
    /// # Panics
    /// As [`Chain::law`].
    pub fn law(self, chain: &Chain, logits: &[f32], h: &History<'_>) -> Result<Dist, Fault> {
        match self {
            Self::Unfiltered => without_filters(chain).law(logits, h),
            Self::DraftsTwice => {
                let path = [h.path, h.path].concat();
                // The mask of end tokens goes by the true index.
                let chain = chain.altered(|raw| raw.min_tokens += h.path.len());
                let history = History {
                    counts: h.counts,
                    tokens: h.tokens,
                    path: &path,
                };
                chain.law(logits, &history)
            }
        }
    }
}

/// The chain without top-k, top-p and min-p.
pub(crate) fn without_filters(chain: &Chain) -> Chain {
    chain.altered(|raw| (raw.top_k, raw.top_p, raw.min_p) = (0, 1.0, 0.0))
}
