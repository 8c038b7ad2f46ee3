//! The crate's error: one struct, a kind per area, operands in the variants.
//!
//! The convention on every fallible function: `None` (or an empty value) means *not now, decode
//! plainly*; `Err` means broken; a panic is a bug of ours.

/// Result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong; see [`ErrorKind`].
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error {
    kind: Box<ErrorKind>,
}

impl Error {
    /// The kind, to match on.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

/// The areas an error can come from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting of the engine that cannot work.
    #[error("{name} {value}: {accepted}")]
    Setting {
        /// The setting, as the command line spells it.
        name: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// Rows that do not form trees over committed prefixes, or a token outside the vocabulary.
    #[error("rows: {0}")]
    Rows(String),
    /// A tensor that cannot become a weight.
    #[error("tensor {tensor}: {what}")]
    Weight {
        /// The tensor's canonical name.
        tensor: String,
        /// What is wrong, and what would be accepted.
        what: String,
    },
    /// A cache operation that does not fit the cache's state.
    #[error("cache: {0}")]
    Cache(String),
    /// A drafter that failed; its requests go on without drafts.
    #[error("drafter: {0}")]
    Draft(String),
    /// A computation that failed below us (candle, the device).
    #[error("compute: {0}")]
    Compute(#[from] candle_core::Error),
    /// A sampling parameter out of its range.
    #[error(transparent)]
    Param(#[from] crate::sample::ParamError),
    /// A row at which no token can be chosen.
    #[error(transparent)]
    Fault(#[from] crate::sample::Fault),
    /// A checkpoint that cannot be loaded.
    #[error(transparent)]
    Load(#[from] crate::model::load::LoadError),
    /// A request that cannot be served.
    #[error(transparent)]
    Request(#[from] crate::request::RequestError),
    /// A tree that is no tree.
    #[error("draft tree: {0}")]
    Tree(String),
    /// A judgement that cannot be made.
    #[error("judge: {0}")]
    Judge(String),
    /// What the verifier was given and cannot judge.
    #[error("judge: {0}")]
    Law(#[from] eyrie_verifier::chi2::BadInput),
    /// A tokenizer or chat template that cannot be used.
    #[error(transparent)]
    Text(#[from] crate::text::TextError),
    /// Data or a head that cannot be made.
    #[error(transparent)]
    Train(#[from] crate::train::TrainError),
}

impl<T: Into<ErrorKind>> From<T> for Error {
    fn from(kind: T) -> Self {
        Self {
            kind: Box::new(kind.into()),
        }
    }
}

/// Text of a file as it may be shown: control characters, which could move the cursor or forge lines, are
/// spelled out.
pub(crate) fn printable(text: &str) -> String {
    let spelled = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(spelled).collect()
}
