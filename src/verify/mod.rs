//! Stage 2: one target pass over all rows of the batch.
//!
//! Every sequence's anchor and nodes become rows of one packed pass, so that each weight is read
//! once whatever each sequence drafted. [`RowLaws`] then answers for one sequence what the target
//! says at any of its rows.

mod pack;
mod rows;

pub use pack::Pack;
pub use rows::RowLaws;

use crate::{
    Matrix,
    cache::{KvCache, Txn},
    error::Result,
    model::Target,
    sequence::Sequence,
    tree::DraftTree,
};

/// Logits of all rows of a pass, the packing that finds them, and the open transaction that holds
/// the rows' keys and values.
#[derive(Debug)]
pub struct Verified<'c> {
    /// `[rows, vocab]`.
    pub logits: Matrix,
    /// The taps asked for, `[rows, taps * hidden]`.
    pub taps: Option<Matrix>,
    /// Where each sequence's rows are.
    pub pack: Pack,
    /// The rows in the cache; what is not committed vanishes with it.
    pub txn: Txn<'c>,
}

/// Runs the target over the anchors of `seqs` and the nodes of their `trees`, with `taps`. `None`: the
/// cache has no room for these rows now, and nothing changed.
///
/// # Errors
/// If the target fails; nothing half-written survives.
pub fn verify<'c>(
    target: &dyn Target,
    cache: &'c mut KvCache,
    seqs: &[Sequence],
    trees: &[DraftTree],
    taps: &[usize],
) -> Result<Option<Verified<'c>>> {
    let pack = Pack::new(cache, seqs, trees, target.vocab())?;
    let Some(mut txn) = Txn::begin(cache, &pack.rows().want()) else {
        return Ok(None);
    };
    let out = target.forward(pack.rows(), &mut txn, taps)?;
    Ok(Some(Verified {
        logits: out.logits,
        taps: out.taps,
        pack,
        txn,
    }))
}
