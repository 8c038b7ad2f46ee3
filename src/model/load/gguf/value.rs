//! Typed metadata.

use std::{collections::BTreeMap, fmt};

use super::super::error::Problem;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Vec<Self>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// An integer of any width that is not negative.
    #[must_use]
    pub fn as_uint(&self) -> Option<u64> {
        match self {
            Self::U8(v) => Some((*v).into()),
            Self::U16(v) => Some((*v).into()),
            Self::U32(v) => Some((*v).into()),
            Self::U64(v) => Some(*v),
            Self::I8(v) => u64::try_from(*v).ok(),
            Self::I16(v) => u64::try_from(*v).ok(),
            Self::I32(v) => u64::try_from(*v).ok(),
            Self::I64(v) => u64::try_from(*v).ok(),
            _ => None,
        }
    }

    /// An integer of any width.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::I8(v) => Some((*v).into()),
            Self::I16(v) => Some((*v).into()),
            Self::I32(v) => Some((*v).into()),
            Self::I64(v) => Some(*v),
            other => other.as_uint().and_then(|v| v.try_into().ok()),
        }
    }

    /// A float of either width.
    #[must_use]
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::F32(v) => Some((*v).into()),
            Self::F64(v) => Some(*v),
            _ => None,
        }
    }

    /// A boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(v) => Some(*v),
            _ => None,
        }
    }

    /// A string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(v) => Some(v),
            _ => None,
        }
    }

    /// An array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(v) => Some(v),
            _ => None,
        }
    }
}

/// The value as a message shows it: an array by its length, a string by its beginning.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => {
                let short: String = v.chars().take(80).collect();
                write!(f, "{short:?}")
            }
            Self::Array(v) => write!(f, "an array of {}", v.len()),
        }
    }
}

/// The metadata of a GGUF file, ordered by key. A getter answers `None` for a missing key and an
/// error that names the key for a value of another type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    pub(super) fn insert(&mut self, key: String, value: Value) -> Option<Value> {
        self.0.insert(key, value)
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// All keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn typed<'m, T>(
        &'m self,
        key: &str,
        accepted: &str,
        cast: impl FnOnce(&'m Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        self.get(key)
            .map(|value| cast(value).ok_or_else(|| Problem::key(key, value, accepted)))
            .transpose()
    }

    /// A non-negative integer of any width.
    ///
    /// # Errors
    /// If the value is none.
    pub fn uint(&self, key: &str) -> Result<Option<u64>, Problem> {
        self.typed(key, "a non-negative integer", Value::as_uint)
    }

    /// A float of either width.
    ///
    /// # Errors
    /// If the value is none.
    pub fn float(&self, key: &str) -> Result<Option<f64>, Problem> {
        self.typed(key, "a float", Value::as_float)
    }

    /// A boolean.
    ///
    /// # Errors
    /// If the value is none.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Problem> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    /// A string.
    ///
    /// # Errors
    /// If the value is none.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Problem> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An array of any elements.
    ///
    /// # Errors
    /// If the value is none.
    pub fn array(&self, key: &str) -> Result<Option<&[Value]>, Problem> {
        self.typed(key, "an array", Value::as_array)
    }

    /// An array of strings.
    ///
    /// # Errors
    /// If the value is none.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, Problem> {
        self.typed(key, "an array of strings", |value| {
            value.as_array()?.iter().map(Value::as_str).collect()
        })
    }

    /// An array of integers.
    ///
    /// # Errors
    /// If the value is none.
    pub fn ints(&self, key: &str) -> Result<Option<Vec<i64>>, Problem> {
        self.typed(key, "an array of integers", |value| {
            value.as_array()?.iter().map(Value::as_int).collect()
        })
    }
}
