//! Rotary position embedding.

use crate::model::load::Problem;

/// The rotary embedding of a network; pairs are (i, i + head_dim / 2).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies: pair i turns by theta^(-2i / head_dim) a position.
    pub theta: f64,
    /// How the frequencies are changed for long contexts.
    pub scaling: RopeScaling,
}

/// A change of the rotary frequencies.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    None,
    /// Every frequency divided by the same factor, which is positions divided by it.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Wavelengths above `original_max_position / low_freq_factor` are low frequencies.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_position / high_freq_factor` are high frequencies.
        high_freq_factor: f64,
        /// Context before the change.
        original_max_position: usize,
    },
    /// YaRN (Peng et al. 2023): pairs that turn more than `beta_fast` times in the old context keep
    /// their frequency, those below `beta_slow` times have it divided, a ramp over pairs between;
    /// and what is turned is multiplied by `attention_factor`.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Context before the change.
        original_max_position: usize,
        /// Turns from which a frequency is high.
        beta_fast: f64,
        /// Turns up to which it is low.
        beta_slow: f64,
        /// Factor of queries and keys.
        attention_factor: f64,
        /// Whether the ramp begins and ends at whole pairs.
        truncate: bool,
    },
    /// Divisor of each pair's frequency (GGUF's `rope_freqs.weight`), `[head_dim / 2]`.
    Factors(Vec<f32>),
}

impl RopeScaling {
    /// Its name, as `rope_type` spells it; `factors` for a tensor of divisors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "default",
            Self::Linear { .. } => "linear",
            Self::Llama3 { .. } => "llama3",
            Self::Yarn { .. } => "yarn",
            Self::Factors(_) => "factors",
        }
    }
}

impl RopeConfig {
    pub(crate) fn check(&self, theta: &str, head_dim: usize) -> Result<(), Problem> {
        if !(self.theta.is_finite() && self.theta >= 1.0) {
            return Err(Problem::key(
                theta,
                self.theta,
                "a finite number of at least 1",
            ));
        }
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => {
                if factor.is_finite() && *factor > 0.0 {
                    return Ok(());
                }
                Err(Problem::key("factor", factor, "a finite number above 0"))
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position,
            } => {
                let positive = [
                    ("factor", *factor),
                    ("low_freq_factor", *low_freq_factor),
                    ("high_freq_factor", *high_freq_factor),
                ];
                for (key, value) in positive {
                    if !(value.is_finite() && value > 0.0) {
                        return Err(Problem::key(key, value, "a finite number above 0"));
                    }
                }
                if low_freq_factor >= high_freq_factor {
                    return Err(Problem::contradiction(
                        format!("low_freq_factor is {low_freq_factor}"),
                        format!("high_freq_factor is {high_freq_factor}"),
                        "a low factor below the high one",
                    ));
                }
                if *original_max_position == 0 {
                    let key = "original_max_position_embeddings";
                    return Err(Problem::key(key, 0, "at least 1"));
                }
                Ok(())
            }
            RopeScaling::Yarn {
                factor,
                original_max_position,
                beta_fast,
                beta_slow,
                attention_factor,
                ..
            } => {
                let positive = [
                    ("factor", *factor),
                    ("beta_fast", *beta_fast),
                    ("beta_slow", *beta_slow),
                    ("attention_factor", *attention_factor),
                ];
                for (key, value) in positive {
                    if !(value.is_finite() && value > 0.0 && value < 1e6) {
                        return Err(Problem::key(key, value, "a number above 0, below 1e6"));
                    }
                }
                if *original_max_position == 0 {
                    let key = "original_max_position_embeddings";
                    return Err(Problem::key(key, 0, "at least 1"));
                }
                if self.theta <= 1.0 {
                    return Err(Problem::key(
                        theta,
                        self.theta,
                        "a number above 1, for yarn",
                    ));
                }
                Ok(())
            }
            RopeScaling::Factors(factors) => {
                const TENSOR: &str = "rope_freqs.weight";
                if factors.len() != head_dim / 2 {
                    return Err(Problem::Shape {
                        tensor: TENSOR.to_owned(),
                        found: vec![factors.len()],
                        expected: vec![head_dim / 2],
                        why: "[head_dim / 2]",
                    });
                }
                let bad = |f: &&f32| !(f.is_finite() && **f > 0.0);
                match factors.iter().enumerate().find(|(_, f)| bad(f)) {
                    None => Ok(()),
                    Some((at, value)) => Err(Problem::Value {
                        tensor: TENSOR.to_owned(),
                        value: *value,
                        at,
                        accepted: "finite numbers above 0",
                    }),
                }
            }
        }
    }
}
