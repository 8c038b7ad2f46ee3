//! A patch that only inserts: whole files, and lines after a line.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Files of a registry copy that are cargo's own.
const LEFT_OUT: [&str; 3] = [".cargo-ok", ".cargo_vcs_info.json", "Cargo.lock"];

/// The insertions, as `insertions.toml` lists them.
#[derive(Debug)]
pub struct Patch {
    folder: PathBuf,
    list: List,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    name: String,
    version: String,
    new: Vec<New>,
    file: Vec<Touched>,
}

/// A file that the published crate does not have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    path: PathBuf,
    from: PathBuf,
}

/// A published file with lines to insert.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Touched {
    path: PathBuf,
    sha256: String,
    insert: Vec<Insert>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Insert {
    after: String,
    lines: String,
}

/// Why the published crate is not the one that the insertions are for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Other bytes.
    #[error("{path}: its sha256 is {found}; the insertions are for {expected}")]
    Hash {
        /// The published file.
        path: String,
        /// Its hash.
        found: String,
        /// That of the file that the insertions were written for.
        expected: String,
    },
    /// A line that should be there once.
    #[error("{path}: the line {line:?} is there {found} times; once is accepted")]
    Anchor {
        /// The published file.
        path: String,
        /// The line.
        line: String,
        /// How often it is there.
        found: usize,
    },
    /// A new file that is there already.
    #[error("{path}: is in the published crate; the insertions would replace it")]
    Exists {
        /// The published file.
        path: String,
    },
}

/// What an application did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files of the patched crate.
    pub files: usize,
    /// Those whose text was not there before.
    pub written: usize,
    /// Lines inserted into published files.
    pub lines: usize,
}

impl Patch {
    /// Reads `insertions.toml` of `folder`.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("insertions.toml");
        let about = || path.display().to_string();
        let text = fs::read_to_string(&path).with_context(about)?;
        let list = toml::from_str(&text).with_context(about)?;
        Ok(Self {
            folder: folder.to_owned(),
            list,
        })
    }

    /// The crate.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.list.name
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.list.version
    }

    /// Makes `to` the published crate in `from` with the insertions; what else is in `to` goes. All
    /// checks come before the first write.
    ///
    /// # Errors
    /// [`PatchError`] if `from` is another crate; a file that cannot be read or written.
    pub fn apply(&self, from: &Path, to: &Path) -> Result<Applied> {
        let mut texts = Vec::new();
        let mut lines = 0;
        for touched in &self.list.file {
            let (text, inserted) = touched.text(from)?;
            texts.push((touched.path.clone(), text.into_bytes()));
            lines += inserted;
        }
        for new in &self.list.new {
            if from.join(&new.path).exists() {
                let path = new.path.display().to_string();
                return Err(PatchError::Exists { path }.into());
            }
            texts.push((new.path.clone(), read(&self.folder.join(&new.from))?));
        }
        let mut kept: BTreeSet<PathBuf> = texts.iter().map(|(path, _)| path.clone()).collect();
        for path in files(from)? {
            let own = LEFT_OUT.iter().any(|name| path == Path::new(name));
            if !own && kept.insert(path.clone()) {
                let bytes = read(&from.join(&path))?;
                texts.push((path, bytes));
            }
        }
        let mut done = Applied {
            files: texts.len(),
            lines,
            written: 0,
        };
        for (path, bytes) in texts {
            done.written += usize::from(write(&to.join(path), &bytes)?);
        }
        for path in files(to)?.into_iter().filter(|path| !kept.contains(path)) {
            let path = to.join(path);
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
            done.written += 1;
        }
        Ok(done)
    }
}

impl Touched {
    /// The file with its insertions, and how many lines they are.
    fn text(&self, from: &Path) -> Result<(String, usize)> {
        let path = from.join(&self.path);
        let name = path.display().to_string();
        let bytes = read(&path)?;
        let found: String = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        if found != self.sha256 {
            let expected = self.sha256.clone();
            return Err(PatchError::Hash {
                path: name,
                found,
                expected,
            }
            .into());
        }
        let text = String::from_utf8(bytes).with_context(|| name.clone())?;
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut inserted = 0;
        for insert in &self.insert {
            let fits = |line: &&str| line.trim_end_matches(['\r', '\n']) == insert.after;
            let places: Vec<usize> = (0..lines.len()).filter(|at| fits(&lines[*at])).collect();
            let [at] = places[..] else {
                let (line, found) = (insert.after.clone(), places.len());
                return Err(PatchError::Anchor {
                    path: name,
                    line,
                    found,
                }
                .into());
            };
            let new = insert.lines.split_inclusive('\n');
            inserted += new.clone().count();
            lines.splice(at + 1..at + 1, new);
        }
        Ok((lines.concat(), inserted))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// Writes what is not there yet; true if it was not.
fn write(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    let about = || path.display().to_string();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(about)?;
    }
    fs::write(path, bytes).with_context(about)?;
    Ok(true)
}

/// The files below `folder`, relative to it, sorted; none if it is not there.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut all = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        let path = folder.join(&inner);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| path.display().to_string())?,
        };
        for entry in entries {
            let entry = entry.with_context(|| path.display().to_string())?;
            let name = inner.join(entry.file_name());
            if entry
                .file_type()
                .with_context(|| path.display().to_string())?
                .is_dir()
            {
                open.push(name);
            } else {
                all.insert(name);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
