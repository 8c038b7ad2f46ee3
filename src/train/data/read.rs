//! Sequences from disk, one at a time.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use half::{f16, slice::HalfFloatSliceExt};

use super::{Entry, Facts, TrainError, index::Index, read_facts, shard_name};
use crate::{Matrix, TokenId, error::Result, model::load::Checkpoint};

/// A folder of data, of which nothing but the index is in memory.
#[derive(Debug)]
pub struct Data {
    pub(super) dir: PathBuf,
    pub(super) facts: Facts,
    pub(super) entries: Vec<Entry>,
}

/// A sequence in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Tokens that were given.
    pub prompt_tokens: usize,
    /// Temperature of the answer.
    pub temperature: f64,
    /// All tokens.
    pub tokens: Vec<TokenId>,
    /// `[tokens - 1, taps * hidden]`.
    pub taps: Matrix,
    /// `[tokens - 1, hidden]`.
    pub finals: Matrix,
}

impl Data {
    /// Opens the folder `dir`.
    ///
    /// # Errors
    /// If it is no folder of data, or has no sequence.
    pub fn open(dir: &Path) -> Result<Self, TrainError> {
        let facts = read_facts(dir)?;
        let Index { entries, .. } = Index::read(dir, &facts)?;
        if entries.is_empty() {
            let what = "has no sequence; accepted is one or more, as distill writes them";
            return Err(TrainError::file(dir, what));
        }
        Ok(Self {
            dir: dir.to_owned(),
            facts,
            entries,
        })
    }

    /// Opens the folder `dir`, which must be of the target `checkpoint`.
    ///
    /// # Errors
    /// As [`Data::open`]; if it is of another target.
    pub fn of(dir: &Path, checkpoint: &Checkpoint) -> Result<Self> {
        let data = Self::open(dir)?;
        let (facts, config) = (&data.facts, checkpoint.config());
        let model = checkpoint.path().display();
        let want = super::fingerprint(checkpoint)?;
        if facts.target != want {
            let found = &facts.target;
            let what = format!("made of target {found}; accepted is {want}, that of {model}");
            return Err(TrainError::file(dir, what).into());
        }
        let found = (facts.vocab, facts.hidden, facts.layers);
        let want = (config.vocab, config.hidden, config.layers);
        if found != want {
            let what = format!(
                "vocab, hidden and layers {found:?}; accepted are {want:?}, those of {model}"
            );
            return Err(TrainError::file(&dir.join(super::FACTS), what).into());
        }
        Ok(data)
    }

    /// What the data were made from.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The sequences, in the order of prompts.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Tokens of the sequence `entry`.
    ///
    /// # Errors
    /// If the shard cannot be read, or a token is outside of the vocabulary.
    pub fn tokens(&self, entry: &Entry) -> Result<Vec<TokenId>, TrainError> {
        let bytes = self.range(entry, 4 * entry.tokens)?;
        self.decode(entry, &bytes)
    }

    /// The sequence `entry`.
    ///
    /// # Errors
    /// If the shard cannot be read, or holds no sequence there.
    pub fn sequence(&self, entry: &Entry) -> Result<Sequence, TrainError> {
        let bytes = self.range(entry, self.facts.bytes(entry.tokens))?;
        let (tokens, halves) = bytes.split_at(4 * entry.tokens);
        let width = self.facts.hidden * self.facts.taps.len();
        let (taps, finals) = halves.split_at(2 * entry.tokens.saturating_sub(1) * width);
        Ok(Sequence {
            prompt_tokens: entry.prompt_tokens,
            temperature: entry.temperature,
            tokens: self.decode(entry, tokens)?,
            taps: self.matrix(entry, width, taps)?,
            finals: self.matrix(entry, self.facts.hidden, finals)?,
        })
    }

    /// Rows of `width` values.
    fn matrix(&self, entry: &Entry, width: usize, halves: &[u8]) -> Result<Matrix, TrainError> {
        let halves = halves.as_chunks::<2>().0.iter();
        let halves: Vec<f16> = halves.map(|b| f16::from_le_bytes(*b)).collect();
        if !halves.iter().all(|x| x.is_finite()) {
            let what = "a value that is not finite; accepted are finite ones";
            return Err(self.wrong(entry, what));
        }
        Ok(Matrix::new(width, halves.to_f32_vec()))
    }

    fn decode(&self, entry: &Entry, bytes: &[u8]) -> Result<Vec<TokenId>, TrainError> {
        let words = bytes.as_chunks::<4>().0.iter();
        let tokens: Vec<TokenId> = words.map(|b| u32::from_le_bytes(*b)).collect();
        let vocab = self.facts.vocab;
        match tokens.iter().find(|token| **token as usize >= vocab) {
            None => Ok(tokens),
            Some(token) => {
                let what = format!("token {token}; accepted are those below {vocab}");
                Err(self.wrong(entry, &what))
            }
        }
    }

    /// The first `length` bytes of a sequence.
    fn range(&self, entry: &Entry, length: usize) -> Result<Vec<u8>, TrainError> {
        let path = self.dir.join(shard_name(entry.shard));
        let mut bytes = vec![0; length];
        let read = File::open(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(entry.offset))?;
            file.read_exact(&mut bytes)
        });
        read.map_err(TrainError::io(&path, "read it"))?;
        Ok(bytes)
    }

    fn wrong(&self, entry: &Entry, what: &str) -> TrainError {
        let path = self.dir.join(shard_name(entry.shard));
        TrainError::file(&path, format!("prompt {}: {what}", entry.prompt))
    }
}
