//! A folder that appears whole, or not at all.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use super::error::SaveError;

/// A folder in the making, beside the one that it will be. Dropped before that, it vanishes.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    out: PathBuf,
    done: bool,
}

impl Folder {
    /// Begins a folder that will be `out`.
    pub(super) fn beside(out: &Path) -> Result<Self, SaveError> {
        let place = |what| {
            let path = out.to_owned();
            Err(SaveError::Place { path, what })
        };
        let Some(name) = out.file_name() else {
            return place("no name for a new folder");
        };
        match fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return place("is not empty; accepted is a new folder or an empty one"),
            Err(_) if fs::symlink_metadata(out).is_ok() => {
                return place(
                    "is no folder that can be read; accepted is a new one or an empty one",
                );
            }
            Ok(false) | Err(_) => {}
        }
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        if !parent.is_dir() {
            return place("the folder to put it in does not exist");
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let path = parent.join(hidden);
        fs::create_dir(&path).map_err(SaveError::io(&path, "make the folder"))?;
        Ok(Self {
            path,
            out: out.to_owned(),
            done: false,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the folder its name, once the system has its files safe.
    pub(super) fn publish(mut self) -> Result<(), SaveError> {
        let list = || fs::read_dir(&self.path)?.collect::<Result<Vec<_>, _>>();
        let files = list().map_err(SaveError::io(&self.path, "list it"))?;
        for file in files.iter().map(fs::DirEntry::path) {
            let synced = File::open(&file).and_then(|file| file.sync_all());
            synced.map_err(SaveError::io(&file, "write it"))?;
        }
        if self.out.exists() {
            fs::remove_dir(&self.out)
                .map_err(SaveError::io(&self.out, "replace the empty folder"))?;
        }
        fs::rename(&self.path, &self.out).map_err(SaveError::io(&self.out, "make the folder"))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.done {
            // The error that led here is the one to tell.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
