//! Checkpoints: a directory of safetensors with its `config.json`, on disk or in memory, or a GGUF file.
//!
//! A checkpoint is opened by its headers alone; tensors are read one by one when asked for. What
//! the files say must be complete and consistent: every tensor of the network is there, with the
//! shape of the configuration, and there is no tensor without a place.
//!
//! Names are Hugging Face's for both containers. Rows of queries and keys are in half-split rotary
//! order for both: GGUF's interleaved rows are put back when they are read.

mod eos;
mod error;
mod file;
pub mod gguf;
pub(crate) mod inspect;
pub(crate) mod json;
pub mod names;
mod open;
pub mod pickle;
pub mod safetensors;
mod source;
mod stored;
pub(crate) mod table;

pub use error::{LoadError, Problem};
pub use inspect::Inspect;
pub use source::Files;
pub(crate) use source::Source;
pub use stored::{Stored, StoredType};

pub(in crate::model) use eos::{eos_id, eos_ids};

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use self::table::Table;
use super::config::Config;
use crate::TokenId;

/// An opened checkpoint: checked headers, tensors still in their files.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    dir: PathBuf,
    config: Config,
    eos: Vec<TokenId>,
    metadata: Option<gguf::Metadata>,
    tensors: Table,
    warnings: Vec<String>,
}

impl Checkpoint {
    /// Opens the directory or GGUF file `files`: reads and checks all headers, no tensor.
    ///
    /// # Errors
    /// Whatever is unknown, missing, of the wrong shape, out of range or contradictory; see
    /// [`Problem`].
    pub fn open(files: impl Into<Files>) -> Result<Self, LoadError> {
        open::open(&files.into())
    }

    /// The network's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// End-of-sequence ids, as the files name them; the tokenizer may know more.
    #[must_use]
    pub fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    /// The metadata of a GGUF file.
    #[must_use]
    pub fn metadata(&self) -> Option<&gguf::Metadata> {
        self.metadata.as_ref()
    }

    /// The directory that holds the checkpoint, where a tokenizer may lie.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was opened: the directory or the GGUF file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was not understood and is taken not to matter, and defaults that were taken.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Canonical names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Stored type and shape of the tensor `name`.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<(StoredType, &[usize])> {
        self.tensors
            .get(name)
            .map(|entry| (entry.dtype, entry.shape.as_slice()))
    }

    /// Reads the tensor `name`.
    ///
    /// # Errors
    /// If there is none, or the file cannot be read.
    pub fn stored(&self, name: &str) -> Result<Stored, LoadError> {
        let entry = self.tensors.get(name).ok_or_else(|| {
            let accepted = "the name of a tensor of this checkpoint".to_owned();
            let tensor = name.to_owned();
            Problem::MissingTensor { tensor, accepted }.in_file(&self.path)
        })?;
        entry.read(name)
    }

    /// Checks that the network that was built used every tensor.
    ///
    /// # Errors
    /// [`Problem::UnusedTensor`] with the first tensor that is not in `used`.
    pub fn finish_check<'n>(
        &self,
        used: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), LoadError> {
        let used: BTreeSet<&str> = used.into_iter().collect();
        match self.names().find(|name| !used.contains(name)) {
            None => Ok(()),
            Some(name) => Err(LoadError::new(
                &self.path,
                Problem::UnusedTensor {
                    tensor: name.to_owned(),
                },
            )),
        }
    }

    /// What was understood.
    #[must_use]
    pub fn inspect(&self) -> Inspect {
        let Config {
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            vocab,
            max_position,
            ..
        } = self.config;
        let norms = ["input_layernorm", "post_attention_layernorm", "norm"];
        Inspect {
            format: "llama",
            source: if self.metadata.is_some() {
                "gguf"
            } else {
                "safetensors"
            },
            taps: Vec::new(),
            taps_convention: None,
            hidden,
            target_hidden: None,
            layers,
            heads,
            kv_heads,
            head_dim,
            vocab,
            draft_vocab: None,
            vocab_map: None,
            embedding: "own",
            lm_head: if self.config.tied { "tied" } else { "own" },
            norms: norms.map(str::to_owned).into(),
            rope: inspect::rope(&self.config.rope),
            max_position,
            dtype: table::types(self.tensors.values()),
            tensors: self.tensors.len(),
            warnings: self.warnings.clone(),
        }
    }
}
