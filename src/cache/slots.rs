//! Who owns which slot.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use crate::{
    SeqId,
    error::{ErrorKind, Result},
};

/// Slot lists by sequence, owner counts by slot, and the free slots, lowest first.
#[derive(Debug)]
pub(super) struct Slots {
    owners: Vec<u32>,
    free: BinaryHeap<Reverse<u32>>,
    lists: BTreeMap<SeqId, Vec<u32>>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let count = u32::try_from(count).expect("a cache holds fewer than 2^32 tokens");
        Self {
            owners: vec![0; count as usize],
            free: (0..count).map(Reverse).collect(),
            lists: BTreeMap::new(),
        }
    }

    pub(super) fn of(&self, seq: SeqId) -> &[u32] {
        self.lists.get(&seq).map_or(&[], Vec::as_slice)
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.owners.len()
    }

    /// Takes `count` free slots, or none if there are not so many.
    pub(super) fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        if count > self.free.len() {
            return None;
        }
        let taken: Vec<u32> = (0..count)
            .filter_map(|_| self.free.pop().map(|Reverse(slot)| slot))
            .collect();
        for slot in &taken {
            self.owners[*slot as usize] = 1;
        }
        Some(taken)
    }

    /// Appends slots that the caller owns to the list of `seq`.
    pub(super) fn append(&mut self, seq: SeqId, slots: impl IntoIterator<Item = u32>) {
        self.lists.entry(seq).or_default().extend(slots);
    }

    /// Gives up one ownership of `slot`.
    pub(super) fn put(&mut self, slot: u32) {
        let owners = &mut self.owners[slot as usize];
        *owners -= 1;
        if *owners == 0 {
            self.free.push(Reverse(slot));
        }
    }

    pub(super) fn truncate(&mut self, seq: SeqId, len: usize) -> Result<()> {
        let have = self.of(seq).len();
        if len > have {
            return Err(ErrorKind::Cache(format!(
                "sequence {} has {have} tokens, truncating to {len} would lengthen it",
                seq.0
            ))
            .into());
        }
        let cut = self.lists.get_mut(&seq).map(|list| list.split_off(len));
        for slot in cut.unwrap_or_default() {
            self.put(slot);
        }
        Ok(())
    }

    pub(super) fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<()> {
        let shared = self.of(from).get(..len).map(<[u32]>::to_vec);
        let (Some(shared), true) = (shared, self.of(to).is_empty()) else {
            return Err(ErrorKind::Cache(format!(
                "cannot fork {len} tokens of sequence {} ({} tokens) to sequence {} ({} tokens, must be 0)",
                from.0,
                self.of(from).len(),
                to.0,
                self.of(to).len()
            ))
            .into());
        };
        for slot in &shared {
            self.owners[*slot as usize] += 1;
        }
        self.append(to, shared);
        Ok(())
    }

    pub(super) fn release(&mut self, seq: SeqId) {
        for slot in self.lists.remove(&seq).unwrap_or_default() {
            self.put(slot);
        }
    }
}
