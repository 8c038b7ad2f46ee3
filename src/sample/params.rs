//! What a request may ask for, validated once.

use std::{collections::BTreeMap, ops::Deref};

use crate::TokenId;

/// Below this the temperature is 0: the token is the argmax.
const GREEDY_BELOW: f64 = 1e-5;

/// Sampling parameters as a request states them; [`SamplingParams::new`] validates them.
///
/// The default is plain greedy decoding.
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
    /// [`ParamError`] naming the first parameter out of range, NaN or infinite.
    pub fn new(raw: RawParams) -> Result<Self, ParamError> {
        let check = |name, value: f64, fits: bool, accepted| {
            if fits {
                return Ok(());
            }
            Err(ParamError::new(name, value.to_string(), accepted))
        };
        // A comparison with NaN is false, so NaN never fits.
        let t = raw.temperature;
        check(
            "temperature",
            t,
            (0.0..=100.0).contains(&t),
            "must lie in 0..=100",
        )?;
        let p = raw.top_p;
        check(
            "top_p",
            p,
            p > 0.0 && p <= 1.0,
            "must be above 0 and at most 1",
        )?;
        let p = raw.min_p;
        check(
            "min_p",
            p,
            (0.0..1.0).contains(&p),
            "must be at least 0 and below 1",
        )?;
        let r = raw.repetition_penalty;
        check(
            "repetition_penalty",
            r,
            r > 0.0 && r.is_finite(),
            "must be a finite number above 0",
        )?;
        for (name, x) in [
            ("presence_penalty", raw.presence_penalty),
            ("frequency_penalty", raw.frequency_penalty),
        ] {
            check(name, x, (-2.0..=2.0).contains(&x), "must lie in -2..=2")?;
        }
        for (id, x) in &raw.logit_bias {
            if !((-100.0..=100.0).contains(x) || *x == f64::NEG_INFINITY) {
                return Err(ParamError::new(
                    "logit_bias",
                    format!("{id}={x}"),
                    "the value must lie in -100..=100 or be -inf",
                ));
            }
        }
        Ok(Self(raw))
    }

    /// Whether the token is the argmax: temperature 0 or too small to tell from it.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW
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
