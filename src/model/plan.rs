//! Where the rows of a pass sit: slots, keys, angles.

use std::ops::Range;

use super::rows::{Rows, Span};
use crate::{
    cache::Txn,
    error::{ErrorKind, Result},
    kernels::{Keys, Rope},
};

/// What all layers of one pass share.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Slot of each row.
    slots: Vec<u32>,
    /// Cosines and sines of each row, `[rows, head_dim]`.
    angles: Vec<f32>,
    /// Slot lists; `keys` are ranges of it.
    lists: Vec<u32>,
    keys: Vec<(Range<usize>, Range<usize>)>,
}

impl Plan {
    /// Checks `rows` against the transaction and the context, and lays them out.
    pub(crate) fn new(rows: &Rows, txn: &Txn<'_>, rope: &Rope, context: usize) -> Result<Self> {
        let mut plan = Self {
            slots: Vec::with_capacity(rows.len()),
            angles: vec![0.0; rows.len() * rope.width()],
            lists: Vec::new(),
            keys: Vec::with_capacity(rows.len()),
        };
        for span in rows.spans() {
            check(span, rows, txn, context)?;
            plan.add(span, rows, txn);
        }
        let tables = plan.angles.chunks_exact_mut(rope.width());
        for (position, table) in rows.positions().iter().zip(tables) {
            rope.table(*position, table);
        }
        Ok(plan)
    }

    fn add(&mut self, span: &Span, rows: &Rows, txn: &Txn<'_>) {
        let (prefix, fresh) = (txn.prefix(span.seq), txn.fresh(span.seq));
        let parents = &rows.parents()[span.rows.clone()];
        self.slots.extend_from_slice(fresh);

        // Leading rows that form a chain follow on the prefix: their keys are one list, cut.
        let start = self.lists.len();
        let chain = (0..).zip(parents).skip(1);
        let chain = 1 + chain.take_while(|(i, p)| **p == Some(i - 1)).count();
        self.lists.extend_from_slice(prefix);
        self.lists.extend_from_slice(&fresh[..chain]);
        let end = start + prefix.len();
        for i in 0..chain {
            self.keys.push((start..end + i + 1, 0..0));
        }
        for i in chain..fresh.len() {
            let from = self.lists.len();
            let mut at = Some(i);
            while let Some(row) = at {
                self.lists.push(fresh[row]);
                at = parents[row].map(|parent| parent as usize);
            }
            self.lists[from..].reverse();
            self.keys.push((start..end, from..self.lists.len()));
        }
    }

    pub(super) fn slots(&self) -> &[u32] {
        &self.slots
    }

    pub(super) fn angles(&self) -> &[f32] {
        &self.angles
    }

    pub(crate) fn keys(&self) -> Vec<Keys<'_>> {
        let list = |range: &Range<usize>| &self.lists[range.clone()];
        let keys = self.keys.iter().map(|(prefix, path)| Keys {
            prefix: list(prefix),
            path: list(path),
        });
        keys.collect()
    }
}

fn check(span: &Span, rows: &Rows, txn: &Txn<'_>, context: usize) -> Result<()> {
    let (committed, fresh) = (txn.prefix(span.seq).len(), txn.fresh(span.seq).len());
    let deepest = rows.positions()[span.rows.clone()].iter().max();
    let wrong = if span.base != committed {
        format!(
            "base {}, accepted are the {committed} committed tokens",
            span.base
        )
    } else if span.rows.len() != fresh {
        format!(
            "{} rows, accepted are the {fresh} of the transaction",
            span.rows.len()
        )
    } else if let Some(position) = deepest.filter(|p| **p >= context) {
        format!("position {position}, accepted are positions below {context}")
    } else {
        return Ok(());
    };
    Err(ErrorKind::Rows(format!("sequence {}: {wrong}", span.seq.0)).into())
}
