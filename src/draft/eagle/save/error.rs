//! Why a head was not written.

use std::path::{Path, PathBuf};

use crate::model::load::LoadError;

/// Why a head was not written; nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The format has no place for something.
    #[error("{format} cannot hold {what}; accepted is {accepted}")]
    Unheld {
        /// The format.
        format: &'static str,
        /// What the head has.
        what: String,
        /// What would be accepted.
        accepted: String,
    },
    /// The folder cannot be made there.
    #[error("{}: {what}", path.display())]
    Place {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it, and what would be accepted.
        what: &'static str,
    },
    /// The system refused.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The head, or what was written of it, cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What was written is not what was read.
    #[error("what was written is another head: {what}")]
    Differs {
        /// The first difference.
        what: String,
    },
}

impl SaveError {
    /// A refusal of the system, as a function of its answer.
    pub(super) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            path,
            doing,
            source,
        }
    }
}
