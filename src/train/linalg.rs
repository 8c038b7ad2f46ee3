//! The linear algebra that start values are made with.

use rayon::prelude::*;

use super::{mat::Mat, random::Random};
use crate::error::Result;

/// Rounds of the iteration for principal directions; they only have to be roughly right.
const ROUNDS: usize = 24;

/// The matrix b, `[n, m]`, that makes `x b` nearest to `y` (rows of n and m values), where a length of b
/// costs too: `(xᵀx + ridge) b = xᵀy`.
pub(super) fn ridge(x: &Mat, y: &Mat, ridge: f64) -> Result<Mat> {
    let (n, m) = (x.cols(), y.cols());
    let wide = |mat: &Mat| -> Vec<f64> { mat.view().iter().map(|x| f64::from(*x)).collect() };
    let mut a = wide(&x.t_times(x)?);
    for i in 0..n {
        a[i * n + i] += ridge;
    }
    let right = wide(&x.t_times(y)?);
    cholesky(&mut a, n);
    // Columns of the right side as rows, so that every sum runs over neighbours.
    let mut columns: Vec<f64> = (0..m)
        .flat_map(|j| right.iter().skip(j).step_by(m).copied())
        .collect();
    let upper: Vec<f64> = (0..n)
        .flat_map(|j| a.iter().skip(j).step_by(n).copied())
        .collect();
    columns.par_chunks_mut(n).for_each(|b| {
        for i in 0..n {
            let done = dot(&a[i * n..i * n + i], &b[..i]);
            b[i] = (b[i] - done) / a[i * n + i];
        }
        for i in (0..n).rev() {
            let done = dot(&upper[i * n + i + 1..(i + 1) * n], &b[i + 1..]);
            b[i] = (b[i] - done) / a[i * n + i];
        }
    });
    let solved = (0..n).flat_map(|i| columns.iter().skip(i).step_by(n));
    Mat::new(m, solved.map(|x| single(*x)).collect())
}

/// The lower triangle of a positive matrix `[n, n]` becomes L with `L Lᵀ` what it was.
fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let done = dot(&a[i * n..i * n + j], &a[j * n..j * n + j]);
            let left = a[i * n + j] - done;
            a[i * n + j] = if i == j {
                left.max(f64::MIN_POSITIVE).sqrt()
            } else {
                left / a[j * n + j]
            };
        }
    }
}

/// The `count` directions in which rows of `y` are longest, as orthonormal rows (subspace iteration).
pub(super) fn principal(y: &Mat, count: usize, random: &mut Random) -> Result<Mat> {
    let n = y.cols();
    let square = y.t_times(y)?;
    let mut rows = Mat::new(n, random.values(count * n, 1.0))?;
    for _ in 0..ROUNDS {
        rows = orthonormal(&rows.times(&square)?)?;
    }
    Ok(rows)
}

/// Orthonormal rows that span what the rows do (Gram and Schmidt, twice for the rounding).
pub(super) fn orthonormal(rows: &Mat) -> Result<Mat> {
    let n = rows.cols();
    let mut done: Vec<Vec<f64>> = Vec::new();
    for row in rows.view().chunks(n) {
        let mut row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        for _ in 0..2 {
            for other in &done {
                let along = dot(&row, other);
                row.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
            }
        }
        let length = dot(&row, &row).sqrt().max(f64::MIN_POSITIVE);
        row.iter_mut().for_each(|x| *x /= length);
        done.push(row);
    }
    Mat::new(n, done.into_iter().flatten().map(single).collect())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<4>();
    let (b, b_rest) = b.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// The nearest 32-bit float.
pub(super) fn single(x: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
    let single = x as f32;
    single
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_map_is_found() -> Result<()> {
        let mut random = Random::new(3);
        let map = Mat::new(3, random.values(15, 1.0))?;
        let x = Mat::new(5, random.values(40 * 5, 1.0))?;
        let found = ridge(&x, &x.times(&map)?, 1e-9)?;
        for (a, b) in found.view().iter().zip(&*map.view()) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
        Ok(())
    }

    #[test]
    fn the_longest_direction_comes_first() -> Result<()> {
        let mut random = Random::new(4);
        let mut rows = random.values(300 * 6, 1.0);
        rows.chunks_mut(6).for_each(|row| row[2] *= 9.0);
        let found = principal(&Mat::new(6, rows)?, 2, &mut random)?;
        let found = found.view();
        assert!(found[2].abs() > 0.99, "{:?}", &found[..6]);
        let across: f32 = found[..6].iter().zip(&found[6..]).map(|(a, b)| a * b).sum();
        assert!(across.abs() < 1e-5);
        Ok(())
    }
}
