//! Attention of rows over their own paths.

use super::{
    Exec,
    act::exp,
    dot::{dot, sum},
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
        let at = |slot: &u32| *slot as usize * kv_heads * head_dim + group;
        #[expect(clippy::cast_precision_loss, reason = "a head is far below 2^24 wide")]
        let scale = 1.0 / (head_dim as f32).sqrt();

        let mut weights = Vec::with_capacity(self.keys.count());
        let mut peak = f32::NEG_INFINITY;
        for slots in [self.keys.prefix, self.keys.path] {
            for slot in slots {
                let score = dot(simd, self.q, &k[at(slot)..][..head_dim]) * scale;
                peak = if score > peak { score } else { peak };
                weights.push(score);
            }
        }
        for weight in &mut weights {
            *weight = exp(*weight - peak);
        }
        let total = sum(simd, &weights);

        self.out.fill(0.0);
        let (prefix, path) = weights.split_at(self.keys.prefix.len());
        for (slots, weights) in [(self.keys.prefix, prefix), (self.keys.path, path)] {
            for (slot, weight) in slots.iter().zip(weights) {
                let v = &v[at(slot)..][..head_dim];
                for (out, v) in self.out.iter_mut().zip(v) {
                    *out += weight * v;
                }
            }
        }
        for out in self.out {
            *out /= total;
        }
    }
}
