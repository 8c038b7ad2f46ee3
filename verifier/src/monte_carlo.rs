//! P-values by simulation for the cells that are too light for the law of chi-square.
//!
//! The pooled tests cannot see a deviation that moves probability between two cells of one pool. This
//! test sees nothing else: given how many samples fell inside the pools at all, their places are draws
//! of the law restricted to those cells (for two samples: their labels are a random permutation), so
//! the statistic is compared with that of simulated places (labels). The p-value is valid without any approximation,
//! for cells however light.
//!
//! Simulation stops early once `enough` simulated statistics are at least as large as the one seen
//! (Besag and Clifford 1991): p is then `enough / draws`, otherwise `(exceeding + 1) / (most + 1)`.
//! Both are valid p-values. The least that can be reported is the [`Simulated::resolution`]: a test whose
//! resolution is not below alpha cannot reject.

use crate::{
    chi2::BadInput,
    number::float,
    pool::{self, Cell},
    rng::Rng,
};

/// How much to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The most draws, at least 1.
    pub most: u64,
    /// Stop after that many statistics as large as the one seen, at least 1.
    pub enough: u64,
    /// Seed of the simulation.
    pub seed: u64,
}

/// The outcome of a simulated test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// Pearson's statistic over the cells inside the pools.
    pub statistic: f64,
    /// Cells inside the pools.
    pub cells: usize,
    /// Probability of a statistic at least as large if the laws are equal.
    pub p_value: f64,
    /// Draws that were made.
    pub draws: u64,
    /// The least p-value that the effort could have given: `1 / (most + 1)`.
    pub resolution: f64,
}

/// Tests the cells inside pools against the law. `None` if no cells are pooled.
///
/// ```
/// use eyrie_verifier::monte_carlo::{Effort, goodness_of_fit};
///
/// // Ten cells with an expectation of 2 each: all in the first is not chance.
/// let effort = Effort { most: 100_000, enough: 50, seed: 1 };
/// let mut counts = [0; 10];
/// counts[0] = 20;
/// let seen = goodness_of_fit(&counts, &[0.1; 10], effort)?.expect("light cells");
/// assert_eq!((seen.draws, seen.p_value), (100_000, seen.resolution));
/// # Ok::<(), eyrie_verifier::chi2::BadInput>(())
/// ```
///
/// # Errors
/// As [`crate::chi2::goodness_of_fit`].
pub fn goodness_of_fit(
    counts: &[u64],
    p: &[f64],
    effort: Effort,
) -> Result<Option<Simulated>, BadInput> {
    let inside = pool::of_law(counts, p, pool::ENOUGH)?.inside;
    if inside.len() < 2 {
        return Ok(None);
    }
    let weight: f64 = inside.iter().map(|c| c.weight).sum();
    let samples: f64 = inside.iter().map(|c| c.seen[0]).sum();
    let mut sum = 0.0;
    let cumulative: Vec<f64> = inside
        .iter()
        .map(|c| {
            sum += c.weight;
            sum
        })
        .collect();
    // sum (c - e)^2 / e = sum c^2 / e - k, which needs the cells that have counts only.
    let share: Vec<f64> = inside
        .iter()
        .map(|c| weight / (c.weight * samples.max(1.0)))
        .collect();
    let seen: f64 = inside
        .iter()
        .zip(&share)
        .map(|(c, s)| c.seen[0].powi(2) * s)
        .sum();
    let mut drawn = vec![0.0; inside.len()];
    let mut places = Vec::new();
    let statistic = |rng: &mut Rng| {
        for place in places.drain(..) {
            let _: usize = place;
            drawn[place] = 0.0;
        }
        let (mut squares, mut left) = (0.0, samples);
        while left > 0.0 {
            let place = rng.pick(&cumulative);
            places.push(place);
            // (c + 1)^2 - c^2
            squares += (2.0 * drawn[place] + 1.0) * share[place];
            drawn[place] += 1.0;
            left -= 1.0;
        }
        squares
    };
    let outcome = simulate(seen, effort, statistic);
    Ok(Some(Simulated {
        statistic: seen - samples,
        cells: inside.len(),
        ..outcome
    }))
}

/// Tests whether two samples have one law on the cells inside pools. `None` if no cells are pooled.
///
/// # Errors
/// As [`crate::chi2::two_sample`].
pub fn two_sample(a: &[u64], b: &[u64], effort: Effort) -> Result<Option<Simulated>, BadInput> {
    let pools = pool::of_two(a, b, pool::ENOUGH)?;
    let inside = pools.inside;
    if inside.len() < 2 {
        return Ok(None);
    }
    let both = |c: &Cell| c.seen[0] + c.seen[1];
    let mut labels = Vec::new();
    let mut chosen = 0;
    for (i, cell) in inside.iter().enumerate() {
        let mut left = both(cell);
        while left > 0.0 {
            labels.push(i);
            left -= 1.0;
        }
        let mut left = cell.seen[0];
        while left > 0.0 {
            chosen += 1;
            left -= 1.0;
        }
    }
    // Given the sums of rows and columns, Pearson's statistic is a growing function of sum a^2 / (a + b).
    let seen: f64 = inside.iter().map(|c| c.seen[0].powi(2) / both(c)).sum();
    let mut drawn = vec![0.0; inside.len()];
    let statistic = |rng: &mut Rng| {
        drawn.fill(0.0);
        let mut squares = 0.0;
        for i in 0..chosen {
            let j = i + rng.below(labels.len() - i);
            labels.swap(i, j);
            let place = labels[i];
            squares += (2.0 * drawn[place] + 1.0) / both(&inside[place]);
            drawn[place] += 1.0;
        }
        squares
    };
    let outcome = simulate(seen, effort, statistic);
    let ([a, b], all) = (
        inside
            .iter()
            .fold([0.0, 0.0], |s, c| [s[0] + c.seen[0], s[1] + c.seen[1]]),
        inside.iter().map(both).sum::<f64>(),
    );
    let pearson = |c: &Cell| {
        let one = |seen: f64, n: f64| {
            let expected = both(c) * n / all;
            if expected > 0.0 {
                (seen - expected).powi(2) / expected
            } else {
                0.0
            }
        };
        one(c.seen[0], a) + one(c.seen[1], b)
    };
    Ok(Some(Simulated {
        statistic: inside.iter().map(pearson).sum(),
        cells: inside.len(),
        ..outcome
    }))
}

fn simulate(seen: f64, effort: Effort, mut statistic: impl FnMut(&mut Rng) -> f64) -> Simulated {
    let mut rng = Rng::new(effort.seed);
    // What is equal up to rounding is at least as large.
    let seen = seen * (1.0 - 1e-9);
    let (most, enough) = (effort.most.max(1), effort.enough.max(1));
    let (mut draws, mut exceeding) = (0, 0);
    while draws < most && exceeding < enough {
        draws += 1;
        exceeding += u64::from(statistic(&mut rng) >= seen);
    }
    let resolution = 1.0 / (float(most) + 1.0);
    let p_value = if exceeding == enough {
        float(enough) / float(draws)
    } else {
        (float(exceeding) + 1.0) * resolution
    };
    Simulated {
        statistic: seen,
        cells: 0,
        p_value,
        draws,
        resolution,
    }
}
