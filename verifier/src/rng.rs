//! The judge's own generator: SplitMix64 (Steele, Lea and Flood 2014), so that it shares none with an engine.

/// A stream of pseudorandom numbers, the same for the same seed.
///
/// ```
/// use eyrie_verifier::rng::Rng;
///
/// assert_eq!(Rng::new(0).bits(), 0xe220_a839_7b1d_cdaf);
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator at the beginning of the seed's stream.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number strictly between 0 and 1: the middle of one of 2^52 equal intervals.
    #[expect(clippy::cast_precision_loss, reason = "52 bits are exact in f64")]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / 4_503_599_627_370_496.0
    }

    /// An index below `n`, which must be positive; the bias is below n / 2^64.
    #[expect(clippy::cast_possible_truncation, reason = "below n, a usize")]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// An index into weights of which `cumulative` holds the running sums.
    pub fn pick(&mut self, cumulative: &[f64]) -> usize {
        let top = cumulative.last().copied().unwrap_or(0.0);
        let u = self.unit() * top;
        cumulative
            .partition_point(|&edge| edge <= u)
            .min(cumulative.len().saturating_sub(1))
    }
}
