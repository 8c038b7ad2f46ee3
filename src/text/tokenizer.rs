//! Text to token ids and back.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokenizers::{Decoder, ModelWrapper};

use super::differences::Differences;
use super::guard::guarded;
use super::stream::{Route, TextStream};
use super::{TextError, Vocabulary};
use crate::{
    model::load::{Files, Source, gguf::Metadata},
    types::TokenId,
};

/// Text to token ids and back. Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    hf: tokenizers::Tokenizer,
    /// Highest id plus one.
    valid: usize,
    /// Added tokens, special or not, longest first.
    added: Vec<(String, TokenId)>,
    route: Route,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the tokenizers library refuses it.
    pub fn from_json(path: &Path) -> Result<Self, TextError> {
        Self::from_source(&Source::from(path))
    }

    /// The `tokenizer.json` of a model directory; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json).
    pub fn from_dir(dir: impl Into<Files>) -> Result<Option<Self>, TextError> {
        let source = dir.into().file("tokenizer.json");
        source
            .exists()
            .then(|| Self::from_source(&source))
            .transpose()
    }

    fn from_source(source: &Source) -> Result<Self, TextError> {
        let bytes = source.read().map_err(|error| TextError::Read {
            path: source.path().to_owned(),
            source: error,
        })?;
        Self::from_bytes(&source.path().display().to_string(), &bytes)
    }

    /// Builds the tokenizer that GGUF metadata describes; see [`Vocabulary::tokenizer`]. `None` if
    /// the file has no tokenizer.
    ///
    /// # Errors
    ///
    /// As [`Vocabulary::from_metadata`] and [`Vocabulary::tokenizer`].
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>, TextError> {
        let vocabulary = Vocabulary::from_metadata(metadata)?;
        vocabulary.map(|v| v.tokenizer()).transpose()
    }

    pub(super) fn from_value(name: &str, json: &Value) -> Result<Self, TextError> {
        Self::from_bytes(name, json.to_string().as_bytes())
    }

    fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, TextError> {
        let refused = |source| TextError::Tokenizer {
            name: name.to_owned(),
            source,
        };
        let hf = guarded(|| tokenizers::Tokenizer::from_bytes(bytes));
        let mut hf = hf
            .map_err(|panic| refused(panic.into()))?
            .map_err(refused)?;
        if let ModelWrapper::BPE(bpe) = hf.get_model()
            && let Some(dropout) = bpe.dropout.filter(|dropout| *dropout > 0.0)
        {
            let reason = format!("dropout {dropout}: it makes ids random; accepted is null");
            return Err(refused(reason.into()));
        }
        // A file may carry the limits it was last used with; they are no part of the tokenizer.
        hf.with_truncation(None).map_err(refused)?;
        hf.with_padding(None);

        let highest = hf.get_vocab(true).into_values().max();
        let valid = highest.map_or(0, |id| id as usize + 1);
        let mut added: Vec<(String, TokenId)> = hf
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| (token.content, id))
            .collect();
        added.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        let route = Route::of(name, hf.get_decoder())?;
        Ok(Self {
            inner: Arc::new(Inner {
                hf,
                valid,
                added,
                route,
            }),
        })
    }

    /// Ids of a text that is complete as it stands, such as a rendered chat. Special tokens
    /// spelled in the text are recognised, nothing is added.
    ///
    /// # Errors
    ///
    /// The tokenizer's model has no way to spell the text.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.ids(text, false)
    }

    /// Ids of a raw prompt: as [`Tokenizer::encode`], with the BOS (or whatever else) that the
    /// model wants around a text.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        self.ids(text, true)
    }

    fn ids(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>, TextError> {
        let encoding = guarded(|| self.inner.hf.encode_fast(text, add_special));
        let encoding = encoding.map_err(|panic| TextError::Encode(panic.into()))?;
        let encoding = encoding.map_err(TextError::Encode)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of a sequence. Special tokens and ids without a token are skipped; bytes that are
    /// no UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn decode(&self, tokens: &[TokenId]) -> Result<String, TextError> {
        let pieces: Vec<String> = tokens.iter().filter_map(|id| self.piece(*id)).collect();
        self.join(pieces)
    }

    /// A stream that decodes one token at a time.
    #[must_use]
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone())
    }

    /// The number of ids: the highest, added tokens included, plus one. Logits from here on belong
    /// to no token.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.inner.valid
    }

    /// The token's own spelling (for byte-level tokenizers in GPT-2's alphabet), not its text.
    #[must_use]
    pub fn token(&self, id: TokenId) -> Option<String> {
        self.inner.hf.id_to_token(id)
    }

    /// The id of a token by its own spelling.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<TokenId> {
        self.inner.hf.token_to_id(token)
    }

    /// Whether decoding skips this id.
    #[must_use]
    pub fn is_special(&self, id: TokenId) -> bool {
        let added = self.inner.hf.get_added_vocabulary();
        self.token(id)
            .is_some_and(|token| added.is_special_token(&token))
    }

    /// The longest added token that `text` begins with.
    #[must_use]
    pub fn added_at_start(&self, text: &str) -> Option<TokenId> {
        let mut added = self.inner.added.iter();
        added
            .find(|(content, _)| !content.is_empty() && text.starts_with(content.as_str()))
            .map(|(_, id)| *id)
    }

    /// The tokenizers library's own.
    #[must_use]
    pub fn hf(&self) -> &tokenizers::Tokenizer {
        &self.inner.hf
    }

    /// Compares what the ids mean in two tokenizers.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Differences {
        Differences::between(&self.spellings(), &other.spellings())
    }

    /// Each id's spelling.
    fn spellings(&self) -> BTreeMap<TokenId, String> {
        let model = self.inner.hf.get_vocab(true).into_iter();
        let added = self.inner.added.iter().cloned();
        model.chain(added).map(|(token, id)| (id, token)).collect()
    }

    pub(super) fn route(&self) -> Route {
        self.inner.route
    }

    /// The spelling that [`Tokenizer::decode`] hands to the decoder; `None` if it skips the id.
    pub(super) fn piece(&self, id: TokenId) -> Option<String> {
        let added = self.inner.hf.get_added_vocabulary();
        self.token(id)
            .filter(|token| !added.is_special_token(token))
    }

    /// What [`Tokenizer::decode`] makes of pieces.
    pub(super) fn join(&self, pieces: Vec<String>) -> Result<String, TextError> {
        match self.inner.hf.get_decoder() {
            // Some decoders subtract one from the number of pieces.
            _ if pieces.is_empty() => Ok(String::new()),
            Some(decoder) => guarded(|| decoder.decode(pieces))
                .map_err(|panic| TextError::Decode(panic.into()))?
                .map_err(TextError::Decode),
            None => Ok(pieces.join(" ")),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("valid", &self.inner.valid)
            .field("added", &self.inner.added.len())
            .finish_non_exhaustive()
    }
}
