//! Grouped-query attention of one span.

use candle_core::{D, Tensor};
use candle_nn::ops::softmax_last_dim;

use super::pass::Reach;
use crate::error::Result;

/// Attends with the rows of a span: `q` is `[heads, rows of the pass, head_dim]`, `k` and `v` are
/// `[kv_heads, slots, head_dim]`; the result is `[heads, rows of the span, head_dim]`.
///
/// Keys are gathered in logical order: the committed tokens, then the span's rows, of which a row
/// sees its ancestors and itself.
pub(super) fn attend(q: &Tensor, k: &Tensor, v: &Tensor, span: &Reach) -> Result<Tensor> {
    let (heads, _, head_dim) = q.dims3()?;
    let (kv_heads, rows) = (k.dim(0)?, span.rows.len());
    let k = k.index_select(&span.slots, 1)?;
    let v = v.index_select(&span.slots, 1)?;
    let keys = k.dim(1)?;
    // The query heads of a key head are rows of one product.
    let by_key_head = (kv_heads, heads / kv_heads * rows);
    let q = q.narrow(1, span.rows.start, rows)?.contiguous()?;
    let q = (q.reshape((by_key_head.0, by_key_head.1, head_dim))? * scale(head_dim))?;
    let scores = q.matmul(&k.transpose(1, 2)?)?;
    let scores = match &span.mask {
        None => scores,
        Some(mask) => {
            let scores = scores.reshape((heads, rows, keys))?;
            let committed = scores.narrow(D::Minus1, 0, keys - rows)?;
            let tree = scores.narrow(D::Minus1, keys - rows, rows)?;
            let tree = tree.broadcast_add(mask)?;
            let scores = Tensor::cat(&[&committed, &tree], D::Minus1)?;
            scores.reshape((by_key_head.0, by_key_head.1, keys))?
        }
    };
    let attended = softmax_last_dim(&scores)?.matmul(&v)?;
    Ok(attended.reshape((heads, rows, head_dim))?)
}

#[expect(clippy::cast_precision_loss, reason = "a head is far below 2^52 wide")]
fn scale(head_dim: usize) -> f64 {
    1.0 / (head_dim as f64).sqrt()
}
