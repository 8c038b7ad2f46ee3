//! The result of one choice of a request.

use serde::{Serialize, Serializer, ser::SerializeSeq};

use super::Timing;
use crate::{TokenId, sample::Dist};

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// An end token, a stop id or a stop text.
    Stop,
    /// The limit of the request or of the target's context.
    Length,
    /// The request failed; its tokens so far are kept.
    Error,
}

/// Natural log-probabilities at one generated token, of the processed law (at temperature 0 of the
/// law at temperature 1 after bias, penalties and masks). Minus infinity is written as `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Logprob {
    /// The token that was generated.
    pub id: TokenId,
    /// Its log-probability.
    #[serde(serialize_with = "finite_or_null")]
    pub logprob: f64,
    /// The likeliest tokens and their log-probabilities, best first, ties by the lower id.
    #[serde(serialize_with = "pairs")]
    pub top: Vec<(TokenId, f64)>,
}

impl Logprob {
    /// The record of `token` under `law`, with its `top` likeliest tokens.
    #[must_use]
    pub fn new(law: &Dist, token: TokenId, top: usize) -> Self {
        Self {
            id: token,
            logprob: law.ln_p(token),
            top: law.top(top),
        }
    }
}

/// What one round did for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RoundCount {
    /// Nodes of the draft tree.
    pub drafted: usize,
    /// Accepted drafts that were delivered.
    pub accepted: usize,
    /// Tokens delivered: `accepted`, or one more.
    pub emitted: usize,
}

/// Token counts of a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens delivered.
    pub completion_tokens: usize,
}

/// A finished choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChoiceReport {
    /// The request's id.
    pub id: String,
    /// Index of the choice in its request.
    pub choice: usize,
    /// The tokens delivered, an end token included.
    pub tokens: Vec<TokenId>,
    /// Their text without end tokens and cut at a stop text; none without a tokenizer.
    pub text: Option<String>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The reason of `error`.
    pub error: Option<String>,
    /// The seed that replays this choice alone; none if the request never became valid.
    pub seed: Option<u64>,
    /// One entry a token, if asked for.
    pub logprobs: Option<Vec<Logprob>>,
    /// One entry a pass of the target after the prefill.
    pub rounds: Vec<RoundCount>,
    /// Token counts.
    pub usage: Usage,
    /// Seconds by stage.
    pub timing_s: Timing,
}

impl ChoiceReport {
    /// The record of a request that failed before it ran.
    #[must_use]
    pub fn refused(id: String, error: String) -> Self {
        Self {
            id,
            choice: 0,
            tokens: Vec::new(),
            text: None,
            finish_reason: FinishReason::Error,
            error: Some(error),
            seed: None,
            logprobs: None,
            rounds: Vec::new(),
            usage: Usage::default(),
            timing_s: Timing::default(),
        }
    }
}

fn finite_or_null<S: Serializer>(x: &f64, to: S) -> Result<S::Ok, S::Error> {
    x.is_finite().then_some(*x).serialize(to)
}

fn pairs<S: Serializer>(top: &[(TokenId, f64)], to: S) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(top.len()))?;
    for (id, x) in top {
        list.serialize_element(&(id, x.is_finite().then_some(*x)))?;
    }
    list.end()
}
