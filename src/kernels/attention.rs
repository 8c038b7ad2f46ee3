//! Attention of rows over their own paths.

use super::{
    Exec,
    act::exp,
    dot::filled,
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
    /// Attends with every row to its `keys`; `out` is `[rows, heads * head_dim]`. A row without keys
    /// gets zeros, the sum of nothing.
    pub fn apply(&self, keys: &[Keys<'_>], out: &mut [f32], exec: Exec) {
        let all: usize = keys.iter().map(Keys::count).sum();
        let work = 2 * all * self.heads * self.head_dim;
        let group = self.heads.checked_div(self.kv_heads).unwrap_or(0);
        let width = group * self.head_dim;
        exec.chunks(out, width, work, |i, out| {
            let keys = keys[i / self.kv_heads];
            if keys.count() == 0 {
                out.fill(0.0);
                return;
            }
            dispatch(Group {
                attention: self,
                keys,
                q: &self.q[i * width..][..width],
                kv_head: i % self.kv_heads,
                out,
            });
        });
    }
}

/// The query heads of one row that share a key head.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) keys: Keys<'a>,
    /// `[heads of the group, head_dim]`.
    pub(super) q: &'a [f32],
    pub(super) kv_head: usize,
    /// As `q`.
    pub(super) out: &'a mut [f32],
}

impl Kernel for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let (kv_heads, width) = (self.attention.kv_heads, self.attention.head_dim);
        let slots = [self.keys.prefix, self.keys.path].concat();
        let path = Path {
            k: &self.attention.k[self.kv_head * width..],
            v: &self.attention.v[self.kv_head * width..],
            slots: &slots,
            stride: kv_heads * width,
            width,
        };
        // As many heads share what is loaded as registers hold sums for.
        let most = if S::WIDE { 4 * width } else { width };
        let parts = self.q.chunks(most).zip(self.out.chunks_mut(most));
        for (q, out) in parts {
            match q.len() / width {
                1 => path.attend::<S, 1>(simd, q, out),
                2 => path.attend::<S, 2>(simd, q, out),
                3 => path.attend::<S, 3>(simd, q, out),
                _ => path.attend::<S, 4>(simd, q, out),
            }
        }
    }
}

/// Keys and values of one head, and the slots of a row's path.
#[derive(Clone, Copy)]
struct Path<'a> {
    /// From the first slot's on.
    k: &'a [f32],
    v: &'a [f32],
    slots: &'a [u32],
    /// From a slot's to the next's.
    stride: usize,
    width: usize,
}

