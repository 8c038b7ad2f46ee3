//! What all layers of one pass share, on the device.

use std::ops::Range;

use candle_core::{Device, Tensor};

use crate::{
    cache::{Places, Txn},
    error::Result,
    model::{
        block::Shape,
        plan::Plan,
        rows::{Rows, Span},
    },
};

/// Where the rows of a pass sit.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) shape: &'a Shape,
    /// Cosines by row, `[rows, head_dim / 2]`.
    pub(super) cos: Tensor,
    /// Sines by row, `[rows, head_dim / 2]`.
    pub(super) sin: Tensor,
    /// Where the rows' keys and values go.
    pub(super) places: Places,
    pub(super) spans: Vec<Reach>,
}

/// What the rows of a span attend to.
#[derive(Debug)]
pub(super) struct Reach {
    /// Its rows in the pass.
    pub(super) rows: Range<usize>,
    /// Slots of the committed tokens in logical order, then of the rows.
    pub(super) slots: Tensor,
    /// Minus infinity where a row does not see another, else 0: `[rows, rows]`. `None` for one row.
    pub(super) mask: Option<Tensor>,
}

impl<'a> Pass<'a> {
    /// Checks `rows` against the transaction and the context, and lays them out.
    pub(super) fn new(
        rows: &Rows,
        txn: &Txn<'_>,
        shape: &'a Shape,
        device: &Device,
        context: usize,
    ) -> Result<Self> {
        let plan = Plan::new(rows, txn, &shape.rope, context)?;
        let half = shape.head_dim / 2;
        let angles = Tensor::from_slice(plan.angles(), (rows.len(), 2 * half), device)?;
        let spans = rows.spans().iter();
        let spans = spans.map(|span| Reach::new(span, rows, txn, device));
        Ok(Self {
            shape,
            cos: angles.narrow(1, 0, half)?.contiguous()?,
            sin: angles.narrow(1, half, half)?.contiguous()?,
            places: txn.places(plan.slots())?,
            spans: spans.collect::<Result<_>>()?,
        })
    }
}

impl Reach {
    fn new(span: &Span, rows: &Rows, txn: &Txn<'_>, device: &Device) -> Result<Self> {
        let slots = [txn.prefix(span.seq), txn.fresh(span.seq)].concat();
        let count = span.rows.len();
        let mask = match count {
            1 => None,
            _ => {
                let mask = mask(&rows.parents()[span.rows.clone()]);
                Some(Tensor::from_vec(mask, (count, count), device)?)
            }
        };
        Ok(Self {
            rows: span.rows.clone(),
            slots: Tensor::new(slots, device)?,
            mask,
        })
    }
}

/// `[rows, rows]`: 0 from a row to its ancestors and itself, minus infinity to the others.
fn mask(parents: &[Option<u32>]) -> Vec<f32> {
    let count = parents.len();
    let mut mask = vec![f32::NEG_INFINITY; count * count];
    for (i, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            let parent = *parent as usize * count;
            mask.copy_within(parent..parent + i, i * count);
        }
        mask[i * count + i] = 0.0;
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_sees_its_ancestors_and_itself() {
        let parents = [None, Some(0), Some(0), Some(2), None];
        let mask = mask(&parents);
        let seen = mask.chunks(5).map(|row| {
            let seen = (0..5).filter(|j| row[*j] == 0.0);
            seen.collect::<Vec<_>>()
        });
        let expected = [vec![0], vec![0, 1], vec![0, 2], vec![0, 2, 3], vec![4]];
        assert!(seen.eq(expected));
    }
}
