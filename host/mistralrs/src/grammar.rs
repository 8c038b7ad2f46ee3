//! A grammar as a processor of scores.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use eyrie::{
    TokenId,
    sample::{Fault, History, Processor},
};
use llguidance::Matcher;

use crate::custom::guarded;

/// Masks what the grammar does not allow after the output and the drafts before a row.
///
/// The matcher moves: to the row that is asked for, back over what the next row does not share with
/// it. What it says depends on the row's history alone.
pub(crate) struct Grammar {
    at: Mutex<Position>,
    /// Tokens that end a choice.
    ends: Vec<TokenId>,
}

struct Position {
    matcher: Matcher,
    fed: Vec<TokenId>,
}

impl Grammar {
    /// The grammar of a matcher that has been fed nothing.
    pub(crate) fn new(matcher: Matcher, ends: &[TokenId]) -> Self {
        Self {
            at: Mutex::new(Position {
                matcher,
                fed: Vec::new(),
            }),
            ends: ends.to_vec(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Position> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fed = &self.lock().fed;
        f.debug_struct("Grammar")
            .field("fed", fed)
            .finish_non_exhaustive()
    }
}

impl Position {
    /// Moves behind `tokens`; false if the grammar does not allow them.
    fn reach(&mut self, tokens: &[TokenId]) -> anyhow::Result<bool> {
        let same = self
            .fed
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count();
        self.matcher.rollback(self.fed.len() - same)?;
        self.fed.truncate(same);
        for &token in &tokens[same..] {
            if self.matcher.is_stopped() || self.matcher.try_consume_tokens(&[token])? == 0 {
                return Ok(false);
            }
            self.fed.push(token);
        }
        Ok(true)
    }
}

impl Processor for Grammar {
    fn process(&self, scores: &mut [f64], history: &History<'_>) -> Result<(), Fault> {
        guarded("grammar", || self.mask(scores, history))
    }
}

impl Grammar {
    fn mask(&self, scores: &mut [f64], history: &History<'_>) -> anyhow::Result<()> {
        let path = [history.output(), history.path].concat();
        let spoken = path.iter().position(|token| self.ends.contains(token));
        let mut at = self.lock();
        let there = at.reach(&path[..spoken.unwrap_or(path.len())])?;
        let allowed = there && spoken.is_none() && !at.matcher.is_stopped();
        // Behind an end, or what the grammar forbids, only an end can follow.
        let mask = allowed.then(|| at.matcher.compute_mask()).transpose()?;
        let eos = at.matcher.tok_env()?.tok_trie().eos_token();
        let may_end = mask.as_ref().is_none_or(|mask| mask.is_allowed(eos));
        for (id, score) in (0..).zip(scores) {
            let ends = may_end && self.ends.contains(&id);
            // The trie's own end is another token where it knows none of the model's.
            let follows = id != eos && mask.as_ref().is_some_and(|mask| mask.is_allowed(id));
            if !ends && !follows {
                *score = f64::NEG_INFINITY;
            }
        }
        Ok(())
    }
}
