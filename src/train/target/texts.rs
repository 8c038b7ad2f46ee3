//! Texts, the tokenizer that is made of them, and their tokens.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokenizers::{
    AddedToken, NormalizerWrapper, PostProcessorWrapper, Tokenizer, TokenizerBuilder,
    models::bpe::{BPE, BpeTrainerBuilder},
    pre_tokenizers::byte_level::ByteLevel,
};

use super::recipe::{TargetRecipe, unfit};
use crate::{TokenId, train::TrainError};

/// The token after each text, as the tokenizer and files spell it.
const END: &str = "<|endoftext|>";
/// It is the first of the vocabulary.
pub(super) const END_ID: TokenId = 0;
/// One token of so many is held out: the last ones of each text.
const HELD: usize = 50;

/// Plain texts.
#[derive(Clone, Debug)]
pub struct Texts {
    texts: Vec<String>,
    facts: TextFacts,
}

/// Which texts they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextFacts {
    pub(super) texts: usize,
    pub(super) bytes: usize,
    /// Of each text and its length, in hexadecimal digits.
    pub(super) sha256: String,
}

/// Tokens of texts.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    /// What is trained on.
    pub(super) train: Vec<TokenId>,
    /// What is measured with.
    pub(super) held: Vec<TokenId>,
}

impl Texts {
    /// Reads files. Each is a text, or several with `<|endoftext|>` between them.
    ///
    /// # Errors
    /// If a file cannot be read, has no text or is no UTF-8.
    pub fn read(paths: &[PathBuf]) -> Result<Self, TrainError> {
        let mut texts = Vec::with_capacity(paths.len());
        let mut hash = Sha256::new();
        for path in paths {
            let bytes = fs::read(path).map_err(TrainError::io(path, "read it"))?;
            let text = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                TrainError::file(
                    path,
                    format!("byte {at} is no UTF-8; accepted is plain text"),
                )
            })?;
            let parts = text.split(END).filter(|part| !part.trim().is_empty());
            let before = texts.len();
            texts.extend(parts.map(str::to_owned));
            if texts.len() == before {
                return Err(TrainError::file(
                    path,
                    "has no text; accepted is plain text",
                ));
            }
        }
        for text in &texts {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        if texts.is_empty() {
            return unfit("no texts; accepted is one file or more".to_owned());
        }
        let sha256 = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        let facts = TextFacts {
            texts: texts.len(),
            bytes: texts.iter().map(String::len).sum(),
            sha256,
        };
        Ok(Self { texts, facts })
    }

    pub(super) fn facts(&self) -> &TextFacts {
        &self.facts
    }

    /// How many there are, and their bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.facts.texts, self.facts.bytes)
    }

    /// Sha256 of all texts, each after its length (64 bits, little-endian), in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.facts.sha256
    }

    /// Byte-level BPE of `vocab` tokens (Sennrich et al. 2016, arXiv 1508.07909; bytes and words as GPT-2
    /// has them), as a `tokenizer.json`.
    pub(super) fn tokenizer(&self, vocab: usize) -> Result<String, TrainError> {
        let bytes = ByteLevel::new(false, true, true);
        let builder: TokenizerBuilder<
            BPE,
            NormalizerWrapper,
            ByteLevel,
            PostProcessorWrapper,
            ByteLevel,
        > = TokenizerBuilder::new();
        let builder = builder.with_model(BPE::default());
        let builder = builder
            .with_pre_tokenizer(Some(bytes))
            .with_decoder(Some(bytes));
        let mut tokenizer = builder.build().map_err(failed)?;
        let mut trainer = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(vocab)
            .min_frequency(2)
            .special_tokens(vec![AddedToken::from(END, true)])
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build();
        tokenizer
            .train(&mut trainer, self.texts.iter())
            .map_err(failed)?;
        let made = tokenizer.get_vocab_size(true);
        if made != vocab {
            return unfit(format!(
                "vocab is {vocab}, and the texts make {made} tokens; accepted is 257 to {made}"
            ));
        }
        tokenizer.to_string(true).map_err(failed)
    }

    /// The tokens of the texts by the tokenizer in `json`, each followed by the one that ends it; the last
    /// ones of each are held out.
    pub(super) fn tokens(&self, json: &str, recipe: &TargetRecipe) -> Result<Tokens, TrainError> {
        let tokenizer: Tokenizer = json.parse().map_err(failed)?;
        let texts = self.texts.iter().map(String::as_str).collect();
        let encoded = tokenizer.encode_batch_fast(texts, false).map_err(failed)?;
        let (mut train, mut held) = (Vec::new(), Vec::new());
        for text in encoded {
            let ids = text.get_ids();
            let (first, last) = ids.split_at(ids.len() - ids.len() / HELD);
            for (all, some) in [(&mut train, first), (&mut held, last)] {
                all.extend_from_slice(some);
                all.push(END_ID);
            }
        }
        if let Some(beyond) = train
            .iter()
            .chain(&held)
            .find(|id| **id as usize >= recipe.vocab)
        {
            return unfit(format!(
                "token {beyond} of the texts; accepted is below vocab {}",
                recipe.vocab
            ));
        }
        let least = 2 * recipe.context;
        if train.len() < least {
            return unfit(format!(
                "the texts have {} tokens to train on; accepted are {least} or more, twice the context",
                train.len()
            ));
        }
        Ok(Tokens { train, held })
    }
}

fn failed(error: impl Into<tokenizers::Error>) -> TrainError {
    TrainError::Unfit(format!("the tokenizer: {}", error.into()))
}
