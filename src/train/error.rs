//! What training and its data can fail at.

use std::path::{Path, PathBuf};

use crate::model::load::LoadError;

/// Why data were not written or read, or a head not trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file that is not what it has to be.
    #[error("{}: {what}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What was found, and what would be accepted.
        what: String,
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
    /// The target or the data cannot be trained with.
    #[error("train: {0}")]
    Unfit(String),
    /// A tensor of the target cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl TrainError {
    /// A refusal of the system, as a function of its answer.
    pub(super) fn io(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            path,
            doing,
            source,
        }
    }

    /// A file that is wrong.
    pub(super) fn file(path: &Path, what: impl Into<String>) -> Self {
        Self::File {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
