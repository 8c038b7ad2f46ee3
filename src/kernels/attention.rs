//! Attention of rows over their own paths.

use super::{
    Exec,
    act::exp,
    dot::sum,
    simd::{Kernel, Lanes, dispatch},
};

/// The slots a row attends to, in the order of logical position.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// Slots of tokens before the pass, and of the pass where they follow on without a gap.
    pub prefix: &'a [u32],
    /// Further slots of the pass: the row's ancestors and itself.
    pub path: &'a [u32],
}

impl Keys<'_> {
    /// Number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.prefix.len() + self.path.len()
    }

    /// The last `window` of them.
    #[must_use]
    pub fn latest(self, window: usize) -> Self {
        let old = self.count().saturating_sub(window);
        let before = old.min(self.prefix.len());
        Self {
            prefix: &self.prefix[before..],
            path: &self.path[old - before..],
        }
    }
}

/// Grouped-query attention over one layer's keys and values.
///
/// A row's result depends on its query and on the keys and values of its path alone: keys that are
/// not on the path are never touched, and sums run over the path in order.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Queries, `[rows, heads * head_dim]`.
    pub q: &'a [f32],
    /// Keys of all slots, `[slots, kv_heads * head_dim]`.
    pub k: &'a [f32],
    /// Values of all slots, `[slots, kv_heads * head_dim]`.
    pub v: &'a [f32],
    /// Query heads.
    pub heads: usize,
    /// Key heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl Attention<'_> {
    /// Attends with every row to its `keys`; `out` is `[rows, heads * head_dim]`.
    pub fn apply(&self, keys: &[Keys<'_>], out: &mut [f32], exec: Exec) {
        let all: usize = keys.iter().map(Keys::count).sum();
        let work = 2 * all * self.heads * self.head_dim;
        exec.chunks(out, self.head_dim, work, |i, out| {
            dispatch(Head {
                attention: self,
                keys: keys[i / self.heads],
                q: &self.q[i * self.head_dim..][..self.head_dim],
                head: i % self.heads,
                out,
            });
        });
    }
}

/// One head of one row.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) keys: Keys<'a>,
    pub(super) q: &'a [f32],
    pub(super) head: usize,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let Attention {
            k,
            v,
            heads,
            kv_heads,
            head_dim,
            ..
        } = *self.attention;
        let group = self.head / (heads / kv_heads) * head_dim;
        let slots = self.keys.prefix.iter().chain(self.keys.path);
        let at: Vec<usize> = slots
            .map(|slot| *slot as usize * kv_heads * head_dim + group)
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a head is far below 2^24 wide")]
        let scale = 1.0 / (head_dim as f32).sqrt();

        let mut weights = Vec::with_capacity(at.len());
        let mut peak = f32::NEG_INFINITY;
        for at in at.chunks(16) {
            for score in &scores(simd, self.q, k, at)[..at.len()] {
                let score = score * scale;
                peak = if score > peak { score } else { peak };
                weights.push(score);
            }
        }
        for weight in &mut weights {
            *weight = exp(*weight - peak);
        }
        let total = sum(simd, &weights);
        mix(simd, &weights, (v, &at), self.out);
        for out in self.out {
            *out /= total;
        }
    }
}

/// The products of `q` with the keys at up to sixteen places; the rest of them is zero. Product `i` is
/// added to lane `i % 16`.
#[inline(always)]
fn scores<S: Lanes>(simd: S, q: &[f32], k: &[f32], at: &[usize]) -> [f32; 16] {
    let (q_whole, q_rest) = q.as_chunks::<16>();
    let mut sums = [simd.splat(0.0); 16];
    for (sum, at) in sums.iter_mut().zip(at) {
        let (k_whole, k_rest) = k[*at..][..q.len()].as_chunks::<16>();
        let mut acc = simd.splat(0.0);
        for (q, k) in q_whole.iter().zip(k_whole) {
            acc = simd.fma(simd.sixteen(q), simd.sixteen(k), acc);
        }
        if !q_rest.is_empty() {
            let (q, k) = (filled(q_rest), filled(k_rest));
            acc = simd.fma(simd.sixteen(&q), simd.sixteen(&k), acc);
        }
        *sum = acc;
    }
    simd.folded(sums)
}

/// The values at `at`, weighed and added up in order.
#[inline(always)]
fn mix<S: Lanes>(simd: S, weights: &[f32], (v, at): (&[f32], &[usize]), out: &mut [f32]) {
    let (wide, narrow) = out.as_chunks_mut::<64>();
    let mut from = 0;
    for part in wide {
        let mut acc = [simd.splat(0.0); 4];
        for (weight, at) in weights.iter().zip(at) {
            let weight = simd.splat(*weight);
            let v: &[f32; 64] = v[at + from..].first_chunk().expect("a head's values");
            let (v, _) = v.as_chunks::<16>();
            for i in 0..4 {
                acc[i] = simd.fma(weight, simd.sixteen(&v[i]), acc[i]);
            }
        }
        let (part, _) = part.as_chunks_mut::<16>();
        for (part, acc) in part.iter_mut().zip(acc) {
            *part = simd.lanes(acc);
        }
        from += 64;
    }
    for part in narrow.chunks_mut(16) {
        let mut acc = simd.splat(0.0);
        for (weight, at) in weights.iter().zip(at) {
            let v = filled(&v[at + from..][..part.len()]);
            acc = simd.fma(simd.splat(*weight), simd.sixteen(&v), acc);
        }
        part.copy_from_slice(&simd.lanes(acc)[..part.len()]);
        from += 16;
    }
}

#[inline(always)]
fn filled(values: &[f32]) -> [f32; 16] {
    let mut all = [0.0; 16];
    all[..values.len()].copy_from_slice(values);
    all
}
