//! `result.json`, under a name of its own until it is whole: a run that fails leaves an older one alone,
//! and two runs do not write to one file.

use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::{Builder, NamedTempFile};

/// The file to be.
#[derive(Debug)]
pub(super) struct ResultFile {
    part: NamedTempFile,
    whole: PathBuf,
}

impl ResultFile {
    /// Makes the folder and the file, so that a run whose result could not be kept is not begun.
    ///
    /// # Errors
    /// If either cannot be made.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let about = || format!("--out {}", dir.display());
        if dir.exists() && !dir.is_dir() {
            bail!(
                "{} is no folder; accepted is one, or a path where none is yet",
                about()
            );
        }
        fs::create_dir_all(dir).with_context(about)?;
        let mut part = Builder::new();
        part.prefix(".result.json.").suffix(".part");
        #[cfg(unix)]
        {
            // As of any file that is made; a temporary one would be its owner's alone.
            let readable = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            part.permissions(readable);
        }
        Ok(Self {
            part: part.tempfile_in(dir).with_context(about)?,
            whole: dir.join("result.json"),
        })
    }

    /// Where it will be.
    pub(super) fn path(&self) -> &Path {
        &self.whole
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the disk is full, say.
    pub(super) fn write(self, result: &impl Serialize) -> Result<()> {
        let about = || format!("--out {}", self.whole.display());
        let mut to = BufWriter::new(&self.part);
        serde_json::to_writer(&mut to, result).with_context(about)?;
        writeln!(to).and_then(|()| to.flush()).with_context(about)?;
        drop(to);
        self.part.as_file().sync_all().with_context(about)?;
        self.part.persist(&self.whole).with_context(about)?;
        Ok(())
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
        for wrong in [&file, &file.join("below")] {
            let error = format!("{:#}", ResultFile::open(wrong).unwrap_err());
            assert!(error.starts_with("--out "), "{error}");
        }
        let error = ResultFile::open(&file).unwrap_err().to_string();
        assert!(
            error.ends_with("is no folder; accepted is one, or a path where none is yet"),
            "{error}"
        );
    }

    #[test]
    fn two_runs_with_one_folder_write_a_whole_file_each() {
        let dir = tempfile::tempdir().unwrap();
        let (long, short) = ("x".repeat(10_000), "y");
        let [first, second] = [0, 1].map(|_| ResultFile::open(dir.path()).unwrap());
        let read = || fs::read_to_string(dir.path().join("result.json")).unwrap();
        first.write(&long).unwrap();
        assert_eq!(read(), format!("{long:?}\n"));
        second.write(&short).unwrap();
        assert_eq!(read(), format!("{short:?}\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_it_as_any_new_file() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        ResultFile::open(dir.path()).unwrap().write(&1).unwrap();
        fs::write(dir.path().join("any"), "").unwrap();
        let mode = |name: &str| {
            fs::metadata(dir.path().join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("result.json"), mode("any"));
    }
}
