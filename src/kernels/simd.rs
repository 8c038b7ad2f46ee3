//! Choosing the instruction set at run time.

/// Arithmetic on eight lanes of `f32`, each rounded on its own.
pub(super) trait Lanes: Copy {
    type Eight: Copy;
    fn load(self, lanes: &[f32; 8]) -> Self::Eight;
    fn store(self, lanes: Self::Eight) -> [f32; 8];
    fn add(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    fn mul(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
}

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
    if let Some(avx2) = avx2::Avx2::detect() {
        return avx2.run(kernel);
    }
    portable(kernel)
}

/// Runs `kernel` on plain floats.
#[inline]
pub(super) fn portable<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Portable)
}

#[derive(Clone, Copy, Debug)]
struct Portable;

impl Lanes for Portable {
    type Eight = [f32; 8];

    #[inline(always)]
    fn load(self, lanes: &[f32; 8]) -> [f32; 8] {
        *lanes
    }

    #[inline(always)]
    fn store(self, lanes: [f32; 8]) -> [f32; 8] {
        lanes
    }

    #[inline(always)]
    fn add(self, mut a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
        a
    }

    #[inline(always)]
    fn mul(self, mut a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        for (a, b) in a.iter_mut().zip(b) {
            *a *= b;
        }
        a
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::__m256;

    use pulp::{cast, x86::V3};

    use super::{Kernel, Lanes};

    #[derive(Clone, Copy, Debug)]
    pub(super) struct Avx2(V3);

    impl Avx2 {
        #[inline]
        pub(super) fn detect() -> Option<Self> {
            V3::try_new().map(Self)
        }

        #[inline]
        pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
            self.0.vectorize(
                #[inline(always)]
                || kernel.run(self),
            )
        }
    }

    impl Lanes for Avx2 {
        type Eight = __m256;

        #[inline(always)]
        fn load(self, lanes: &[f32; 8]) -> __m256 {
            let [a, b, c, d, e, f, g, h] = *lanes;
            self.0.avx._mm256_setr_ps(a, b, c, d, e, f, g, h)
        }

        #[inline(always)]
        fn store(self, lanes: __m256) -> [f32; 8] {
            cast(lanes)
        }

        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            self.0.avx._mm256_add_ps(a, b)
        }

        #[inline(always)]
        fn mul(self, a: __m256, b: __m256) -> __m256 {
            self.0.avx._mm256_mul_ps(a, b)
        }
    }
}
