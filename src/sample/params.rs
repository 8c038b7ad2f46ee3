//! What a request may ask for, validated once.

use std::{collections::BTreeMap, ops::Deref};

use super::{dry::Dry, semantics::Semantics};
use crate::TokenId;

/// Below this the temperature is 0: the token is the argmax.
const GREEDY_BELOW: f64 = 1e-5;

/// Sampling parameters as a request states them; [`SamplingParams::new`] validates them.
///
/// The default is plain greedy decoding. Ranges are those of [`Semantics::Eyrie`]; see
/// [`Semantics::Host`] for the other's.
#[derive(Clone, Debug, PartialEq)]
pub struct RawParams {
    /// Divides the logits; 0 to 100, below 1e-5 the argmax is taken.
    pub temperature: f64,
    /// Keeps the `k` most probable tokens; 0 is off.
    pub top_k: usize,
    /// Keeps the fewest most probable tokens whose mass reaches `p`; in (0, 1], 1 is off.
    pub top_p: f64,
    /// Drops tokens less probable than `min_p` times the most probable one; in [0, 1), 0 is off.
    pub min_p: f64,
    /// Above 0; 1 is off. Over prompt and output.
    pub repetition_penalty: f64,
    /// -2 to 2, subtracted once from every token of the output.
    pub presence_penalty: f64,
    /// -2 to 2, subtracted from a token once for each time the output has it.
    pub frequency_penalty: f64,
    /// Added to the logit of a token: -100 to 100, or minus infinity, which bans it.
    pub logit_bias: BTreeMap<TokenId, f64>,
    /// Generated tokens before an end token may be chosen.
    pub min_tokens: usize,
    /// The penalty on repeating whole passages; none is off.
    pub dry: Option<Dry>,
    /// What the parameters mean.
    pub semantics: Semantics,
}

impl Default for RawParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            min_tokens: 0,
            dry: None,
            semantics: Semantics::Eyrie,
        }
    }
}

/// Validated parameters: every value finite and in its range (a bias may be minus infinity).
///
/// Reads as the [`RawParams`] it was made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingParams(RawParams);

impl SamplingParams {
    /// Validates `raw`.
    ///
    /// # Errors
    /// [`ParamError`] naming the first parameter that is NaN or out of its range under its
    /// [`Semantics`].
    pub fn new(raw: RawParams) -> Result<Self, ParamError> {
        for (name, value, range) in raw.semantics.ranges(&raw) {
            if !range.holds(value) {
                return Err(ParamError::new(name, value.to_string(), range.to_string()));
            }
        }
        let range = raw.semantics.bias();
        for (id, x) in &raw.logit_bias {
            if *x != f64::NEG_INFINITY && !range.holds(*x) {
                let accepted = format!("the value {range} or be -inf");
                return Err(ParamError::new("logit_bias", format!("{id}={x}"), accepted));
            }
        }
        Ok(Self(raw))
    }

    /// Whether the token is the argmax: temperature 0 or too small to tell from it.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW
    }

    /// The mass that top-p keeps, if it is on.
    pub(super) fn nucleus(&self) -> Option<f64> {
        Some(self.top_p).filter(|p| *p > 0.0 && *p < 1.0)
    }

    /// The fraction that min-p asks for, if it is on.
    pub(super) fn least(&self) -> Option<f64> {
        Some(self.min_p).filter(|p| *p > 0.0 && *p < 1.0)
    }

    /// Whether any of the three filters does something.
    pub(super) fn has_filters(&self) -> bool {
        self.top_k > 0 || self.nucleus().is_some() || self.least().is_some()
    }

    /// The penalty on repeated passages, if it does something.
    pub(super) fn repeats(&self) -> Option<&Dry> {
        self.dry.as_ref().filter(|dry| dry.multiplier != 0.0)
    }

    /// Whether any of the three penalties does something.
    pub(super) fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }
}

impl Deref for SamplingParams {
    type Target = RawParams;

    fn deref(&self) -> &RawParams {
        &self.0
    }
}

/// A sampling parameter that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {value}: {accepted}")]
pub struct ParamError {
    /// The parameter, as a request line spells it.
    pub name: &'static str,
    /// The value given.
    pub value: String,
    /// What would be accepted.
    pub accepted: String,
}

impl ParamError {
    pub(super) fn new(name: &'static str, value: String, accepted: impl Into<String>) -> Self {
        Self {
            name,
            value,
            accepted: accepted.into(),
        }
    }
}
