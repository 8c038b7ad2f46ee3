//! Heads written in another public format: all that the head computes, or an error that names what the
//! format has no place for.
//!
//! What was left to a rule, a default or a flag when the head was read is written out. A folder appears
//! under its name only when it is whole, and has been read back and found equal.

mod error;
mod folder;
mod gguf;
mod held;
mod json;
mod same;
mod tensors;

pub use error::SaveError;

use std::path::{Path, PathBuf};

use super::{
    config::Version,
    load::{HeadCheckpoint, HeadOptions, TargetFacts},
};
use crate::model::load::gguf::Metadata;
use folder::Folder;

/// A format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The paper's own: `config.json` and `model.safetensors`.
    SafeAiLab,
    /// vLLM's speculators: a nested `config.json`, and `model.safetensors`. EAGLE-1 as its versions up
    /// to 0.2 had it.
    Speculators,
    /// llama.cpp's: `head.gguf`.
    Gguf,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SafeAiLab, Self::Speculators, Self::Gguf];

    /// Its name, as `--to` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SafeAiLab => "safeailab",
            Self::Speculators => "speculators",
            Self::Gguf => "gguf",
        }
    }
}

/// What is converted, and what is known of its target.
#[derive(Clone, Copy, Debug)]
pub struct Conversion<'a> {
    /// The head, read for `target`.
    pub head: &'a HeadCheckpoint,
    /// The target, or [what the head says of it](TargetFacts::of_head).
    pub target: &'a TargetFacts,
    /// Metadata of the target, whose tokenizer a GGUF head carries.
    pub metadata: Option<&'a Metadata>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The head: the folder, or the file in it.
    pub path: PathBuf,
    /// What a reader of that format should know.
    pub notes: Vec<String>,
}

impl Conversion<'_> {
    /// Writes the head to the folder `out`, which must not exist or be empty.
    ///
    /// # Errors
    /// [`SaveError`]; nothing is left behind then.
    pub fn save(&self, format: Format, out: &Path) -> Result<Saved, SaveError> {
        self.check(format)?;
        let folder = Folder::beside(out)?;
        let mut notes = Vec::new();
        let name = match format {
            Format::SafeAiLab | Format::Speculators => {
                json::write(self, format, folder.path())?;
                tensors::write(self, format, folder.path())?;
                ""
            }
            Format::Gguf => {
                gguf::write(self, &folder.path().join(gguf::FILE), &mut notes)?;
                gguf::FILE
            }
        };
        let config = self.head.config();
        let eagle3 = config.version == Version::Eagle3;
        if format == Format::Speculators && eagle3 && !config.own_embedding {
            notes.push(
                "embed_tokens.weight is not written: the target's is used, as vLLM does".to_owned(),
            );
        }
        let path = if name.is_empty() {
            folder.path().to_owned()
        } else {
            folder.path().join(name)
        };
        let again = HeadCheckpoint::open(&path, self.target, &HeadOptions::default())?;
        if let Some(what) = same::difference(self.head, &again)? {
            return Err(SaveError::Differs { what });
        }
        folder.publish()?;
        let path = if name.is_empty() {
            out.to_owned()
        } else {
            out.join(name)
        };
        Ok(Saved { path, notes })
    }
}
