//! A grammar as a processor of scores.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use eyrie::{
    TokenId,
    sample::{Fault, History, Processor},
};
use llguidance::{Matcher, toktrie::SimpleVob};

use crate::custom::guarded;

/// What its errors begin with.
pub(crate) const NAME: &str = "grammar";

/// Masks what the grammar does not allow after the output and the drafts before a row.
///
/// The matcher moves: to the row that is asked for, back over what the next row does not share with
/// it. What it says depends on the row's history alone.
pub(crate) struct Grammar {
    at: Mutex<Position>,
    /// Where it begins. A matcher that has failed stays so, and a draft may have led it there: the next
    /// row begins again.
    begin: Matcher,
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
                matcher: matcher.deep_clone(),
                fed: Vec::new(),
            }),
            begin: matcher,
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
    /// Moves behind `tokens` and gives what may follow; none if the grammar does not allow them, or has
    /// ended. The first `said` of them are output, which its masks allowed.
    fn after(&mut self, tokens: &[TokenId], said: usize) -> anyhow::Result<Option<SimpleVob>> {
        let same = self
            .fed
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count();
        self.matcher.rollback(self.fed.len() - same)?;
        self.fed.truncate(same);
        for &token in &tokens[same..] {
            if self.has_ended()? {
                return Ok(None);
            }
            if self.matcher.try_consume_tokens(&[token])? == 0 {
                anyhow::ensure!(
                    self.fed.len() >= said,
                    "token {token} was allowed and is not"
                );
                return Ok(None);
            }
            self.fed.push(token);
        }
        if self.has_ended()? {
            return Ok(None);
        }
        let mask = self.matcher.compute_mask()?;
        if self.has_ended()? {
            return Ok(None);
        }
        // Forced bytes that no token has are spelt with the unknown token.
        if let (1, Some(forced)) = (mask.num_set(), mask.first_bit_set()) {
            let forced = TokenId::try_from(forced)?;
            let eos = self.matcher.tok_env()?.tok_trie().eos_token();
            anyhow::ensure!(
                forced == eos || self.matcher.validate_tokens(&[forced])? == 1,
                "no token has the bytes that follow"
            );
        }
        Ok(Some(mask))
    }

    /// True at the end of what the grammar describes; an error if it stopped for another reason.
    fn has_ended(&self) -> anyhow::Result<bool> {
        let reason = self.matcher.stop_reason();
        anyhow::ensure!(
            reason.is_ok(),
            self.matcher
                .get_error()
                .unwrap_or_else(|| reason.to_string())
        );
        Ok(self.matcher.is_stopped())
    }
}

impl Processor for Grammar {
    fn process(&self, scores: &mut [f64], history: &History<'_>) -> Result<(), Fault> {
        guarded(NAME, || self.mask(scores, history))
    }
}

impl Grammar {
    fn mask(&self, scores: &mut [f64], history: &History<'_>) -> anyhow::Result<()> {
        let path = [history.output(), history.path].concat();
        let spoken = path.iter().position(|token| self.ends.contains(token));
        let mut at = self.lock();
        let before = &path[..spoken.unwrap_or(path.len())];
        let after = at.after(before, history.output().len());
        let mask = match after {
            Ok(mask) => mask.filter(|_| spoken.is_none()),
            Err(error) => {
                let text = error.to_string();
                let reason = text.lines().find(|line| !line.trim().is_empty());
                let reason = reason.unwrap_or("no token fits").to_owned();
                at.matcher = self.begin.deep_clone();
                at.fed.clear();
                anyhow::bail!("the grammar cannot go on: {reason}");
            }
        };
        // Behind an end, or what the grammar forbids, only an end can follow.
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
