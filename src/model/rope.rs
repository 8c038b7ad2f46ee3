//! Rotary frequencies of a configuration.

use std::f64::consts::TAU;

use super::config::{RopeConfig, RopeScaling};
use crate::kernels::Rope;

impl RopeConfig {
    /// Radians a position of each pair of a head: `theta^(-2i / head_dim)`, scaled.
    #[must_use]
    pub fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        let frequency = |i: usize| {
            let plain = self.theta.powf(-2.0 * count(i) / count(head_dim));
            #[expect(clippy::cast_possible_truncation, reason = "rounded as trained")]
            let single = self.scaled(i, plain, head_dim) as f32;
            single
        };
        (0..head_dim / 2).map(frequency).collect()
    }

    /// The rotary embedding of heads of `head_dim` values.
    pub(crate) fn rope(&self, head_dim: usize) -> Rope {
        let rope = Rope::new(self.frequencies(head_dim));
        match self.scaling {
            RopeScaling::Yarn { attention, .. } => rope.times(attention),
            _ => rope,
        }
    }

    fn scaled(&self, pair: usize, plain: f64, head_dim: usize) -> f64 {
        match &self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Factors(factors) => plain / f64::from(factors[pair]),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position,
            } => {
                let turns = count(*original_max_position) * plain / TAU;
                let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                plain * (keep + (1.0 - keep) / factor)
            }
            RopeScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position,
                ..
            } => {
                // The pair that turns so often over the original context.
                let pair_of = |turns: &f64| {
                    let length = count(*original_max_position) / (turns * TAU);
                    count(head_dim) * length.ln() / (2.0 * self.theta.ln())
                };
                let first = pair_of(beta_fast).floor().max(0.0);
                let last = pair_of(beta_slow).ceil().min(count(head_dim - 1));
                let last = if first == last { first + 0.001 } else { last };
                let divide = ((count(pair) - first) / (last - first)).clamp(0.0, 1.0);
                plain * (1.0 - divide) + plain / factor * divide
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "widths and contexts are below 2^52"
)]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(scaling: RopeScaling) -> Vec<f32> {
        let theta = 500_000.0;
        RopeConfig { theta, scaling }.frequencies(128)
    }

    #[test]
    fn llama3_stretches_long_wavelengths_only() {
        let plain = frequencies(RopeScaling::None);
        let scaled = frequencies(RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192,
        });
        let ratio = |i: usize| plain[i] / scaled[i];
        // Wavelengths: pair 28 has 1,960 tokens, pair 29 2,406, pair 35 8,219, pair 34 6,696.
        assert_eq!((ratio(0), ratio(28)), (1.0, 1.0));
        assert!(ratio(29) > 1.1 && ratio(34) < 7.0 && ratio(29) < ratio(34));
        assert_eq!((ratio(35), ratio(63)), (8.0, 8.0));
    }

    #[test]
    fn linear_stretches_every_wavelength() {
        let plain = frequencies(RopeScaling::None);
        let scaled = frequencies(RopeScaling::Linear { factor: 4.0 });
        assert!(plain.iter().zip(scaled).all(|(p, s)| *p == 4.0 * s));
    }

    #[test]
    fn factors_divide_each_pair() {
        let plain = frequencies(RopeScaling::None);
        let scaled = frequencies(RopeScaling::Factors(vec![4.0; 64]));
        assert!(plain.iter().zip(scaled).all(|(p, s)| *p == 4.0 * s));
        let exact = 500_000f64.powf(-3.0 / 64.0);
        assert!((f64::from(plain[3]) - exact).abs() < 1e-7);
    }
}
