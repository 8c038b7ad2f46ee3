//! Counts as numbers.

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

pub(crate) fn total(counts: &[u64]) -> f64 {
    counts.iter().map(|&c| float(c)).sum()
}
