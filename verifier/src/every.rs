//! Every branch of a procedure that asks random questions.
//!
//! Run a procedure once for every way its questions can be answered, weigh each run by the
//! probability of its answers, and the weighted outcomes are the procedure's exact output law: no
//! sampling, no noise, no alpha. The procedure is the production code; only whoever answers its
//! questions is replaced.
//!
//! ```
//! use std::collections::BTreeMap;
//! use eyrie_verifier::every::every;
//!
//! // Toss a coin; after heads, throw a three-sided die.
//! let mut law = BTreeMap::new();
//! let branches = every(|walk| match walk.pick(&[0.5, 0.5]) {
//!     0 => 1 + walk.pick(&[1.0, 1.0, 2.0]),
//!     _ => 0,
//! }, |outcome, p| *law.entry(outcome).or_insert(0.0) += p);
//! assert_eq!(branches, 4);
//! assert_eq!(law, BTreeMap::from([(0, 0.5), (1, 0.125), (2, 0.125), (3, 0.25)]));
//! ```

/// Answers the questions of one run, and knows which run is next.
///
/// Invariant between questions: `trail[..asked]` are the answers given in this run, and the rest of
/// the trail, while replaying, are those still to be given again.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    trail: Vec<Fork>,
    asked: usize,
}

/// One question, its possible answers, and the one being explored.
#[derive(Clone, Debug)]
struct Fork {
    weights: Vec<f64>,
    answer: usize,
}

impl Fork {
    /// The first answer from `from` on that has positive weight.
    fn possible(weights: &[f64], from: usize) -> Option<usize> {
        (from..weights.len()).find(|&i| weights[i] > 0.0)
    }
}

impl Walk {
    /// A walk at its first run.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An answer to a question with these weights. Answers of weight 0 are never given.
    ///
    /// # Panics
    /// If a weight is negative or not finite, or none is positive; or if the procedure asks
    /// something else than it asked in an earlier run with the same answers, that is, depends on
    /// something that the walk does not control.
    pub fn pick(&mut self, weights: &[f64]) -> usize {
        assert!(
            weights.iter().all(|w| w.is_finite() && *w >= 0.0),
            "weights {weights:?}"
        );
        if self.asked == self.trail.len() {
            let answer = Fork::possible(weights, 0).expect("no answer has positive weight");
            self.trail.push(Fork {
                weights: weights.to_vec(),
                answer,
            });
        }
        let fork = &self.trail[self.asked];
        assert!(
            fork.weights == weights,
            "question {}: asked with {weights:?}, in an earlier run with {:?}",
            self.asked,
            fork.weights
        );
        self.asked += 1;
        fork.answer
    }

    /// True with probability `p`, clamped to 0..=1: both answers are explored only strictly between.
    pub fn accept(&mut self, p: f64) -> bool {
        let p = p.clamp(0.0, 1.0);
        self.pick(&[1.0 - p, p]) == 1
    }

    /// The probability of the answers given so far in this run.
    #[must_use]
    pub fn weight(&self) -> f64 {
        let share = |f: &Fork| f.weights[f.answer] / f.weights.iter().sum::<f64>();
        self.trail[..self.asked].iter().map(share).product()
    }

    /// Goes to the next run, depth first; false if every branch was explored.
    #[expect(
        clippy::should_implement_trait,
        reason = "the procedure runs between two calls"
    )]
    pub fn next(&mut self) -> bool {
        self.trail.truncate(self.asked);
        self.asked = 0;
        while let Some(mut fork) = self.trail.pop() {
            if let Some(answer) = Fork::possible(&fork.weights, fork.answer + 1) {
                fork.answer = answer;
                self.trail.push(fork);
                return true;
            }
        }
        false
    }
}

/// Runs `procedure` once a branch and hands each outcome with its probability to `outcome`; the
/// number of branches. The probabilities sum to 1 up to rounding.
///
/// # Panics
/// As [`Walk::pick`]. Does not return if the procedure has infinitely many branches.
pub fn every<T>(
    mut procedure: impl FnMut(&mut Walk) -> T,
    mut outcome: impl FnMut(T, f64),
) -> usize {
    let mut walk = Walk::new();
    let mut branches = 0;
    loop {
        let result = procedure(&mut walk);
        outcome(result, walk.weight());
        branches += 1;
        if !walk.next() {
            return branches;
        }
    }
}
