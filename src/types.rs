//! The small words that every stage shares.

/// A token of a vocabulary.
pub type TokenId = u32;

/// One sequence in the engine: a choice of a request, alive from prefill to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

/// One drafted token in a draft tree, by its index in that tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

impl Node {
    /// The node at `index` of its tree.
    ///
    /// # Panics
    /// If the index does not fit 32 bits; a tree refuses to grow that far.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a tree holds fewer than 2^32 nodes"))
    }

    /// The node's index in its tree.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Row-major `f32` values, `[rows, cols]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    cols: usize,
    data: Vec<f32>,
}

impl Matrix {
    /// Wraps `data` as rows of `cols` values.
    ///
    /// # Panics
    /// If `data` is not a whole number of rows: the caller computed a wrong shape.
    #[must_use]
    pub fn new(cols: usize, data: Vec<f32>) -> Self {
        assert!(
            cols > 0 && data.len().is_multiple_of(cols),
            "{} values are no rows of {cols}",
            data.len()
        );
        Self { cols, data }
    }

    /// `rows` rows of zeros.
    #[must_use]
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self::new(cols, vec![0.0; rows * cols])
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.data.len().checked_div(self.cols).unwrap_or(0)
    }

    /// Width of a row.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `i`.
    #[must_use]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Row `i`, to be written.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// The rows named, in that order.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn gather(&self, rows: impl IntoIterator<Item = usize>) -> Self {
        let rows = rows.into_iter().flat_map(|row| self.row(row));
        Self {
            cols: self.cols,
            data: rows.copied().collect(),
        }
    }

    /// All values, row after row.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// All values, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data
    }
}
