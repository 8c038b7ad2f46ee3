//! Where the files of a checkpoint lie: on disk, or in memory.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Cursor, Error, ErrorKind, Read, Result, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::file;

/// The files of a checkpoint: a directory or a file on disk, or a directory that lies in memory. Every
/// loader takes either; a path is one by `into`.
#[derive(Clone, Debug)]
pub struct Files {
    path: PathBuf,
    held: Option<Arc<BTreeMap<&'static str, &'static [u8]>>>,
}

impl Files {
    /// Files in memory by their names in a directory, which errors call `name`.
    pub fn held(
        name: impl Into<PathBuf>,
        files: impl IntoIterator<Item = (&'static str, &'static [u8])>,
    ) -> Self {
        Self {
            path: name.into(),
            held: Some(Arc::new(files.into_iter().collect())),
        }
    }

    /// The path, or the name of what lies in memory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is anything.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.held.is_some() || self.path.exists()
    }

    /// Whether these are the files of a directory, not one file.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.held.is_some() || self.path.is_dir()
    }

    /// What lies in memory, by name; `None` for what is on disk.
    pub(crate) fn in_memory(&self) -> Option<&BTreeMap<&'static str, &'static [u8]>> {
        self.held.as_deref()
    }

    /// The file `name` of the directory.
    pub(crate) fn file(&self, name: &str) -> Source {
        Source {
            path: self.path.join(name).into(),
            place: match &self.held {
                None => Place::Disk,
                Some(held) => Place::Memory(held.get(name).copied()),
            },
        }
    }

    /// What is one file itself. Nothing that lies in memory is.
    pub(crate) fn whole(&self) -> Source {
        Source {
            path: self.path.as_path().into(),
            place: match self.held {
                None => Place::Disk,
                Some(_) => Place::Memory(None),
            },
        }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Files {
    fn from(path: &P) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            held: None,
        }
    }
}

/// One file of a checkpoint. It need not be there.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    path: Arc<Path>,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Disk,
    /// `None`: the directory in memory has no such file.
    Memory(Option<&'static [u8]>),
}

impl Source {
    /// How errors call it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn exists(&self) -> bool {
        match self.place {
            Place::Disk => self.path.exists(),
            Place::Memory(bytes) => bytes.is_some(),
        }
    }

    /// Opens it, with its length.
    pub(crate) fn open(&self) -> Result<(Reader, u64)> {
        match self.place {
            Place::Disk => {
                let (file, len) = file::open(&self.path)?;
                Ok((Reader::Disk(file), len))
            }
            Place::Memory(Some(bytes)) => {
                Ok((Reader::Memory(Cursor::new(bytes)), bytes.len() as u64))
            }
            Place::Memory(None) => Err(Error::new(ErrorKind::NotFound, "no such embedded file")),
        }
    }

    /// All bytes, at most [`file::MAX_TEXT`].
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        let (reader, len) = self.open()?;
        if len > file::MAX_TEXT {
            let limit = file::MAX_TEXT;
            let message = format!("{len} bytes are more than the accepted {limit}");
            return Err(Error::other(message));
        }
        let mut bytes = Vec::new();
        reader.take(file::MAX_TEXT).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Source {
    fn from(path: &P) -> Self {
        Self {
            path: path.as_ref().into(),
            place: Place::Disk,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) enum Reader {
    Disk(File),
    Memory(Cursor<&'static [u8]>),
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        match self {
            Self::Disk(file) => file.read(into),
            Self::Memory(bytes) => bytes.read(into),
        }
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        match self {
            Self::Disk(file) => file.seek(to),
            Self::Memory(bytes) => bytes.seek(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let odd = if cfg!(unix) {
            Path::new("/dev/zero")
        } else {
            dir.path()
        };
        for path in [dir.path(), odd] {
            let error = Source::from(path).read().unwrap_err().to_string();
            assert_eq!(error, "not a regular file");
        }
        let path = dir.path().join("text");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(Source::from(&path).read().unwrap(), b"abc");
        let large = File::create(&path).unwrap();
        large.set_len(file::MAX_TEXT + 1).unwrap();
        let error = Source::from(&path).read().unwrap_err().to_string();
        assert!(error.contains("more than the accepted"), "{error}");
    }

    #[test]
    fn memory_reads_as_a_directory_does() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "abc").unwrap();
        let held = Files::held("held", [("a", &b"abc"[..])]);
        for files in [Files::from(dir.path()), held] {
            assert!(files.exists() && files.is_dir(), "{files:?}");
            let (mut reader, len) = files.file("a").open().unwrap();
            assert_eq!(len, 3);
            reader.seek(SeekFrom::Start(1)).unwrap();
            let mut rest = String::new();
            reader.read_to_string(&mut rest).unwrap();
            assert_eq!((rest.as_str(), files.file("a").exists()), ("bc", true));
            let none = files.file("b");
            assert!(!none.exists() && none.path().ends_with("b"));
            assert_eq!(none.read().unwrap_err().kind(), ErrorKind::NotFound);
            assert!(files.whole().open().is_err());
        }
    }
}
