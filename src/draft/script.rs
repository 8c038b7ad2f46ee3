//! A prepared list of drafts: a debugging tool, and how a log of drafts is replayed.

use super::{Anchor, Drafter};
use crate::{
    TokenId,
    error::{ErrorKind, Result},
    tree::DraftTree,
};

/// The drafter `script`: round i of every choice drafts list i, cut to the depth allowed; after the
/// last list there are no drafts. An id outside the vocabulary is a draft that is rejected.
#[derive(Clone, Debug, Default)]
pub struct Script {
    lists: Vec<Vec<TokenId>>,
}

impl Script {
    /// Drafts `lists[i]` in round i.
    #[must_use]
    pub fn new(lists: Vec<Vec<TokenId>>) -> Self {
        Self { lists }
    }

    /// Reads a JSON list of lists of token ids.
    ///
    /// # Errors
    /// If the text is anything else; the message has the place.
    pub fn from_json(text: &str) -> Result<Self> {
        let lists = serde_json::from_str(text).map_err(|error| {
            ErrorKind::Draft(format!(
                "script: {error}; accepted: a JSON list of lists of token ids, one list a round"
            ))
        })?;
        Ok(Self { lists })
    }
}

impl Drafter for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        for (anchor, tree) in anchors.iter().zip(trees) {
            let list = self.lists.get(anchor.round).map_or(&[][..], Vec::as_slice);
            *tree = DraftTree::chain(&list[..list.len().min(anchor.depth)]);
        }
        Ok(())
    }
}
