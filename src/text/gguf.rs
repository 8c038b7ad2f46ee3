//! A byte-level BPE tokenizer out of GGUF metadata.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::pre::Pre;
use super::{ChatTemplate, TextError, Tokenizer};

const NORMAL: u32 = 1;
const CONTROL: u32 = 3;
const USER_DEFINED: u32 = 4;
const UNUSED: u32 = 5;

/// What the `tokenizer.*` keys of a GGUF file say.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: only `gpt2` can be built.
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the pre-tokenizer; empty if the file has none.
    pub pre: String,
    /// `tokenizer.ggml.tokens`, by id, bytes spelled in GPT-2's alphabet.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.merges`: `left right`, most urgent first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.token_type`, by id: 1 normal, 3 control, 4 user-defined, 5 unused. Empty: all normal.
    pub types: Vec<u32>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; where the file is silent, the pre-tokenizer decides.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: bool,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl Vocabulary {
    /// The string of a special id.
    ///
    /// # Errors
    ///
    /// The id lies outside the tokens.
    fn spelled(&self, key: &str, id: u32) -> Result<&str, TextError> {
        let at = usize::try_from(id).ok();
        at.and_then(|at| self.tokens.get(at))
            .map(String::as_str)
            .ok_or_else(|| {
                TextError::Vocabulary(format!(
                    "{key} {id}: there are {} tokens",
                    self.tokens.len()
                ))
            })
    }

    /// The chat template, if the file has one.
    ///
    /// # Errors
    ///
    /// The template does not parse, or `bos`/`eos` lie outside the tokens.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, TextError> {
        let Some(source) = &self.chat_template else {
            return Ok(None);
        };
        let bos = self.bos.map(|id| self.spelled("bos_token_id", id));
        let eos = self.eos.map(|id| self.spelled("eos_token_id", id));
        let template = ChatTemplate::new(
            "tokenizer.chat_template",
            source,
            bos.transpose()?,
            eos.transpose()?,
        )?;
        Ok(Some(template))
    }

    /// Builds the tokenizer.
    ///
    /// Control tokens are special (recognised in text, skipped when decoding), user-defined ones
    /// are recognised and kept, unused ones (a converter's padding) are no tokens at all.
    ///
    /// # Errors
    ///
    /// Another tokenizer model than `gpt2`, an unknown pre-tokenizer, or lists that contradict
    /// each other.
    pub fn tokenizer(&self) -> Result<Tokenizer, TextError> {
        Tokenizer::from_value("GGUF metadata", &self.json()?)
    }

    /// The same tokenizer as a `tokenizer.json`.
    fn json(&self) -> Result<Value, TextError> {
        if self.model != "gpt2" {
            return Err(TextError::Model {
                found: self.model.clone(),
            });
        }
        let pre = Pre::named(&self.pre)?;
        if !self.types.is_empty() && self.types.len() != self.tokens.len() {
            return Err(TextError::Vocabulary(format!(
                "{} token types for {} tokens",
                self.types.len(),
                self.tokens.len()
            )));
        }
        if self.add_space_prefix {
            return Err(TextError::Vocabulary(
                "add_space_prefix true: only false goes with tokenizer.ggml.model \"gpt2\"".into(),
            ));
        }
        let (vocab, added) = self.vocab()?;
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": pre.normalizer(),
            "pre_tokenizer": pre.pre_tokenizer(),
            "post_processor": self.post_processor(pre)?,
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": false,
                "trim_offsets": true,
                "use_regex": false,
            },
            "model": {
                "type": "BPE",
                "dropout": null,
                "unk_token": null,
                "continuing_subword_prefix": null,
                "end_of_word_suffix": null,
                "fuse_unk": false,
                "byte_fallback": false,
                "ignore_merges": pre.ignore_merges,
                "vocab": vocab,
                "merges": self.merges()?,
            },
        }))
    }

    /// `model.vocab` and `added_tokens`.
    fn vocab(&self) -> Result<(Map<String, Value>, Vec<Value>), TextError> {
        let mut seen: HashMap<&str, usize> = HashMap::with_capacity(self.tokens.len());
        let mut vocab = Map::with_capacity(self.tokens.len());
        let mut added = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            let kind = self.types.get(id).copied().unwrap_or(NORMAL);
            if kind == UNUSED {
                continue;
            }
            if let Some(first) = seen.insert(token, id) {
                return Err(TextError::Vocabulary(format!(
                    "tokens {first} and {id} are both {token:?}"
                )));
            }
            vocab.insert(token.clone(), id.into());
            if kind == CONTROL || kind == USER_DEFINED {
                added.push(json!({
                    "id": id,
                    "content": token,
                    "single_word": false,
                    "lstrip": false,
                    "rstrip": false,
                    "normalized": false,
                    "special": kind == CONTROL,
                }));
            }
        }
        Ok((vocab, added))
    }

    fn merges(&self) -> Result<Vec<Value>, TextError> {
        self.merges
            .iter()
            .enumerate()
            .map(|(rank, merge)| match merge.split_once(' ') {
                Some((left, right))
                    if !left.is_empty() && !right.is_empty() && !right.contains(' ') =>
                {
                    Ok(json!([left, right]))
                }
                _ => Err(TextError::Vocabulary(format!(
                    "merge {rank} {merge:?}: must be two tokens with one space between"
                ))),
            })
            .collect()
    }

    fn post_processor(&self, pre: Pre) -> Result<Value, TextError> {
        if !self.add_bos.unwrap_or(pre.add_bos) {
            return Ok(Value::Null);
        }
        let Some(id) = self.bos else {
            return Err(TextError::Vocabulary(
                "a prompt must begin with BOS, but there is no bos_token_id".into(),
            ));
        };
        let bos = self.spelled("bos_token_id", id)?;
        let mut specials = Map::new();
        specials.insert(
            bos.to_owned(),
            json!({"id": bos, "ids": [id], "tokens": [bos]}),
        );
        let start = json!({"SpecialToken": {"id": bos, "type_id": 0}});
        let first = json!({"Sequence": {"id": "A", "type_id": 0}});
        let second = json!({"Sequence": {"id": "B", "type_id": 0}});
        Ok(json!({
            "type": "TemplateProcessing",
            "single": [start, first],
            "pair": [start, first, second],
            "special_tokens": specials,
        }))
    }
}

#[cfg(test)]
mod tests;
