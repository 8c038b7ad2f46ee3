//! What can go wrong before a request is sent.

/// A list of requests that cannot be read, or a client that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A line that is no request.
    #[error("line {line} of the requests")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The HTTP library.
    #[error("no HTTP client")]
    Http(#[from] reqwest::Error),
}
