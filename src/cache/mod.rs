//! Keys and values of the tokens a model has been fed, with transactions.
//!
//! The cache is a pool of *slots*, one token each, shared by all sequences. A sequence is a list of
//! slots in logical order: the slot of position 0, of position 1, and so on. Three things follow.
//!
//! * Keeping the scattered rows of an accepted tree path moves no data: the survivors' slots join
//!   the list, the others return to the pool.
//! * Sequences that share a prefix share its slots, counted by reference. A shared slot is never
//!   written: new rows always get fresh slots.
//! * Whatever slots a sequence happens to own, attention reads them in logical order, so the bits
//!   of a result cannot depend on them.
//!
//! Rows enter only through a [`Txn`]. They are invisible until [`Txn::commit`] names the survivors,
//! and dropping the transaction returns the rest, so an error between the two (`?` included) leaves
//! every sequence as it was.
//!
//! ```
//! use eyrie::{SeqId, cache::{KvCache, Txn}};
//!
//! let (layers, width, slots) = (1, 2, 8);
//! let mut cache = KvCache::new(layers, width, slots);
//! let seq = SeqId(7);
//! let mut txn = Txn::begin(&mut cache, &[(seq, 3)]).expect("8 slots are free");
//! txn.commit(seq, &[0, 2])?; // an anchor and the second of two siblings
//! drop(txn);
//! assert_eq!((cache.committed(seq), cache.free()), (2, 6));
//! # Ok::<(), eyrie::Error>(())
//! ```

mod slots;
mod store;
mod txn;

#[cfg(test)]
mod tests;

pub use store::Places;
pub use txn::Txn;

use candle_core::Device;

use crate::{SeqId, error::Result};
use slots::Slots;
use store::Store;

/// The cache of one model: slot lists by sequence, and per layer the keys and values of all slots,
/// in host memory or on a device.
///
/// Invariant: a slot is free, or owned by at least one sequence or by the one open transaction.
#[derive(Debug)]
pub struct KvCache {
    slots: Slots,
    store: Store,
    width: usize,
}

impl KvCache {
    /// A cache of `slots` tokens for a model of `layers` layers whose keys, and values, are `width`
    /// floats a token. Memory is touched only as slots are used, lowest first.
    ///
    /// # Panics
    /// If there are 2^32 slots or more, or their floats cannot be counted or allocated.
    #[must_use]
    pub fn new(layers: usize, width: usize, slots: usize) -> Self {
        Self {
            slots: Slots::new(slots),
            store: Store::host(layers, width, slots),
            width,
        }
    }

    /// A cache of `slots` tokens on `device`, for a model of `layers` layers with `kv_heads` key
    /// heads of `head_dim` floats. Only keys and values lie there; who owns which slot is known on
    /// the host. Each layer is allocated when it is first written.
    ///
    /// # Panics
    /// If there are 2^32 slots or more.
    #[must_use]
    pub fn on_device(
        layers: usize,
        (kv_heads, head_dim): (usize, usize),
        slots: usize,
        device: Device,
    ) -> Self {
        Self {
            slots: Slots::new(slots),
            store: Store::device(layers, (kv_heads, slots, head_dim), device),
            width: kv_heads * head_dim,
        }
    }

    /// Number of tokens of `seq` that are in the cache; 0 for an unknown sequence.
    #[must_use]
    pub fn committed(&self, seq: SeqId) -> usize {
        self.slots.of(seq).len()
    }

    /// Slots that no sequence owns.
    #[must_use]
    pub fn free(&self) -> usize {
        self.slots.free()
    }

    /// All slots, free or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Cuts `seq` to its first `len` tokens.
    ///
    /// # Errors
    /// If `len` is more than is committed: stale rows are never brought back.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> Result<()> {
        self.slots.truncate(seq, len)
    }

    /// Makes `to` a sequence of the first `len` tokens of `from`, sharing their slots.
    ///
    /// # Errors
    /// If `from` has fewer tokens, or `to` already has some.
    pub fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<()> {
        self.slots.fork(from, to, len)
    }

    /// Forgets `seq`; its slots return to the pool unless another sequence shares them.
    pub fn release(&mut self, seq: SeqId) {
        self.slots.release(seq);
    }
}
