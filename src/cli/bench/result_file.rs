//! `result.json`, under another name until it is whole: a run that fails leaves an older one alone.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Serialize;

/// The file to be.
#[derive(Debug)]
pub(super) struct ResultFile {
    part: PathBuf,
    whole: PathBuf,
    file: Option<File>,
}

impl ResultFile {
    /// Makes the folder and the file, so that a run whose result could not be kept is not begun.
    ///
    /// # Errors
    /// If either cannot be made.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let about = || format!("--out {}", dir.display());
        fs::create_dir_all(dir).with_context(about)?;
        let part = dir.join("result.json.part");
        let file = File::create(&part).with_context(about)?;
        Ok(Self {
            whole: dir.join("result.json"),
            file: Some(file),
            part,
        })
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the disk is full, say.
    pub(super) fn write(mut self, result: &impl Serialize) -> Result<()> {
        let about = || format!("--out {}", self.whole.display());
        let file = self.file.take().context("the result is written once")?;
        let mut to = BufWriter::new(file);
        serde_json::to_writer(&mut to, result).with_context(about)?;
        writeln!(to).and_then(|()| to.flush()).with_context(about)?;
        fs::rename(&self.part, &self.whole).with_context(about)
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        // Gone already if it got its name.
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_leaves_the_older_result() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b");
        let names = || fs::read_dir(&out).unwrap().count();
        ResultFile::open(&out).unwrap().write(&1).unwrap();
        drop(ResultFile::open(&out).unwrap());
        assert_eq!(fs::read_to_string(out.join("result.json")).unwrap(), "1\n");
        assert_eq!(names(), 1);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = ResultFile::open(&file).unwrap_err().to_string();
        assert!(error.starts_with("--out "), "{error}");
    }
}
