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
    /// YaRN (Peng et al. 2023, arXiv 2309.00071): frequencies of pairs that turn less than `beta_slow` times over the
    /// original context divided by `factor`, those that turn more than `beta_fast` times kept, a
    /// ramp over the pairs between; queries and keys lengthened.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Turns above which a frequency is kept.
        beta_fast: f64,
        /// Turns below which a frequency is divided.
        beta_slow: f64,
        /// Context before the change.
        original_max_position: usize,
        /// Factor of cosines and sines.
        attention: f64,
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
                all_positive(&positive)?;
                if low_freq_factor >= high_freq_factor {
                    return Err(Problem::Contradiction {
                        one: format!("low_freq_factor is {low_freq_factor}"),
                        other: format!("high_freq_factor is {high_freq_factor}"),
                        accepted: "a low factor below the high one".to_owned(),
                    });
                }
                at_least_1(*original_max_position)
            }
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position,
                attention,
            } => {
                all_positive(&[
                    ("factor", *factor),
                    ("beta_fast", *beta_fast),
                    ("beta_slow", *beta_slow),
                    ("attention_factor", *attention),
                ])?;
                if beta_slow >= beta_fast {
                    return Err(Problem::Contradiction {
                        one: format!("beta_slow is {beta_slow}"),
                        other: format!("beta_fast is {beta_fast}"),
                        accepted: "fewer turns for the slow pairs than for the fast".to_owned(),
                    });
                }
                if self.theta <= 1.0 {
                    let accepted = "a number above 1 (with yarn)";
                    return Err(Problem::key(theta, self.theta, accepted));
                }
                at_least_1(*original_max_position)
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

fn all_positive(numbers: &[(&str, f64)]) -> Result<(), Problem> {
    let bad = numbers.iter().find(|(_, x)| !(x.is_finite() && *x > 0.0));
    match bad {
        None => Ok(()),
        Some((key, value)) => Err(Problem::key(*key, value, "a finite number above 0")),
    }
}

fn at_least_1(original_max_position: usize) -> Result<(), Problem> {
    match original_max_position {
        0 => {
            let key = "original_max_position_embeddings";
            Err(Problem::key(key, 0, "at least 1"))
        }
        _ => Ok(()),
    }
}
