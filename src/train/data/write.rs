//! Sequences to disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use half::f16;

use super::{
    super::files::replace, Data, Entry, FACTS, Facts, INDEX, TrainError, difference, index::Index,
    read_facts, shard_name,
};
use crate::TokenId;

/// A shard that has reached so many bytes is not added to.
const FULL: u64 = 512 << 20;

/// A sequence to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The prompt's place among all prompts.
    pub prompt: usize,
    /// Tokens that were given.
    pub prompt_tokens: usize,
    /// Temperature of the answer.
    pub temperature: f64,
    /// All tokens.
    pub tokens: Vec<TokenId>,
    /// `[tokens - 1, taps * hidden]`.
    pub taps: Vec<f16>,
    /// `[tokens - 1, hidden]`.
    pub finals: Vec<f16>,
}

/// A folder that sequences are added to.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    facts: Facts,
    entries: Vec<Entry>,
    index: File,
    /// The last shard, with its number and bytes.
    shard: Option<(File, u32, u64)>,
}

impl Writer {
    /// Opens the folder `dir` for data of `facts`, or makes it. What a writer that was killed left
    /// half-written is cut off.
    ///
    /// # Errors
    /// If it holds data that were made otherwise, is damaged before its end, or is being written to.
    pub fn open(dir: &Path, facts: Facts) -> Result<Self, TrainError> {
        let path = dir.join(FACTS);
        if path.exists() {
            if let Some(what) = difference(&read_facts(dir)?, &facts) {
                return Err(TrainError::file(&path, what));
            }
        } else {
            begin(dir, &path, &facts)?;
        }
        let path = dir.join(INDEX);
        let index = open(&path)?;
        if index.try_lock().is_err() {
            let what = "is being written to; accepted is a folder of no other run that goes on";
            return Err(TrainError::file(dir, what));
        }
        let Index { entries, length } = Index::read(dir, &facts)?;
        index
            .set_len(length)
            .map_err(TrainError::io(&path, "cut it"))?;
        let last = entries.last();
        let shard = last.map(|last| -> Result<_, TrainError> {
            let file = cut(&dir.join(shard_name(last.shard)), last.end())?;
            Ok((file, last.shard, last.end()))
        });
        let shard = shard.transpose()?;
        let torn = dir.join(shard_name(
            last.map_or(0, |last| last.shard.saturating_add(1)),
        ));
        if torn.exists() {
            fs::remove_file(&torn).map_err(TrainError::io(&torn, "remove it"))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            facts,
            entries,
            index,
            shard,
        })
    }

    /// What is there.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What is there, to be read.
    #[must_use]
    pub fn data(&self) -> Data {
        Data {
            dir: self.dir.clone(),
            facts: self.facts.clone(),
            entries: self.entries.clone(),
        }
    }

    /// The first prompt that may be added.
    #[must_use]
    pub fn next_prompt(&self) -> usize {
        let last = self.entries.last();
        last.map_or(0, |last| last.prompt.saturating_add(1))
    }

    /// Adds a sequence, of a prompt after all that are there. When this returns it is safe on disk.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Panics
    /// If the record is not as long as it says: a bug of the caller.
    pub fn append(&mut self, record: &Record) -> Result<(), TrainError> {
        let bytes = self.encode(record);
        let (mut file, shard, offset) = match self.shard.take() {
            Some(open) if open.2 < FULL => open,
            full => {
                let next = full.map_or(0, |full| full.1 + 1);
                let path = self.dir.join(shard_name(next));
                let made = OpenOptions::new().create_new(true).append(true).open(&path);
                (made.map_err(TrainError::io(&path, "make it"))?, next, 0)
            }
        };
        let path = self.dir.join(shard_name(shard));
        let written = file.write_all(&bytes).and_then(|()| file.sync_data());
        written.map_err(TrainError::io(&path, "write it"))?;
        let entry = Entry {
            prompt: record.prompt,
            shard,
            offset,
            bytes: bytes.len() as u64,
            prompt_tokens: record.prompt_tokens,
            tokens: record.tokens.len(),
            temperature: record.temperature,
        };
        self.shard = Some((file, shard, offset + entry.bytes));
        let path = self.dir.join(INDEX);
        let line = serde_json::to_string(&entry).map_err(io::Error::other);
        let written = line.and_then(|line| {
            self.index.write_all(format!("{line}\n").as_bytes())?;
            self.index.sync_data()
        });
        written.map_err(TrainError::io(&path, "write it"))?;
        self.entries.push(entry);
        Ok(())
    }

    fn encode(&self, record: &Record) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.facts.bytes(record.tokens.len()));
        bytes.extend(record.tokens.iter().flat_map(|token| token.to_le_bytes()));
        for half in record.taps.iter().chain(&record.finals) {
            bytes.extend(half.to_le_bytes());
        }
        let (found, want) = (bytes.len(), self.facts.bytes(record.tokens.len()));
        assert_eq!(found, want, "bytes of a record");
        bytes
    }
}

/// Makes a folder whose `data.json` appears whole.
fn begin(dir: &Path, path: &Path, facts: &Facts) -> Result<(), TrainError> {
    fs::create_dir_all(dir).map_err(TrainError::io(dir, "make the folder"))?;
    for name in [INDEX.to_owned(), shard_name(0)] {
        if dir.join(&name).exists() {
            let what =
                format!("has {name} and no {FACTS}; accepted is a folder of distill, or a new one");
            return Err(TrainError::file(dir, what));
        }
    }
    let text = serde_json::to_string_pretty(facts).map_err(io::Error::other);
    replace(path, |part| fs::write(part, format!("{}\n", text?)))
}

/// Opens a file to be added to after its first `length` bytes; what is behind them is dropped.
fn cut(path: &Path, length: u64) -> Result<File, TrainError> {
    let file = open(path)?;
    file.set_len(length)
        .map_err(TrainError::io(path, "cut it"))?;
    Ok(file)
}

/// Opens a file to be added to, or makes it.
fn open(path: &Path) -> Result<File, TrainError> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(TrainError::io(path, "open it"))
}
