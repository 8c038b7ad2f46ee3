//! The tokenizer keys of a GGUF header.

use super::{TextError, Vocabulary};
use crate::model::load::gguf::Metadata;

impl Vocabulary {
    /// What the metadata says about text; `None` if it has no `tokenizer.ggml.model`.
    ///
    /// # Errors
    ///
    /// A key of another type or out of range.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Self>, TextError> {
        let owned = |text: &str| text.to_owned();
        let strings = |key: &str| -> Result<Vec<String>, TextError> {
            let list = metadata.strings(key)?.unwrap_or_default();
            Ok(list.into_iter().map(owned).collect())
        };
        let id = |key: &str| -> Result<Option<u32>, TextError> {
            let id = metadata.uint(key)?;
            id.map(|id| narrow(key, i128::from(id))).transpose()
        };
        let Some(model) = metadata.str("tokenizer.ggml.model")? else {
            return Ok(None);
        };
        let types = metadata.ints("tokenizer.ggml.token_type")?;
        let types = types.unwrap_or_default().into_iter();
        Ok(Some(Self {
            model: model.to_owned(),
            pre: metadata
                .str("tokenizer.ggml.pre")?
                .map(owned)
                .unwrap_or_default(),
            tokens: strings("tokenizer.ggml.tokens")?,
            merges: strings("tokenizer.ggml.merges")?,
            types: types
                .map(|kind| narrow("tokenizer.ggml.token_type", i128::from(kind)))
                .collect::<Result<_, _>>()?,
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
            add_space_prefix: metadata
                .bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(false),
            chat_template: metadata.str("tokenizer.chat_template")?.map(owned),
        }))
    }
}

fn narrow(key: &str, value: i128) -> Result<u32, TextError> {
    u32::try_from(value)
        .map_err(|_| TextError::Vocabulary(format!("{key} {value}: must lie in 0..=4294967295")))
}
