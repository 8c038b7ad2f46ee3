//! Rotary position embedding, half-split: value `i` pairs with value `i + head_dim / 2`.

use std::f64::consts::TAU;

/// How the frequencies of a rope are scaled.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Llama 3.1: wavelengths beyond the original context are stretched by `factor`.
    Llama3 {
        /// Stretch of long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are stretched in full.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are left alone.
        high_freq_factor: f64,
        /// Context length before the stretch.
        original: f64,
    },
    /// A divisor for each frequency, as stored in `rope_freqs.weight`.
    Factors(Vec<f32>),
}

/// Frequencies of a rope, in radians a position.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: Vec<f32>,
}

impl Rope {
    /// The rope of heads of `head_dim` values (even); frequency `i` is `theta^(-2i / head_dim)`
    /// (Su et al., 2021).
    #[must_use]
    pub fn new(theta: f64, head_dim: usize, scaling: &RopeScaling) -> Self {
        let frequency = |i: usize| {
            #[expect(clippy::cast_precision_loss, reason = "a head is far below 2^52 wide")]
            let exponent = 2.0 * i as f64 / head_dim as f64;
            let plain = theta.powf(-exponent);
            let scaled = match scaling {
                RopeScaling::None => plain,
                RopeScaling::Factors(factors) => plain / factors.get(i).map_or(1.0, |f| (*f).into()),
                RopeScaling::Llama3 {
                    factor,
                    low_freq_factor: low,
                    high_freq_factor: high,
                    original,
                } => {
                    let turns = original * plain / TAU;
                    let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    plain * (keep + (1.0 - keep) / factor)
                }
            };
            #[expect(clippy::cast_possible_truncation, reason = "rounded as trained")]
            let single = scaled as f32;
            single
        };
        Self {
            frequencies: (0..head_dim / 2).map(frequency).collect(),
        }
    }

    /// Values of `cos` then `sin` of one position.
    #[must_use]
    pub fn width(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Writes `cos` and `sin` of `position`, `[2, head_dim / 2]`. The angle is rounded to `f32` as
    /// it was in training.
    pub fn table(&self, position: usize, out: &mut [f32]) {
        let (cos, sin) = out.split_at_mut(self.frequencies.len());
        #[expect(clippy::cast_precision_loss, reason = "rounded as trained")]
        let position = position as f32;
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            let (s, c) = f64::from(position * frequency).sin_cos();
            #[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
            let (s, c) = (s as f32, c as f32);
            (*sin, *cos) = (s, c);
        }
    }

    /// Turns every head of `row` (`[heads, head_dim]`) by the angles of `table`.
    pub fn turn(&self, row: &mut [f32], table: &[f32]) {
        let half = self.frequencies.len();
        let (cos, sin) = table.split_at(half);
        for head in row.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}
