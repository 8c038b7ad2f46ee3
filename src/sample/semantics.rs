//! What the parameters mean: this crate's reading, and a host's.

use std::fmt;

use super::params::RawParams;

/// Whose meaning the sampling parameters have.
///
/// Bias, masks, temperature, the order of the chain and the ties (the lower id) are the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Semantics {
    /// This crate's, as the [module](super) tells it.
    #[default]
    Eyrie,
    /// That of mistral.rs 0.8.1 (`src/sampler.rs` of mistralrs-core), for requests that come through
    /// it:
    ///
    /// * All three penalties count prompt *and* output, drafts of the path included. A token that
    ///   occurred `c > 0` times loses `c * frequency + presence`, and only then is divided (above 0)
    ///   or multiplied (else) by the repetition penalty.
    /// * Top-p sums the probabilities as they were *before* top-k, not renormalised: after top-k a
    ///   token is kept while the sum of those before it is below `p`.
    /// * Min-p is strict: a token as probable as `min_p` times the first is dropped.
    /// * Nearly everything finite is accepted: a temperature below 1e-5, negative ones too, is the
    ///   argmax, and top-p or min-p outside of (0, 1) is off. Only a repetition penalty has to be
    ///   above 0, because it divides.
    ///
    /// One difference is on purpose: the host skips min-p when top-p is off; here it is honoured.
    Host,
}

impl Semantics {
    /// Every number that has a range, by its name in a request.
    pub(super) fn ranges(self, raw: &RawParams) -> Vec<(&'static str, f64, Range)> {
        let own = |range| match self {
            Self::Eyrie => range,
            Self::Host => Range::Finite,
        };
        let mut all = vec![
            ("temperature", raw.temperature, own(Range::Within(100))),
            ("top_p", raw.top_p, own(Range::Share)),
            ("min_p", raw.min_p, own(Range::Fraction)),
            (
                "repetition_penalty",
                raw.repetition_penalty,
                Range::Positive,
            ),
            (
                "presence_penalty",
                raw.presence_penalty,
                own(Range::Around(2)),
            ),
            (
                "frequency_penalty",
                raw.frequency_penalty,
                own(Range::Around(2)),
            ),
        ];
        if let Some(dry) = &raw.dry {
            all.push(("dry_multiplier", dry.multiplier, Range::Finite));
            all.push(("dry_base", dry.base, Range::Finite));
        }
        all
    }

    /// The range of a bias, beside minus infinity.
    pub(super) fn bias(self) -> Range {
        match self {
            Self::Eyrie => Range::Around(100),
            Self::Host => Range::Finite,
        }
    }
}

/// What a parameter may be. NaN is in none: a comparison with it is false.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    /// Every finite number.
    Finite,
    /// Finite and above 0.
    Positive,
    /// 0 to this.
    Within(i8),
    /// Minus this to this.
    Around(i8),
    /// Above 0, at most 1.
    Share,
    /// At least 0, below 1.
    Fraction,
}

impl Range {
    pub(super) fn holds(self, x: f64) -> bool {
        match self {
            Self::Finite => x.is_finite(),
            Self::Positive => x > 0.0 && x.is_finite(),
            Self::Within(most) => (0.0..=f64::from(most)).contains(&x),
            Self::Around(most) => (-f64::from(most)..=f64::from(most)).contains(&x),
            Self::Share => x > 0.0 && x <= 1.0,
            Self::Fraction => (0.0..1.0).contains(&x),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite => f.write_str("must be a finite number"),
            Self::Positive => f.write_str("must be a finite number above 0"),
            Self::Within(most) => write!(f, "must lie in 0..={most}"),
            Self::Around(most) => write!(f, "must lie in -{most}..={most}"),
            Self::Share => f.write_str("must be above 0 and at most 1"),
            Self::Fraction => f.write_str("must be at least 0 and below 1"),
        }
    }
}
