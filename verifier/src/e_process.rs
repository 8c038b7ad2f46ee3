//! A test that may be looked at after every sample: an e-process against a known law.
//!
//! Bet on the next sample with the frequencies seen so far, drawn towards the law `p` by a weight of
//! `k` samples: the predictive probability of cell x after n samples, `(c_x + k p_x) / (n + k)`, over
//! `p_x`. The product of these ratios is the likelihood ratio of a Dirichlet mixture (concentration
//! `k p`) to `p`; under `p` its expectation is 1 at every time, and by Ville's inequality it ever reaches
//! `1 / alpha` with probability at most alpha. So one may stop at any time, and for any reason (Lindon and
//! Malek 2020). The mean over several concentrations is again such a process: small k win against large
//! deviations early, large k against small ones late.

use crate::{chi2::BadInput, number::float, pool::check_law};

/// Concentrations mixed, in equal parts.
pub const CONCENTRATIONS: [f64; 5] = [1e1, 1e2, 1e3, 1e4, 1e5];

/// The evidence against a law so far.
///
/// ```
/// use eyrie_verifier::e_process::EProcess;
///
/// let mut e = EProcess::new(&[0.5, 0.5])?;
/// for _ in 0..100 {
///     e.push(0);
/// }
/// assert!(e.rejects(1e-6));
/// # Ok::<(), eyrie_verifier::chi2::BadInput>(())
/// ```
#[derive(Clone, Debug)]
pub struct EProcess {
    p: Vec<f64>,
    counts: Vec<u64>,
    n: u64,
    /// ln of the product for each concentration.
    ln: [f64; 5],
    peak: f64,
}

impl EProcess {
    /// A process without samples; its evidence is 1.
    ///
    /// # Errors
    /// If `p` is not a law.
    pub fn new(p: &[f64]) -> Result<Self, BadInput> {
        check_law(p)?;
        Ok(Self {
            p: p.to_vec(),
            counts: vec![0; p.len()],
            n: 0,
            ln: [0.0; 5],
            peak: 0.0,
        })
    }

    /// One more sample. A cell outside the law, or of probability 0, is infinite evidence.
    pub fn push(&mut self, cell: usize) {
        match self.p.get(cell) {
            Some(&p) if p > 0.0 => {
                let seen = float(self.counts[cell]) / p;
                let n = float(self.n);
                for (ln, k) in self.ln.iter_mut().zip(CONCENTRATIONS) {
                    *ln += ((seen + k) / (n + k)).ln();
                }
                self.counts[cell] += 1;
            }
            _ => self.ln = [f64::INFINITY; 5],
        }
        self.n += 1;
        self.peak = self.peak.max(self.ln_e());
    }

    /// ln of the evidence now.
    #[must_use]
    pub fn ln_e(&self) -> f64 {
        let top = self.ln.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if top.is_infinite() {
            return top;
        }
        let sum: f64 = self.ln.iter().map(|ln| (ln - top).exp()).sum();
        top + (sum / float(CONCENTRATIONS.len() as u64)).ln()
    }

    /// ln of the largest evidence there ever was, at least 0.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.peak
    }

    /// A p-value valid at any time: one over the largest evidence.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        (-self.peak).exp()
    }

    /// Whether the evidence ever reached `1 / alpha`.
    #[must_use]
    pub fn rejects(&self, alpha: f64) -> bool {
        self.peak >= -alpha.ln()
    }

    /// Samples so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
}
