//! Counters of speculative decoding, reported with a request's usage.

#[cfg(feature = "pyo3_macros")]
use pyo3::pyclass;
use serde::Serialize;

/// What speculation did for one request, all its choices together.
#[cfg_attr(feature = "pyo3_macros", pyclass)]
#[cfg_attr(feature = "pyo3_macros", pyo3(get_all))]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SpeculativeUsage {
    /// The seed that its random numbers came from.
    pub seed: u64,
    /// Tokens generated so far, of all choices; the usage has it as `completion_tokens`.
    #[serde(skip)]
    pub completion_tokens: usize,
    /// Passes of the model after the prompt's.
    pub rounds: usize,
    /// Tokens guessed.
    pub drafted: usize,
    /// Guesses that were kept and delivered.
    pub accepted: usize,
    /// Rounds that guessed at each position after the last token.
    pub drafted_by_position: Vec<usize>,
    /// Rounds that kept a guess at each position.
    pub accepted_by_position: Vec<usize>,
    /// Seconds of the stages of the rounds that it took part in; a pass that it shared counts in full.
    pub draft_sec: f64,
    pub verify_sec: f64,
    pub accept_sec: f64,
    pub commit_sec: f64,
}
