//! The index: a line a sequence.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::{Facts, INDEX, TrainError, shard_name};

/// A sequence, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The prompt's place among all prompts.
    pub prompt: usize,
    /// The shard.
    pub shard: u32,
    /// Its first byte there.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Tokens that were given.
    pub prompt_tokens: usize,
    /// All tokens.
    pub tokens: usize,
    /// Temperature of the answer.
    pub temperature: f64,
}

impl Entry {
    /// The byte behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Refuses bytes that are missing before the last shard of an index: no writer that was killed leaves
/// that, and to cut there would drop what is sound.
fn refuse_middle(missing: &Entry, lines: &str) -> Result<(), String> {
    let last = lines.lines().last().map(serde_json::from_str::<Entry>);
    match last {
        Some(Ok(last)) if last.shard == missing.shard => Ok(()),
        _ => Err(format!(
            "bytes to {} are not in {}; accepted are whole shards, but for the last",
            missing.end(),
            shard_name(missing.shard)
        )),
    }
}

/// The index as it lies on disk.
#[derive(Debug)]
pub(super) struct Index {
    /// The sequences whose lines and bytes are there.
    pub(super) entries: Vec<Entry>,
    /// Bytes of their lines.
    pub(super) length: u64,
}

impl Index {
    /// Reads the index of `dir`. A torn last line, and lines at the end whose bytes are not all there,
    /// are left out.
    pub(super) fn read(dir: &Path, facts: &Facts) -> Result<Self, TrainError> {
        let path = dir.join(INDEX);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(TrainError::io(&path, "read it"))?,
        };
        let mut index = Self {
            entries: Vec::new(),
            length: 0,
        };
        let mut sizes = BTreeMap::new();
        let whole = text.rfind('\n').map_or(0, |last| last + 1);
        for (line, number) in text[..whole].split_inclusive('\n').zip(1..) {
            let wrong = |what: String| TrainError::file(&path, format!("line {number}: {what}"));
            let entry: Entry = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
            index.follows(&entry, facts).map_err(wrong)?;
            let size = *sizes.entry(entry.shard).or_insert_with(|| {
                let shard = dir.join(shard_name(entry.shard));
                std::fs::metadata(shard).map_or(0, |file| file.len())
            });
            if entry.end() > size {
                refuse_middle(&entry, &text[..whole]).map_err(wrong)?;
                break;
            }
            index.entries.push(entry);
            index.length += line.len() as u64;
        }
        Ok(index)
    }

    /// Refuses what cannot come after the entries so far.
    fn follows(&self, entry: &Entry, facts: &Facts) -> Result<(), String> {
        let want = facts.bytes(entry.tokens) as u64;
        if entry.bytes != want || entry.prompt_tokens == 0 || entry.prompt_tokens >= entry.tokens {
            return Err(format!(
                "{} bytes for {} tokens, {} of them given; accepted are {want} and a given token at least, \
                 fewer than all",
                entry.bytes, entry.tokens, entry.prompt_tokens
            ));
        }
        let fits = match self.entries.last() {
            None => entry.shard == 0 && entry.offset == 0,
            Some(last) if last.prompt >= entry.prompt => false,
            Some(last) if last.shard == entry.shard => entry.offset == last.end(),
            Some(last) => last.shard.checked_add(1) == Some(entry.shard) && entry.offset == 0,
        };
        if fits {
            return Ok(());
        }
        Err(format!(
            "prompt {} at byte {} of shard {}; accepted is what follows on the line before",
            entry.prompt, entry.offset, entry.shard
        ))
    }
}
