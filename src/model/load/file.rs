//! Files on disk: regular ones, whose length is known before they are read.

use std::{
    fs::{self, File},
    io::{Error, Result},
    path::Path,
};

/// The largest text file that is read.
pub(crate) const MAX_TEXT: u64 = 1 << 28;

/// Opens a regular file; its length. A pipe, which would be waited for, is not opened.
pub(crate) fn open(path: &Path) -> Result<(File, u64)> {
    if !fs::metadata(path)?.is_file() {
        return Err(Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    Ok((file, len))
}
