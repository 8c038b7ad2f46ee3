//! The files of a checkpoint: regular ones, whose length is known before they are read.

use std::{
    fs::{self, File},
    io::{Error, Read, Result},
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

/// All bytes of a regular file of at most [`MAX_TEXT`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let (file, len) = open(path)?;
    if len > MAX_TEXT {
        let message = format!("{len} bytes are more than the accepted {MAX_TEXT}");
        return Err(Error::other(message));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT).read_to_end(&mut bytes)?;
    Ok(bytes)
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
            let error = read(path).unwrap_err().to_string();
            assert_eq!(error, "not a regular file");
        }
        let path = dir.path().join("text");
        fs::write(&path, "abc").unwrap();
        assert_eq!(read(&path).unwrap(), b"abc");
        File::create(&path).unwrap().set_len(MAX_TEXT + 1).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("more than the accepted"), "{error}");
    }
}
