//! Matrices that are multiplied fast.
//!
//! The products of training are large and regular, and need not be row-invariant as the engine's have
//! to be, so they are candle's (its `gemm`, 512 bits wide where the machine is). What lies between them is done by
//! hand on slices: the gradient of one small network is short, and the memory and the order of every sum
//! are in view. A product's bits depend on its shape alone, so equal steps give equal weights.

use std::{ops::Deref, sync::RwLockReadGuard};

use candle_core::{CpuStorage, Device, Storage, Tensor};
use rayon::prelude::*;

use crate::error::Result;

/// Values that a thread takes at once where there is nothing but to go through them.
pub(super) const CHUNK: usize = 1 << 16;

/// Row-major values `[rows, cols]` that are not changed any more. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Mat(Tensor);

impl Mat {
    /// Takes `data` as rows of `cols` values.
    pub(super) fn new(cols: usize, data: Vec<f32>) -> Result<Self> {
        let rows = data.len().checked_div(cols).unwrap_or(0);
        Ok(Self(Tensor::from_vec(data, (rows, cols), &Device::Cpu)?))
    }

    pub(super) fn rows(&self) -> usize {
        self.0.dims()[0]
    }

    pub(super) fn cols(&self) -> usize {
        self.0.dims()[1]
    }

    /// The values, row after row.
    pub(super) fn view(&self) -> View<'_> {
        View(self.0.storage_and_layout().0)
    }

    /// `self · other`.
    pub(super) fn times(&self, other: &Self) -> Result<Self> {
        Ok(Self(self.0.matmul(&other.0)?))
    }

    /// `self · otherᵀ`: rows through a linear layer `[out, in]`.
    pub(super) fn times_t(&self, other: &Self) -> Result<Self> {
        Ok(Self(self.0.matmul(&other.0.t()?)?))
    }

    /// `selfᵀ · other`: the gradient of a linear layer, from that of its outputs and its inputs.
    pub(super) fn t_times(&self, other: &Self) -> Result<Self> {
        Ok(Self(self.0.t()?.matmul(&other.0)?))
    }

    /// The rows named, in that order.
    pub(super) fn gather(&self, rows: impl IntoIterator<Item = usize>) -> Result<Self> {
        let (cols, view) = (self.cols(), self.view());
        let rows = rows.into_iter();
        let mut data = Vec::with_capacity(rows.size_hint().0 * cols);
        for row in rows {
            data.extend_from_slice(&view[row * cols..(row + 1) * cols]);
        }
        Self::new(cols, data)
    }
}

/// The values of a [`Mat`].
#[derive(Debug)]
pub(super) struct View<'a>(RwLockReadGuard<'a, Storage>);

impl Deref for View<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.0 {
            Storage::Cpu(CpuStorage::F32(data)) => data,
            _ => unreachable!("matrices are made of f32 in host memory"),
        }
    }
}

/// Adds `x` to `sum`.
pub(super) fn add(sum: &mut [f32], x: &[f32]) {
    let add = |(sum, x): (&mut [f32], &[f32])| {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += x;
        }
    };
    if sum.len() <= CHUNK {
        add((sum, x));
    } else {
        let chunks = sum.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK));
        chunks.for_each(add);
    }
}

/// Σ a b.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_what_they_say() -> Result<()> {
        let a = Mat::new(3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
        let b = Mat::new(2, vec![1.0, 0.0, 0.0, 1.0, 2.0, 2.0])?;
        assert_eq!(*a.times(&b)?.view(), [7.0, 8.0, 16.0, 17.0]);
        assert_eq!(*a.times_t(&a)?.view(), [14.0, 32.0, 32.0, 77.0]);
        assert_eq!(
            *a.t_times(&a)?.view(),
            [17.0, 22.0, 27.0, 22.0, 29.0, 36.0, 27.0, 36.0, 45.0]
        );
        assert_eq!(*a.gather([1, 0])?.view(), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        assert_eq!(a.t_times(&a)?.gather([1])?.rows(), 1);
        Ok(())
    }
}
