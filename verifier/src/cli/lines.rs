//! Lines of JSON, and what is wrong with them.

use std::{
    fmt,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde::de::DeserializeOwned;

use super::Failure;

/// An error at a place of a file.
pub(super) fn at(path: &Path, line: usize, problem: impl fmt::Display) -> Failure {
    Failure(format!("{}:{line}: {problem}", path.display()))
}

/// An error of a whole file.
pub(super) fn of(path: &Path, problem: impl fmt::Display) -> Failure {
    Failure(format!("{}: {problem}", path.display()))
}

/// What serde says of one line: its own line number says nothing.
pub(super) fn of_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}

/// Hands every line that is not blank to `each`, with its number from 1; the number of such lines.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    mut each: impl FnMut(usize, T) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut file = BufReader::new(open(path)?);
    let (mut bytes, mut number, mut count) = (Vec::new(), 0, 0);
    loop {
        bytes.clear();
        if file
            .read_until(b'\n', &mut bytes)
            .map_err(|e| of(path, e))?
            == 0
        {
            return Ok(count);
        }
        number += 1;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let line = serde_json::from_slice(&bytes).map_err(|e| at(path, number, of_json(&e)))?;
        each(number, line)?;
        count += 1;
    }
}

pub(super) fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|e| of(path, e))?;
    match file.metadata() {
        Ok(about) if about.is_dir() => Err(of(path, "is a folder: must be a file")),
        Ok(_) => Ok(file),
        Err(error) => Err(of(path, error)),
    }
}
