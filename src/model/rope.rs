//! Rotary frequencies of a configuration.

use std::f64::consts::TAU;

use super::config::{RopeConfig, RopeScaling};
use crate::kernels::Rope;

impl RopeConfig {
    /// The rotary embedding of heads of this width.
    #[must_use]
    pub fn rotary(&self, head_dim: usize) -> Rope {
        let rope = Rope::new(self.frequencies(head_dim));
        match &self.scaling {
            RopeScaling::Yarn {
                attention_factor, ..
            } => {
                #[expect(clippy::cast_possible_truncation, reason = "rounded as trained")]
                let factor = *attention_factor as f32;
                rope.scaled(factor)
            }
            _ => rope,
        }
    }

    /// Radians a position of each pair of a head: `theta^(-2i / head_dim)`, scaled.
    #[must_use]
    pub fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        let frequency = |i: usize| {
            #[expect(clippy::cast_precision_loss, reason = "a head is far below 2^52 wide")]
            let plain = self.theta.powf(-2.0 * i as f64 / head_dim as f64);
            #[expect(clippy::cast_possible_truncation, reason = "rounded as trained")]
            let single = self.scaled(i, head_dim, plain) as f32;
            single
        };
        (0..head_dim / 2).map(frequency).collect()
    }

    fn scaled(&self, pair: usize, head_dim: usize, plain: f64) -> f64 {
        match &self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain / factor,
            RopeScaling::Factors(factors) => plain / f64::from(factors[pair]),
            RopeScaling::Yarn {
                factor,
                original_max_position,
                beta_fast,
                beta_slow,
                truncate,
                ..
            } => {
                #[expect(clippy::cast_precision_loss, reason = "a context and a width")]
                let (context, width) = (*original_max_position as f64, head_dim as f64);
                // The pair that turns so often in the old context.
                let pair_of =
                    |turns: &f64| width * (context / (turns * TAU)).ln() / (2.0 * self.theta.ln());
                let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(width - 1.0));
                if high <= low {
                    high = low + 0.001;
                }
                #[expect(clippy::cast_precision_loss, reason = "an index of a pair")]
                let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                plain * (ramp / factor + (1.0 - ramp))
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position,
            } => {
                #[expect(clippy::cast_precision_loss, reason = "a context is below 2^52")]
                let turns = *original_max_position as f64 * plain / TAU;
                let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                plain * (keep + (1.0 - keep) / factor)
            }
        }
    }
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
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let config = RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::Yarn {
                factor: 4.0,
                original_max_position: 2048,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: 0.1 * 4f64.ln() + 1.0,
                truncate: true,
            },
        };
        let plain = RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        };
        let (plain, scaled) = (plain.frequencies(64), config.frequencies(64));
        // 32 turns in 2048 positions: pair 8.07; one turn: pair 20.1.
        assert!(plain[..9] == scaled[..9] && plain[9] > scaled[9]);
        assert!(plain[20] < 4.0 * scaled[20]);
        assert!(
            plain[21..]
                .iter()
                .zip(&scaled[21..])
                .all(|(p, s)| *p == 4.0 * s)
        );
        let mut table = [0.0; 64];
        config.rotary(64).table(0, &mut table);
        assert!((table[0] - 1.138_629_4).abs() < 1e-6 && table[32] == 0.0);
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
