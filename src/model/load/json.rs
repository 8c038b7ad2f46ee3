//! JSON objects of a checkpoint.

use serde_json::{Map, Value};

use super::error::Problem;
pub(crate) use crate::json::brief;

/// Parses `text`, which must be an object in which no key is given twice.
///
/// # Errors
/// [`Problem::Json`] with line and column, or [`Problem::Key`] for anything but an object.
pub(crate) fn object(what: &'static str, text: &str) -> Result<Map<String, Value>, Problem> {
    match crate::json::parse(text).map_err(|source| Problem::Json { what, source })? {
        Value::Object(map) => Ok(map),
        other => Err(Problem::key(what, brief(&other), "an object")),
    }
}
