//! Why a request is refused.

use crate::sample::ParamError;

/// Why a request is refused, with the field, its value and what would be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The line is not JSON, or a key is given twice.
    #[error("not a JSON object: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The line is no text.
    #[error("not UTF-8 text: {0}")]
    NotText(#[source] std::str::Utf8Error),
    /// The line is JSON, but no object.
    #[error("{0} is not a JSON object")]
    NotAnObject(String),
    /// A field that requests do not have.
    #[error("{0}: unknown field; a request has {fields}", fields = super::spec::FIELDS.join(", "))]
    UnknownField(String),
    /// A value of the wrong type or out of range.
    #[error("{field} {value}: {accepted}")]
    Value {
        /// The field, in snake case.
        field: String,
        /// The value, as JSON.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A sampling parameter out of range.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// A field that needs, or excludes, another.
    #[error("{field}: {reason}")]
    Contradiction {
        /// The field, in snake case.
        field: &'static str,
        /// The other one, and why not.
        reason: &'static str,
    },
    /// Something that this model cannot do.
    #[error("{field}: {reason}")]
    Unsupported {
        /// The field, in snake case.
        field: &'static str,
        /// What the model lacks.
        reason: String,
    },
}

impl RequestError {
    pub(super) fn value(
        field: impl Into<String>,
        value: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self::Value {
            field: field.into(),
            value: value.into(),
            accepted: accepted.into(),
        }
    }

    /// The field that the message begins with, in snake case, if it begins with one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Value { field, .. } => Some(field),
            Self::Param(error) => Some(error.name),
            Self::Contradiction { field, .. } | Self::Unsupported { field, .. } => Some(field),
            _ => None,
        }
    }
}
