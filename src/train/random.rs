//! Random start values and orders, the same on every machine.

use crate::sample::derive_line;

/// Draws, each a function of the seed and its place.
#[derive(Clone, Debug)]
pub(super) struct Random {
    seed: u64,
    at: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, at: 0 }
    }

    /// A number above 0, at most 1.
    fn uniform(&mut self) -> f64 {
        const ALL: f64 = 9_007_199_254_740_992.0;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit the mantissa")]
        let draw = self.draw() as f64;
        (draw + 1.0) / ALL
    }

    /// 53 bits.
    fn draw(&mut self) -> u64 {
        self.at += 1;
        derive_line(self.seed, self.at)
    }

    /// `count` numbers of mean 0 and standard deviation `scale` (Box and Muller 1958).
    pub(super) fn values(&mut self, count: usize, scale: f64) -> Vec<f32> {
        let mut values = Vec::with_capacity(count + 1);
        while values.len() < count {
            let length = scale * (-2.0 * self.uniform().ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
            for value in [length * cos, length * sin] {
                #[expect(clippy::cast_possible_truncation, reason = "start values are f32")]
                values.push(value as f32);
            }
        }
        values.truncate(count);
        values
    }

    /// A permutation of `0..count` (Fisher and Yates).
    pub(super) fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            let draw = self.draw() % (i as u64 + 1);
            all.swap(i, usize::try_from(draw).unwrap_or(0));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_mean_and_spread() {
        let values = Random::new(1).values(20_001, 2.0);
        assert_eq!(values.len(), 20_001);
        let mean = values.iter().sum::<f32>() / 20_001.0;
        let square = values.iter().map(|x| x * x).sum::<f32>() / 20_001.0;
        assert!(
            mean.abs() < 0.06 && (square - 4.0).abs() < 0.15,
            "{mean} {square}"
        );
        let mut all = Random::new(2).shuffled(50);
        assert_ne!(all, (0..50).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<_>>());
    }
}
