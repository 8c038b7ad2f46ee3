//! Text as it comes, token by token.
//!
//! The pieces of a [`TextStream`], put together, are exactly [`Tokenizer::decode`] of the whole
//! sequence, and a piece is never taken back. How much can be said at once depends on how the
//! tokenizer decodes:
//!
//! * byte-level (GPT-2 and after): a token is bytes, so the stream holds at most the three bytes of
//!   an unfinished character;
//! * the SentencePiece kind and other decoders where a token's text depends on the tokens beside
//!   it: the new token is decoded together with the piece before it, and the difference is new. A
//!   run of byte tokens is held until it ends, for one bad byte changes the text of the whole run;
//! * decoders about which neither is known to hold: all text comes at the end.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::{TextError, Tokenizer};
use crate::types::TokenId;

/// How far a token's text reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// A token is bytes.
    Bytes,
    /// A token's text depends on the piece before it.
    Window {
        /// Runs of `<0xNN>` tokens stand or fall together.
        byte_runs: bool,
    },
    /// Unknown.
    Whole,
}

impl Route {
    /// # Errors
    ///
    /// A decoder on which the library would panic.
    pub(super) fn of(
        name: &str,
        decoder: Option<&tokenizers::DecoderWrapper>,
    ) -> Result<Self, TextError> {
        let Some(decoder) = decoder else {
            return Ok(Self::Window { byte_runs: false });
        };
        let json = serde_json::to_value(decoder).map_err(|error| TextError::Tokenizer {
            name: name.to_owned(),
            source: error.into(),
        })?;
        let steps = match json.get("decoders").and_then(Value::as_array) {
            Some(steps) => steps.clone(),
            None => vec![json],
        };
        let kinds: Vec<&str> = steps
            .iter()
            .map(|step| step.get("type").and_then(Value::as_str).unwrap_or(""))
            .collect();
        let strips_end = |step: &&Value| step.get("stop").is_some_and(|stop| *stop != 0);
        if let Some(found) = steps.iter().find(strips_end) {
            return Err(TextError::Decoder {
                name: name.to_owned(),
                found: found.to_string(),
                accepted: "only stop 0 works on texts shorter than what is stripped",
            });
        }
        if kinds == ["ByteLevel"] {
            return Ok(Self::Bytes);
        }
        // Behind `Fuse` there is one string: only stripping its ends still depends on the ends alone.
        let fused = kinds.iter().position(|kind| *kind == "Fuse");
        let (apart, joined) = kinds.split_at(fused.unwrap_or(kinds.len()));
        let local = apart.iter().all(|kind| {
            matches!(
                *kind,
                "Metaspace" | "WordPiece" | "BPEDecoder" | "Replace" | "ByteFallback" | "Strip"
            )
        });
        if local && joined.iter().all(|kind| matches!(*kind, "Fuse" | "Strip")) {
            let byte_runs = apart.contains(&"ByteFallback");
            Ok(Self::Window { byte_runs })
        } else {
            Ok(Self::Whole)
        }
    }
}

/// Decodes a growing sequence; see the module's words.
#[derive(Debug, Clone)]
pub struct TextStream {
    tokenizer: Tokenizer,
    held: Held,
}

/// What has been pushed and not yet said, and what is needed to say it.
#[derive(Debug, Clone)]
enum Held {
    Bytes(Vec<u8>),
    Window {
        byte_runs: bool,
        pieces: Vec<String>,
        /// The leading `pieces` that have been said.
        said: usize,
    },
    Whole(Vec<TokenId>),
}

impl Held {
    fn new(route: Route) -> Self {
        match route {
            Route::Bytes => Self::Bytes(Vec::new()),
            Route::Window { byte_runs } => Self::Window {
                byte_runs,
                pieces: Vec::new(),
                said: 0,
            },
            Route::Whole => Self::Whole(Vec::new()),
        }
    }
}

