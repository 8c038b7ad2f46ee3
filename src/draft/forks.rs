//! Sequences of a drafter's cache that live for one guess.

use crate::{SeqId, cache::KvCache, error::Result};

/// Copies of sequences, named from the largest id downwards: real ones count up from 0.
#[derive(Debug, Default)]
pub(super) struct Forks(Vec<SeqId>);

impl Forks {
    /// A sequence that begins with all that is committed of `parent`.
    pub(super) fn fork(&mut self, cache: &mut KvCache, parent: SeqId) -> Result<SeqId> {
        let name = SeqId(u64::MAX - self.0.len() as u64);
        cache.fork(parent, name, cache.committed(parent))?;
        self.0.push(name);
        Ok(name)
    }

    /// Gives all of them up.
    pub(super) fn release(&mut self, cache: &mut KvCache) {
        for name in self.0.drain(..) {
            cache.release(name);
        }
    }
}