impl Path<'_> {
    #[inline(always)]
    fn place(self, slot: u32) -> usize {
        slot as usize * self.stride
    }

    /// `H` heads, side by side in `q` and `out`.
    #[inline(always)]
    fn attend<S: Lanes, const H: usize>(self, simd: S, q: &[f32], out: &mut [f32]) {
        let count = self.slots.len();
        let padded = count.next_multiple_of(16);
        #[expect(clippy::cast_precision_loss, reason = "a head is far below 2^24 wide")]
        let scale = simd.splat(1.0 / (self.width as f32).sqrt());

        let mut weights = vec![0.0; H * padded];
        for (i, some) in self.slots.chunks(16).enumerate() {
            let mut slots = [some[0]; 16];
            slots[..some.len()].copy_from_slice(some);
            let scores = self.scores::<S, H>(simd, q, slots);
            for h in 0..H {
                let scores = simd.product(simd.sixteen(&scores[h]), scale);
                weights[h * padded + 16 * i..][..16].copy_from_slice(&simd.lanes(scores));
            }
        }
        // What fills up the last sixteen has no weight.
        for weights in weights.chunks_exact_mut(padded) {
            weights[count..].fill(f32::NEG_INFINITY);
        }
        let mut totals = [0.0; H];
        for (total, weights) in totals.iter_mut().zip(weights.chunks_exact_mut(padded)) {
            *total = exponentials(simd, weights.as_chunks_mut().0);
        }
        let weights = std::array::from_fn(|h| &weights[h * padded..][..count]);
        self.mix::<S, H>(simd, weights, out);
        for (out, total) in out.chunks_exact_mut(self.width).zip(totals) {
            for out in out {
                *out /= total;
            }
        }
    }

    /// The products of the heads of `q` with the keys in sixteen slots. Product `i` is added to lane
    /// `i % 16`.
    #[inline(always)]
    fn scores<S: Lanes, const H: usize>(
        self,
        simd: S,
        q: &[f32],
        slots: [u32; 16],
    ) -> [[f32; 16]; H] {
        let q: [&[f32]; H] = std::array::from_fn(|h| &q[h * self.width..][..self.width]);
        let mut quarters = [[simd.splat(0.0); 4]; H];
        for i in 0..4 {
            // Four at a time, in the order that folding puts right.
            let k: [&[f32]; 4] =
                std::array::from_fn(|j| &self.k[self.place(slots[4 * j + i])..][..self.width]);
            let mut acc = [[simd.splat(0.0); 4]; H];
            let whole = self.width / 16 * 16;
            let mut from = 0;
            while from < whole {
                for j in 0..4 {
                    let k = simd.sixteen(k[j][from..].first_chunk().expect("whole"));
                    for h in 0..H {
                        let q = simd.sixteen(q[h][from..].first_chunk().expect("whole"));
                        acc[h][j] = simd.fma(q, k, acc[h][j]);
                    }
                }
                from += 16;
            }
            if whole < self.width {
                for j in 0..4 {
                    let k = simd.sixteen(&filled(&k[j][whole..]));
                    for h in 0..H {
                        let q = simd.sixteen(&filled(&q[h][whole..]));
                        acc[h][j] = simd.fma(q, k, acc[h][j]);
                    }
                }
            }
            for h in 0..H {
                quarters[h][i] = simd.quarter(acc[h]);
            }
        }
        let mut scores = [[0.0; 16]; H];
        for h in 0..H {
            scores[h] = simd.quarters(quarters[h]);
        }
        scores
    }

    /// The values in the slots, weighed and added up in order.
    #[inline(always)]
    fn mix<S: Lanes, const H: usize>(self, simd: S, weights: [&[f32]; H], out: &mut [f32]) {
        let mut from = 0;
        while from + 64 <= self.width {
            let mut acc = [[simd.splat(0.0); 4]; H];
            for (i, slot) in self.slots.iter().enumerate() {
                let v: &[f32; 64] = self.v[self.place(*slot) + from..]
                    .first_chunk()
                    .expect("a head's");
                let (v, _) = v.as_chunks::<16>();
                let v = [
                    simd.sixteen(&v[0]),
                    simd.sixteen(&v[1]),
                    simd.sixteen(&v[2]),
                    simd.sixteen(&v[3]),
                ];
                for h in 0..H {
                    let weight = simd.splat(weights[h][i]);
                    for c in 0..4 {
                        acc[h][c] = simd.fma(weight, v[c], acc[h][c]);
                    }
                }
            }
            for h in 0..H {
                for c in 0..4 {
                    let out = &mut out[h * self.width + from + 16 * c..][..16];
                    out.copy_from_slice(&simd.lanes(acc[h][c]));
                }
            }
            from += 64;
        }
        while from < self.width {
            let columns = (self.width - from).min(16);
            for h in 0..H {
                let mut acc = simd.splat(0.0);
                for (weight, slot) in weights[h].iter().zip(self.slots) {
                    let v = filled(&self.v[self.place(*slot) + from..][..columns]);
                    acc = simd.fma(simd.splat(*weight), simd.sixteen(&v), acc);
                }
                let out = &mut out[h * self.width + from..][..columns];
                out.copy_from_slice(&simd.lanes(acc)[..columns]);
            }
            from += 16;
        }
    }
}

/// Turns scores into `e` to their distance from the greatest; returns the sum, added up lane by lane.
#[inline(always)]
fn exponentials<S: Lanes>(simd: S, scores: &mut [[f32; 16]]) -> f32 {
    let mut peaks = [f32::NEG_INFINITY; 16];
    for scores in &*scores {
        for (peak, score) in peaks.iter_mut().zip(scores) {
            *peak = if *score > *peak { *score } else { *peak };
        }
    }
    let peak = peaks.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = simd.splat(0.0);
    for scores in scores {
        for score in &mut *scores {
            *score = exp(*score - peak);
        }
        sums = simd.plus(sums, simd.sixteen(scores));
    }
    simd.sum(sums)
}
