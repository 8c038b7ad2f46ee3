//! How a checkpoint can lie, one variant each.

use std::{fmt::Display, path::Path};

/// A checkpoint that cannot be loaded: the file, and what is wrong in it.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct LoadError {
    /// The file (or directory) at fault.
    pub file: String,
    /// What is wrong in it.
    pub problem: Problem,
}

impl LoadError {
    /// `problem`, found in `file`.
    #[must_use]
    pub fn new(file: &Path, problem: Problem) -> Self {
        Self {
            file: file.display().to_string(),
            problem,
        }
    }
}

/// What is wrong in a file: the thing, the value found, and what would be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The system could not read the file.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Nothing here is a checkpoint that we know.
    #[error("{found}; accepted is {accepted}")]
    Unrecognised {
        /// What was found.
        found: String,
        /// What would be accepted.
        accepted: String,
    },

    /// Not JSON, or a key given twice.
    #[error("{what} is not valid JSON: {source}")]
    Json {
        /// Which JSON text.
        what: &'static str,
        /// The parser's answer, with line and column.
        source: serde_json::Error,
    },
    /// A key that must be there is not.
    #[error("key {key} is missing; accepted is {accepted}")]
    MissingKey {
        /// The key.
        key: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A key whose value has the wrong type, is out of range, or asks for what we do not compute.
    #[error("{key} is {value}; accepted is {accepted}")]
    Key {
        /// The key.
        key: String,
        /// The value found.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// Two claims that cannot both hold.
    #[error("{one}, but {other}; accepted is {accepted}")]
    Contradiction {
        /// One claim, with its value.
        one: String,
        /// The other claim, with its value.
        other: String,
        /// What would be accepted.
        accepted: String,
    },

    /// The text or header ends before what it promises.
    #[error("{what} needs {need} bytes at offset {at}, but only {left} are left")]
    Truncated {
        /// What was being read.
        what: String,
        /// Where.
        at: u64,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        left: u64,
    },
    /// A count or length beyond the reader's limit.
    #[error("{what} is {value}; accepted is at most {limit}")]
    TooLarge {
        /// What was counted.
        what: String,
        /// Its value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// Not a GGUF file.
    #[error("starts with {found:?}; accepted is the magic \"GGUF\"")]
    Magic {
        /// The first four bytes.
        found: String,
    },
    /// A GGUF version whose layout we do not know.
    #[error("GGUF version {found}; accepted are 2 and 3, little-endian")]
    Version {
        /// The version found.
        found: u32,
    },
    /// A metadata value of unknown type.
    #[error("key {key} has value type {found}; accepted are 0 to 12")]
    ValueType {
        /// The key.
        key: String,
        /// The type's number.
        found: u32,
    },
    /// A string that is not UTF-8.
    #[error("{what} is not UTF-8 (byte {at} of the string)")]
    Utf8 {
        /// Which string.
        what: String,
        /// Offset of the first bad byte.
        at: usize,
    },
    /// A metadata key given twice.
    #[error("key {key} is given twice; accepted is once")]
    DuplicateKey {
        /// The key.
        key: String,
    },

    /// A tensor with too many dimensions, an empty one, or more elements than can be counted.
    #[error("tensor {tensor} has shape {shape:?}; accepted are {accepted}")]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// The shape as stored.
        shape: Vec<u64>,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A tensor of a type that we cannot read, or not in this place.
    #[error("tensor {tensor} has type {found}; accepted are {accepted}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// Its type.
        found: String,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A quantised tensor whose rows are not whole blocks.
    #[error(
        "tensor {tensor} has rows of {row} values; accepted are multiples of {block} ({dtype})"
    )]
    Ragged {
        /// The tensor.
        tensor: String,
        /// Values in a row.
        row: usize,
        /// Values in a block.
        block: usize,
        /// The stored type.
        dtype: &'static str,
    },
    /// A tensor whose bytes do not lie in the file.
    #[error("tensor {tensor} lies at bytes {begin}..{end} of the data, which has {len}")]
    OutOfFile {
        /// The tensor.
        tensor: String,
        /// Offset of its first byte in the data section.
        begin: u64,
        /// Offset after its last byte.
        end: u64,
        /// Length of the data section.
        len: u64,
    },
    /// Two tensors that share bytes.
    #[error(
        "tensor {tensor} begins at byte {begin} of the data, inside tensor {other}, which ends at {end}"
    )]
    Overlap {
        /// The later tensor.
        tensor: String,
        /// Where it begins.
        begin: u64,
        /// The earlier tensor.
        other: String,
        /// Where that ends.
        end: u64,
    },
    /// Bytes of a safetensors file that belong to no tensor.
    #[error("bytes {begin}..{end} of the data, before {before}, belong to no tensor")]
    Hole {
        /// First byte of the hole.
        begin: u64,
        /// Byte after the hole.
        end: u64,
        /// The tensor after it, or the end of the file.
        before: String,
    },
    /// A tensor whose declared bytes are not what its shape and type need.
    #[error("tensor {tensor} has {found} bytes, but its shape and type need {need}")]
    Size {
        /// The tensor.
        tensor: String,
        /// Bytes declared.
        found: u64,
        /// Bytes needed.
        need: u64,
    },
    /// A GGUF tensor off the file's alignment.
    #[error(
        "tensor {tensor} begins at byte {begin} of the data; accepted are multiples of {alignment}"
    )]
    Unaligned {
        /// The tensor.
        tensor: String,
        /// Its offset.
        begin: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor given twice.
    #[error("tensor {tensor} is given twice ({places}); accepted is once")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// Where.
        places: String,
    },
    /// A tensor of the network that no file holds.
    #[error("tensor {tensor} is missing; accepted is {accepted}")]
    MissingTensor {
        /// The tensor's canonical name.
        tensor: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A tensor that the network has no place for.
    #[error("tensor {tensor} has no place in the network: {why}")]
    UnknownTensor {
        /// The tensor, as the file names it.
        tensor: String,
        /// What the network has instead.
        why: String,
    },
    /// A tensor that was loaded by nothing.
    #[error("tensor {tensor} was not used by the network that was built from this checkpoint")]
    UnusedTensor {
        /// The tensor's canonical name.
        tensor: String,
    },
    /// A tensor whose shape differs from the configuration's.
    #[error("tensor {tensor} has shape {found:?}; accepted is {expected:?} ({why})")]
    Shape {
        /// The tensor, as the file names it.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// Its shape by the configuration.
        expected: Vec<usize>,
        /// The names behind the expected shape.
        why: &'static str,
    },
    /// A value that no weight can have.
    #[error("tensor {tensor} holds {value} at {at}; accepted are {accepted}")]
    Value {
        /// The tensor.
        tensor: String,
        /// The value.
        value: f32,
        /// Its index.
        at: usize,
        /// What would be accepted.
        accepted: &'static str,
    },

    /// An index entry whose shard's name leaves the directory.
    #[error(
        "weight_map puts tensor {tensor} in {shard:?}; accepted are names of .safetensors files in the same directory"
    )]
    ShardName {
        /// The tensor.
        tensor: String,
        /// The shard's name.
        shard: String,
    },
    /// A shard that is not there.
    #[error("weight_map puts tensor {tensor} in {shard}, which does not exist")]
    MissingShard {
        /// The first tensor of that shard.
        tensor: String,
        /// The shard.
        shard: String,
    },
    /// A tensor that its shard does not hold.
    #[error("weight_map puts tensor {tensor} in {shard}, which does not hold it{elsewhere}")]
    Elsewhere {
        /// The tensor.
        tensor: String,
        /// The shard that the index names.
        shard: String,
        /// The shard that does hold it, if one does: `; NAME does`.
        elsewhere: String,
    },
    /// A tensor that a shard holds and the index does not list.
    #[error("{shard} holds tensor {tensor}, which weight_map does not list")]
    Unlisted {
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: String,
    },
}

impl Problem {
    pub(crate) fn key(key: impl Into<String>, value: impl Display, accepted: &str) -> Self {
        Self::Key {
            key: key.into(),
            value: value.to_string(),
            accepted: accepted.to_owned(),
        }
    }

    pub(crate) fn missing(key: &str, accepted: &str) -> Self {
        Self::MissingKey {
            key: key.to_owned(),
            accepted: accepted.to_owned(),
        }
    }

    pub(crate) fn contradiction(
        one: impl Into<String>,
        other: impl Into<String>,
        accepted: &str,
    ) -> Self {
        Self::Contradiction {
            one: one.into(),
            other: other.into(),
            accepted: accepted.to_owned(),
        }
    }

    pub(crate) fn io(doing: &str, source: std::io::Error) -> Self {
        Self::Io {
            doing: doing.to_owned(),
            source,
        }
    }

    /// This problem, in `file`.
    #[must_use]
    pub fn in_file(self, file: &Path) -> LoadError {
        LoadError::new(file, self)
    }
}
