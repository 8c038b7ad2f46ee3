//! RMS normalisation.

use super::{
    dot::dot,
    simd::{Kernel, Lanes, dispatch},
};

/// `out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight` (Zhang and Sennrich, 2019); `x` and `out`
/// are `[rows, weight.len()]`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    dispatch(RmsNorm {
        x,
        weight,
        eps,
        out,
    });
}

#[derive(Debug)]
pub(super) struct RmsNorm<'a> {
    pub(super) x: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) eps: f32,
    pub(super) out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, simd: S) {
        let width = self.weight.len();
        #[expect(clippy::cast_precision_loss, reason = "a width is far below 2^24")]
        let count = width as f32;
        if width == 0 {
            return;
        }
        let rows = self.x.chunks_exact(width);
        for (x, out) in rows.zip(self.out.chunks_exact_mut(width)) {
            let squares = dot(simd, x, x);
            let scale = 1.0 / (squares / count + self.eps).sqrt();
            for ((o, x), w) in out.iter_mut().zip(x).zip(self.weight) {
                *o = x * scale * w;
            }
        }
    }
}
