//! Choosing the instruction set at run time.

use pulp::{Scalar256b, Simd, f32x8};

/// Arithmetic on eight `f32` lanes.
pub(super) trait Lanes: Simd<f32s = f32x8> {}
impl<S: Simd<f32s = f32x8>> Lanes for S {}

/// A computation written once for every instruction set. Implementations are
/// `#[inline(always)]` down to the arithmetic, so that it is compiled for the set that is chosen.
pub(super) trait Kernel {
    type Output;
    fn run<S: Lanes>(self, simd: S) -> Self::Output;
}

/// Runs `kernel` on the best instruction set of this machine.
#[inline]
pub(super) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = pulp::x86::V3::try_new() {
        return avx2.vectorize(
            #[inline(always)]
            || kernel.run(avx2),
        );
    }
    portable(kernel)
}

/// Runs `kernel` on plain floats.
#[inline]
pub(super) fn portable<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Scalar256b)
}