impl TextStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        let held = Held::new(tokenizer.route());
        Self { tokenizer, held }
    }

    /// The text that is certain now and was not before; often empty.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn push(&mut self, token: TokenId) -> Result<String, TextError> {
        if let Held::Whole(tokens) = &mut self.held {
            tokens.push(token);
            return Ok(String::new());
        }
        let Some(piece) = self.tokenizer.piece(token) else {
            return Ok(String::new());
        };
        match &mut self.held {
            Held::Bytes(bytes) => {
                spell_bytes(&piece, bytes);
                Ok(take_certain(bytes))
            }
            Held::Window {
                byte_runs,
                pieces,
                said,
            } => {
                let open = *byte_runs && is_byte(&piece);
                pieces.push(piece);
                if open {
                    return Ok(String::new());
                }
                let text = difference(&self.tokenizer, pieces, *said)?;
                // What is said last is the next token's context, unless it has no text: then the
                // start of a text, which decoders treat in their own way, could still be ahead.
                if !self.tokenizer.join(pieces[*said..].to_vec())?.is_empty() {
                    pieces.drain(..*said);
                }
                *said = pieces.len();
                Ok(text)
            }
            Held::Whole(_) => Ok(String::new()),
        }
    }

    /// The text behind all that was said, if no token followed: what may still change. The bytes of an
    /// unfinished character are left out.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn pending(&self) -> Result<String, TextError> {
        match &self.held {
            Held::Window { pieces, said, .. } if *said < pieces.len() => {
                difference(&self.tokenizer, pieces, *said)
            }
            Held::Bytes(_) | Held::Window { .. } => Ok(String::new()),
            Held::Whole(tokens) => self.tokenizer.decode(tokens),
        }
    }

    /// The rest of the text. The stream is then as new.
    ///
    /// # Errors
    ///
    /// The tokenizer's decoder fails.
    pub fn finish(&mut self) -> Result<String, TextError> {
        match std::mem::replace(&mut self.held, Held::new(self.tokenizer.route())) {
            Held::Bytes(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Held::Window { pieces, said, .. } => difference(&self.tokenizer, &pieces, said),
            Held::Whole(tokens) => self.tokenizer.decode(&tokens),
        }
    }
}

/// The text of `pieces` behind that of the first `said` of them.
fn difference(tokenizer: &Tokenizer, pieces: &[String], said: usize) -> Result<String, TextError> {
    let before = tokenizer.join(pieces[..said].to_vec())?;
    let mut text = tokenizer.join(pieces.to_vec())?;
    if !text.starts_with(&before) {
        return Err(TextError::Decode(
            format!("{before:?} became {text:?} when a token was added").into(),
        ));
    }
    Ok(text.split_off(before.len()))
}

/// `<0xNN>`.
fn is_byte(piece: &str) -> bool {
    piece.len() == 6
        && piece.starts_with("<0x")
        && piece.ends_with('>')
        && piece
            .get(3..5)
            .is_some_and(|hex| u8::from_str_radix(hex, 16).is_ok())
}

/// Appends the bytes of a piece in GPT-2's alphabet; a piece with other characters stands for itself.
fn spell_bytes(piece: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in piece.chars() {
        let Some(byte) = ALPHABET.get(&c) else {
            out.truncate(start);
            out.extend_from_slice(piece.as_bytes());
            return;
        };
        out.push(*byte);
    }
}

/// Takes all but an unfinished character off the front, U+FFFD for what can be none.
fn take_certain(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut taken = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        taken += chunk.valid().len();
        let bad = chunk.invalid();
        if bad.is_empty() {
            continue;
        }
        let at_end = taken + bad.len() == bytes.len();
        if at_end && std::str::from_utf8(bad).is_err_and(|e| e.error_len().is_none()) {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        taken += bad.len();
    }
    bytes.drain(..taken);
    text
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes, in order, for U+0100 on.
static ALPHABET: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let mut others = '\u{100}'..;
    (0..=u8::MAX)
        .filter_map(|byte| {
            let own = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let c = if own {
                Some(char::from(byte))
            } else {
                others.next()
            };
            c.map(|c| (c, byte))
        })
        .collect()
});

#[cfg(test)]
mod tests;
