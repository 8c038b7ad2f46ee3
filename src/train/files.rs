//! Files that appear whole.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::TrainError;

/// Has `write` make a file under another name, which becomes `path` when it is whole and on disk; until
/// then what was there stays.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), TrainError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.part"));
    let written = write(&part)
        .and_then(|()| File::open(&part)?.sync_all())
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What stopped it is what is said.
        let _ = fs::remove_file(&part);
    }
    written.map_err(TrainError::io(path, "write it"))
}
