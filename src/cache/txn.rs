//! The rows of one pass, owned until a commit names the survivors.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Device, Tensor};

use super::{
    KvCache,
    store::{Layer, Places, Store},
};
use crate::{
    SeqId,
    error::{ErrorKind, Result},
};

const ON_DEVICE: &str = "keys and values lie on a device";
const IN_HOST_MEMORY: &str = "keys and values in host memory, accepted is a cache on a device";

/// An open pass over a cache. Rows of sequences that are not committed vanish when it drops.
#[derive(Debug)]
pub struct Txn<'c> {
    cache: &'c mut KvCache,
    fresh: BTreeMap<SeqId, Vec<u32>>,
}

impl<'c> Txn<'c> {
    /// Takes slots for `want` rows of each sequence (a sequence named twice gets the sum). `None`
    /// if there is no room for all of them: not now, and nothing was taken.
    #[must_use]
    pub fn begin(cache: &'c mut KvCache, want: &[(SeqId, usize)]) -> Option<Self> {
        let total = want.iter().map(|(_, rows)| rows).sum();
        let mut slots = cache.slots.take(total)?.into_iter();
        let mut fresh = BTreeMap::<SeqId, Vec<u32>>::new();
        for (seq, rows) in want {
            fresh
                .entry(*seq)
                .or_default()
                .extend(slots.by_ref().take(*rows));
        }
        Some(Self { cache, fresh })
    }

    /// Committed slots of `seq` in logical order.
    #[must_use]
    pub fn prefix(&self, seq: SeqId) -> &[u32] {
        self.cache.slots.of(seq)
    }

    /// Slots of this pass's rows of `seq`, in row order; empty once committed.
    #[must_use]
    pub fn fresh(&self, seq: SeqId) -> &[u32] {
        self.fresh.get(&seq).map_or(&[], Vec::as_slice)
    }

    /// Floats of a key, and of a value, of one token.
    #[must_use]
    pub fn width(&self) -> usize {
        self.cache.width
    }

    /// The device that keys and values lie on; `None` for host memory.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        match &self.cache.store {
            Store::Host(_) => None,
            Store::Device(store) => Some(&store.device),
        }
    }

    /// Keys and values of `layer`, `[slots, width]` each.
    ///
    /// # Panics
    /// If they lie on a [`device`](Self::device).
    #[must_use]
    pub fn layer(&self, layer: usize) -> (&[f32], &[f32]) {
        let Store::Host(layers) = &self.cache.store else {
            panic!("{ON_DEVICE}");
        };
        (&layers[layer].k, &layers[layer].v)
    }

    /// Writes the key and value of one of this pass's rows. A slot is written once a layer, before
    /// any row reads it.
    ///
    /// # Panics
    /// If they lie on a [`device`](Self::device).
    pub fn write(&mut self, layer: usize, slot: u32, k: &[f32], v: &[f32]) {
        let width = self.cache.width;
        let at = slot as usize * width;
        let Store::Host(layers) = &mut self.cache.store else {
            panic!("{ON_DEVICE}");
        };
        let Layer { k: keys, v: values } = &mut layers[layer];
        keys[at..at + width].copy_from_slice(k);
        values[at..at + width].copy_from_slice(v);
    }

    /// Where rows with these slots, all of this pass, are written by [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// If the cache is in host memory, a slot is not of this pass, or the device fails.
    pub fn places(&self, slots: &[u32]) -> Result<Places> {
        let fresh: BTreeSet<&u32> = self.fresh.values().flatten().collect();
        if let Some(slot) = slots.iter().find(|slot| !fresh.contains(slot)) {
            let what = format!("slot {slot} is written, accepted are those of the pass's rows");
            return Err(ErrorKind::Cache(what).into());
        }
        match &self.cache.store {
            Store::Host(_) => Err(ErrorKind::Cache(IN_HOST_MEMORY.to_owned()).into()),
            Store::Device(store) => store.places(slots),
        }
    }

    /// Writes keys and values of rows, `[kv_heads, rows, head_dim]` each and contiguous, on the
    /// device, and gives those of all slots, `[kv_heads, slots, head_dim]`. A slot is written once
    /// a layer, before any row reads it.
    ///
    /// # Errors
    /// If the cache is in host memory, or the device fails; nothing is committed then.
    pub fn scatter(
        &mut self,
        layer: usize,
        places: &Places,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        match &mut self.cache.store {
            Store::Host(_) => Err(ErrorKind::Cache(IN_HOST_MEMORY.to_owned()).into()),
            Store::Device(store) => store.write(layer, places, k, v),
        }
    }

    /// Keys and values of `layer` on the device, `[kv_heads, slots, head_dim]` each; `None` in host
    /// memory, or before anything was written.
    #[must_use]
    pub fn tensors(&self, layer: usize) -> Option<(Tensor, Tensor)> {
        match &self.cache.store {
            Store::Host(_) => None,
            Store::Device(store) => store.layer(layer),
        }
    }

    /// Keeps the rows `rows` (indices into this pass's rows of `seq`, strictly ascending) as the
    /// next tokens of `seq`; its other rows vanish.
    ///
    /// # Errors
    /// If `seq` has no rows here, or was committed already, or `rows` is not ascending and in
    /// range. The sequence is then as it was.
    pub fn commit(&mut self, seq: SeqId, rows: &[usize]) -> Result<()> {
        let count = self.fresh(seq).len();
        let ascending = rows.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = rows.last().is_none_or(|last| *last < count);
        let taken = (ascending && inside).then(|| self.fresh.remove(&seq));
        let Some(fresh) = taken.flatten() else {
            return Err(ErrorKind::Cache(format!(
                "rows {rows:?} are not ascending indices into the {count} rows of sequence {}",
                seq.0
            ))
            .into());
        };
        self.cache
            .slots
            .append(seq, rows.iter().map(|row| fresh[*row]));
        let mut kept = rows.iter().peekable();
        for (row, slot) in fresh.into_iter().enumerate() {
            if kept.next_if_eq(&&row).is_none() {
                self.cache.slots.put(slot);
            }
        }
        Ok(())
    }

    /// Keeps all of this pass's rows of `seq`: a chain that nothing judges.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all(&mut self, seq: SeqId) -> Result<()> {
        let rows: Vec<usize> = (0..self.fresh(seq).len()).collect();
        self.commit(seq, &rows)
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.fresh).into_values().flatten() {
            self.cache.slots.put(slot);
        }
    }
}
