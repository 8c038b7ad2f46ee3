//! Choosing the instruction set at run time.

/// Arithmetic on sixteen lanes. Every instruction set gives the same bits.
pub(super) trait Lanes: Copy {
    /// `f32`.
    type Sixteen: Copy;
    /// `i32`.
    type Ints: Copy;
    /// Two `i16` a lane.
    type Pairs: Copy;
    /// Registers hold twice as many sums as with eight lanes a register.
    const WIDE: bool;
    fn splat(self, x: f32) -> Self::Sixteen;
    fn sixteen(self, lanes: &[f32; 16]) -> Self::Sixteen;
    fn lanes(self, lanes: Self::Sixteen) -> [f32; 16];
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Sixteen, b: Self::Sixteen, c: Self::Sixteen) -> Self::Sixteen;
    fn product(self, a: Self::Sixteen, b: Self::Sixteen) -> Self::Sixteen;
    fn plus(self, a: Self::Sixteen, b: Self::Sixteen) -> Self::Sixteen;
    fn signed(self, lanes: &[i8; 16]) -> Self::Sixteen;
    fn unsigned(self, lanes: &[u8; 16]) -> Self::Sixteen;
    fn zero(self) -> Self::Ints;
    /// The same two in every lane.
    fn pair(self, pair: [i16; 2]) -> Self::Pairs;
    /// The four bits from bit `AT` of every word.
    fn nibbles<const AT: i32>(self, words: &[[u16; 2]; 16]) -> Self::Pairs;
    /// The low byte of every word, with its sign.
    fn low_bytes(self, words: &[[u16; 2]; 16]) -> Self::Pairs;
    /// The high byte of every word, with its sign.
    fn high_bytes(self, words: &[[u16; 2]; 16]) -> Self::Pairs;
    /// Both products of each lane added to `c`. The sum must fit.
    fn dot(self, a: Self::Pairs, b: Self::Pairs, c: Self::Ints) -> Self::Ints;
    /// The nearest floats.
    fn floats(self, ints: Self::Ints) -> Self::Sixteen;
    /// IEEE halves.
    fn halves(self, lanes: &[u16; 16]) -> Self::Sixteen;
    /// The upper halves of `f32`.
    fn uppers(self, lanes: &[u16; 16]) -> Self::Sixteen;
    /// Four vectors folded in halves twice: lane `4 * i + j` is the sum of lanes `j`, `j + 4`, `j + 8`
    /// and `j + 12` of vector `i`.
    fn quarter(self, vectors: [Self::Sixteen; 4]) -> Self::Sixteen;
    /// What [`quarter`](Self::quarter) gave folded in halves twice: lane `4 * i + j` is the sum of lanes
    /// `4 * i` to `4 * i + 3` of vector `j`.
    fn quarters(self, vectors: [Self::Sixteen; 4]) -> [f32; 16];
    /// The sum of a vector's lanes, folded in halves.
    #[inline(always)]
    fn sum(self, vector: Self::Sixteen) -> f32 {
        let zero = self.splat(0.0);
        let quarter = self.quarter([vector, zero, zero, zero]);
        self.quarters([quarter, zero, zero, zero])[0]
    }
}

/// A computation written once for every instruction set. Implementations are
/// `#[inline(always)]` down to the arithmetic, so that it is compiled for the set that is chosen.
pub(super) trait Kernel {
    type Output;
    fn run<S: Lanes>(self, simd: S) -> Self::Output;
}

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    /// Plain floats; on aarch64 the compiler makes NEON of them.
    Portable,
}

impl Isa {
    /// The best.
    #[inline]
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = x86::Avx512::detect() {
                return Self::Avx512(avx512);
            }
            if let Some(avx2) = x86::Avx2::detect() {
                return Self::Avx2(avx2);
            }
        }
        Self::Portable
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(x86::Avx2::detect().map(Self::Avx2));
            all.extend(x86::Avx512::detect().map(Self::Avx512));
        }
        all
    }

    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(kernel),
            Self::Portable => kernel.run(Portable),
        }
    }
}

/// Runs `kernel` on the best instruction set of this machine.
#[inline]
pub(super) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    Isa::best().run(kernel)
}

#[derive(Clone, Copy, Debug)]
struct Portable;

#[inline(always)]
fn each<const N: usize>(f: impl Fn(usize) -> f32) -> [f32; N] {
    std::array::from_fn(f)
}

impl Lanes for Portable {
    type Sixteen = [f32; 16];
    type Ints = [i32; 16];
    type Pairs = [[i16; 2]; 16];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }

    #[inline(always)]
    fn sixteen(self, lanes: &[f32; 16]) -> [f32; 16] {
        *lanes
    }

    #[inline(always)]
    fn lanes(self, lanes: [f32; 16]) -> [f32; 16] {
        lanes
    }

    #[inline(always)]
    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        each(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn product(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn plus(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn signed(self, lanes: &[i8; 16]) -> [f32; 16] {
        each(|i| f32::from(lanes[i]))
    }

    #[inline(always)]
    fn unsigned(self, lanes: &[u8; 16]) -> [f32; 16] {
        each(|i| f32::from(lanes[i]))
    }

    #[inline(always)]
    fn zero(self) -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    fn pair(self, pair: [i16; 2]) -> [[i16; 2]; 16] {
        [pair; 16]
    }

    #[inline(always)]
    fn nibbles<const AT: i32>(self, words: &[[u16; 2]; 16]) -> [[i16; 2]; 16] {
        words.map(|pair| pair.map(|word| (word >> AT & 15).cast_signed()))
    }

    #[inline(always)]
    fn low_bytes(self, words: &[[u16; 2]; 16]) -> [[i16; 2]; 16] {
        words.map(|pair| pair.map(|word| word.cast_signed() << 8 >> 8))
    }

    #[inline(always)]
    fn high_bytes(self, words: &[[u16; 2]; 16]) -> [[i16; 2]; 16] {
        words.map(|pair| pair.map(|word| word.cast_signed() >> 8))
    }

    #[inline(always)]
    fn dot(self, a: [[i16; 2]; 16], b: [[i16; 2]; 16], c: [i32; 16]) -> [i32; 16] {
        std::array::from_fn(|i| {
            let [first, second] = [0, 1].map(|j| i32::from(a[i][j]) * i32::from(b[i][j]));
            c[i] + first + second
        })
    }

    #[inline(always)]
    fn floats(self, ints: [i32; 16]) -> [f32; 16] {
        #[expect(clippy::cast_precision_loss, reason = "rounded to the nearest")]
        let floats = ints.map(|int| int as f32);
        floats
    }

    #[inline(always)]
    fn halves(self, lanes: &[u16; 16]) -> [f32; 16] {
        each(|i| super::unpack::half(lanes[i].to_le_bytes()))
    }

    #[inline(always)]
    fn uppers(self, lanes: &[u16; 16]) -> [f32; 16] {
        each(|i| f32::from_bits(u32::from(lanes[i]) << 16))
    }

    #[inline(always)]
    fn quarter(self, v: [[f32; 16]; 4]) -> [f32; 16] {
        each(|i| {
            let (v, j) = (&v[i / 4], i % 4);
            (v[j] + v[j + 8]) + (v[j + 4] + v[j + 12])
        })
    }

    #[inline(always)]
    fn quarters(self, v: [[f32; 16]; 4]) -> [f32; 16] {
        each(|i| {
            let (v, at) = (&v[i % 4], i / 4 * 4);
            (v[at] + v[at + 2]) + (v[at + 1] + v[at + 3])
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m128i, __m256, __m256i, __m512, __m512i};

    use pulp::{
        cast,
        x86::{V3, V4},
    };

    use super::{Kernel, Lanes};

    #[derive(Clone, Copy, Debug)]
    pub(in crate::kernels) struct Avx2(V3);

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

        #[inline(always)]
        fn bytes(self, bytes: u64) -> __m256 {
            let wide = self.0.avx2._mm256_cvtepu8_epi32(cast([bytes, 0]));
            self.0.avx._mm256_cvtepi32_ps(wide)
        }

        #[inline(always)]
        fn signed_bytes(self, bytes: u64) -> __m256 {
            let wide = self.0.avx2._mm256_cvtepi8_epi32(cast([bytes, 0]));
            self.0.avx._mm256_cvtepi32_ps(wide)
        }

        /// As the portable conversion, whose multiplication by 2^112 is exact. What was an infinity or a
        /// NaN is more than any other half then.
        #[inline(always)]
        fn half(self, half: __m128i) -> __m256 {
            let (avx, avx2) = (self.0.avx, self.0.avx2);
            let wide = avx2._mm256_slli_epi32::<13>(avx2._mm256_cvtepi16_epi32(half));
            let body =
                avx2._mm256_and_si256(wide, avx._mm256_set1_epi32(0x8fff_e000_u32.cast_signed()));
            let scale = avx._mm256_set1_ps(f32::from_bits((112 + 127) << 23));
            let value = avx._mm256_mul_ps(cast(body), scale);
            let size = avx2._mm256_and_si256(cast(value), avx._mm256_set1_epi32(0x7fff_ffff));
            let most = avx._mm256_set1_epi32(0x477f_ffff);
            let is_special = avx2._mm256_cmpgt_epi32(size, most);
            let top = avx2._mm256_and_si256(is_special, avx._mm256_set1_epi32(0x7f80_0000));
            avx._mm256_or_ps(value, cast(top))
        }

        #[inline(always)]
        fn upper(self, half: __m128i) -> __m256 {
            let avx2 = self.0.avx2;
            cast(avx2._mm256_slli_epi32::<16>(avx2._mm256_cvtepu16_epi32(half)))
        }

        /// Lanes `j` and `j + 4` of both, added.
        #[inline(always)]
        fn fours(self, a: __m256, b: __m256) -> __m256 {
            let avx = self.0.avx;
            avx._mm256_add_ps(
                avx._mm256_permute2f128_ps::<0x20>(a, b),
                avx._mm256_permute2f128_ps::<0x31>(a, b),
            )
        }

        /// Lanes `j` and `j + 2` of each half of both, added.
        #[inline(always)]
        fn twos(self, a: __m256, b: __m256) -> __m256 {
            let avx = self.0.avx;
            let (a, b) = (cast(a), cast(b));
            avx._mm256_add_ps(
                cast(avx._mm256_unpacklo_pd(a, b)),
                cast(avx._mm256_unpackhi_pd(a, b)),
            )
        }

        /// Pairs of lanes of both, added: those of `a`, then those of `b`, in each half.
        #[inline(always)]
        fn ones(self, a: __m256, b: __m256) -> __m256 {
            let avx = self.0.avx;
            avx._mm256_add_ps(
                avx._mm256_shuffle_ps::<0b10_00_10_00>(a, b),
                avx._mm256_shuffle_ps::<0b11_01_11_01>(a, b),
            )
        }
    }

    impl Lanes for Avx2 {
        type Sixteen = [__m256; 2];
        type Ints = [__m256i; 2];
        type Pairs = [__m256i; 2];
        const WIDE: bool = false;

        #[inline(always)]
        fn splat(self, x: f32) -> [__m256; 2] {
            let x = self.0.avx._mm256_set1_ps(x);
            [x, x]
        }

        #[inline(always)]
        fn sixteen(self, lanes: &[f32; 16]) -> [__m256; 2] {
            cast(*lanes)
        }

        #[inline(always)]
        fn lanes(self, lanes: [__m256; 2]) -> [f32; 16] {
            cast(lanes)
        }

        #[inline(always)]
        fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            let fma = self.0.fma;
            [
                fma._mm256_fmadd_ps(a[0], b[0], c[0]),
                fma._mm256_fmadd_ps(a[1], b[1], c[1]),
            ]
        }

        #[inline(always)]
        fn product(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            let avx = self.0.avx;
            [avx._mm256_mul_ps(a[0], b[0]), avx._mm256_mul_ps(a[1], b[1])]
        }

        #[inline(always)]
        fn plus(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
            let avx = self.0.avx;
            [avx._mm256_add_ps(a[0], b[0]), avx._mm256_add_ps(a[1], b[1])]
        }

        #[inline(always)]
        fn signed(self, lanes: &[i8; 16]) -> [__m256; 2] {
            let [low, high] = cast(*lanes);
            [self.signed_bytes(low), self.signed_bytes(high)]
        }

        #[inline(always)]
        fn unsigned(self, lanes: &[u8; 16]) -> [__m256; 2] {
            let [low, high] = cast(*lanes);
            [self.bytes(low), self.bytes(high)]
        }

        #[inline(always)]
        fn zero(self) -> [__m256i; 2] {
            [self.0.avx._mm256_setzero_si256(); 2]
        }

        #[inline(always)]
        fn pair(self, pair: [i16; 2]) -> [__m256i; 2] {
            [self.0.avx._mm256_set1_epi32(cast(pair)); 2]
        }

        #[inline(always)]
        fn nibbles<const AT: i32>(self, words: &[[u16; 2]; 16]) -> [__m256i; 2] {
            let (avx, avx2) = (self.0.avx, self.0.avx2);
            let mask = avx._mm256_set1_epi16(15);
            let [a, b]: [__m256i; 2] = cast(*words);
            [
                avx2._mm256_and_si256(avx2._mm256_srli_epi16::<AT>(a), mask),
                avx2._mm256_and_si256(avx2._mm256_srli_epi16::<AT>(b), mask),
            ]
        }

        #[inline(always)]
        fn low_bytes(self, words: &[[u16; 2]; 16]) -> [__m256i; 2] {
            let avx2 = self.0.avx2;
            let [a, b]: [__m256i; 2] = cast(*words);
            [
                avx2._mm256_srai_epi16::<8>(avx2._mm256_slli_epi16::<8>(a)),
                avx2._mm256_srai_epi16::<8>(avx2._mm256_slli_epi16::<8>(b)),
            ]
        }

        #[inline(always)]
        fn high_bytes(self, words: &[[u16; 2]; 16]) -> [__m256i; 2] {
            let avx2 = self.0.avx2;
            let [a, b]: [__m256i; 2] = cast(*words);
            [
                avx2._mm256_srai_epi16::<8>(a),
                avx2._mm256_srai_epi16::<8>(b),
            ]
        }

        #[inline(always)]
        fn dot(self, a: [__m256i; 2], b: [__m256i; 2], c: [__m256i; 2]) -> [__m256i; 2] {
            let avx2 = self.0.avx2;
            [
                avx2._mm256_add_epi32(c[0], avx2._mm256_madd_epi16(a[0], b[0])),
                avx2._mm256_add_epi32(c[1], avx2._mm256_madd_epi16(a[1], b[1])),
            ]
        }

        #[inline(always)]
        fn floats(self, ints: [__m256i; 2]) -> [__m256; 2] {
            let avx = self.0.avx;
            [
                avx._mm256_cvtepi32_ps(ints[0]),
                avx._mm256_cvtepi32_ps(ints[1]),
            ]
        }

        #[inline(always)]
        fn halves(self, lanes: &[u16; 16]) -> [__m256; 2] {
            let [low, high] = cast(*lanes);
            [self.half(low), self.half(high)]
        }

        #[inline(always)]
        fn uppers(self, lanes: &[u16; 16]) -> [__m256; 2] {
            let [low, high] = cast(*lanes);
            [self.upper(low), self.upper(high)]
        }

        #[inline(always)]
        fn quarter(self, v: [[__m256; 2]; 4]) -> [__m256; 2] {
            // Lanes `j` and `j + 8` of two vectors.
            let [a, b] = self.plus([v[0][0], v[1][0]], [v[0][1], v[1][1]]);
            let [c, d] = self.plus([v[2][0], v[3][0]], [v[2][1], v[3][1]]);
            [self.fours(a, b), self.fours(c, d)]
        }

        #[inline(always)]
        fn quarters(self, v: [[__m256; 2]; 4]) -> [f32; 16] {
            let [a, b] = [self.twos(v[0][0], v[1][0]), self.twos(v[2][0], v[3][0])];
            let [c, d] = [self.twos(v[0][1], v[1][1]), self.twos(v[2][1], v[3][1])];
            cast([self.ones(a, b), self.ones(c, d)])
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub(in crate::kernels) struct Avx512(V4);

    impl Avx512 {
        #[inline]
        pub(super) fn detect() -> Option<Self> {
            V4::try_new().map(Self)
        }

        #[inline]
        pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
            self.0.vectorize(
                #[inline(always)]
                || kernel.run(self),
            )
        }
    }

    impl Avx512 {
        /// Lanes `j` and `j + 8` of both, added.
        #[inline(always)]
        fn eights(self, a: __m512, b: __m512) -> __m512 {
            let f = self.0.avx512f;
            f._mm512_add_ps(
                f._mm512_shuffle_f32x4::<0b01_00_01_00>(a, b),
                f._mm512_shuffle_f32x4::<0b11_10_11_10>(a, b),
            )
        }

        /// Lanes `j` and `j + 4` of each half of both, added.
        #[inline(always)]
        fn fours(self, a: __m512, b: __m512) -> __m512 {
            let f = self.0.avx512f;
            f._mm512_add_ps(
                f._mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
                f._mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
            )
        }

        /// Lanes `j` and `j + 2` of each quarter of both, added.
        #[inline(always)]
        fn twos(self, a: __m512, b: __m512) -> __m512 {
            let f = self.0.avx512f;
            let (a, b) = (cast(a), cast(b));
            f._mm512_add_ps(
                cast(f._mm512_unpacklo_pd(a, b)),
                cast(f._mm512_unpackhi_pd(a, b)),
            )
        }
    }

    impl Lanes for Avx512 {
        type Sixteen = __m512;
        type Ints = __m512i;
        type Pairs = __m512i;
        const WIDE: bool = true;

        #[inline(always)]
        fn splat(self, x: f32) -> __m512 {
            self.0.avx512f._mm512_set1_ps(x)
        }

        #[inline(always)]
        fn sixteen(self, lanes: &[f32; 16]) -> __m512 {
            cast(*lanes)
        }

        #[inline(always)]
        fn lanes(self, lanes: __m512) -> [f32; 16] {
            cast(lanes)
        }

        #[inline(always)]
        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            self.0.avx512f._mm512_fmadd_ps(a, b, c)
        }

        #[inline(always)]
        fn product(self, a: __m512, b: __m512) -> __m512 {
            self.0.avx512f._mm512_mul_ps(a, b)
        }

        #[inline(always)]
        fn plus(self, a: __m512, b: __m512) -> __m512 {
            self.0.avx512f._mm512_add_ps(a, b)
        }

        #[inline(always)]
        fn signed(self, lanes: &[i8; 16]) -> __m512 {
            let f = self.0.avx512f;
            f._mm512_cvtepi32_ps(f._mm512_cvtepi8_epi32(cast(*lanes)))
        }

        #[inline(always)]
        fn unsigned(self, lanes: &[u8; 16]) -> __m512 {
            let f = self.0.avx512f;
            f._mm512_cvtepi32_ps(f._mm512_cvtepu8_epi32(cast(*lanes)))
        }

        #[inline(always)]
        fn zero(self) -> __m512i {
            self.0.avx512f._mm512_setzero_si512()
        }

        #[inline(always)]
        fn pair(self, pair: [i16; 2]) -> __m512i {
            self.0.avx512f._mm512_set1_epi32(cast(pair))
        }

        #[inline(always)]
        fn nibbles<const AT: i32>(self, words: &[[u16; 2]; 16]) -> __m512i {
            let (f, bw) = (self.0.avx512f, self.0.avx512bw);
            let at = self.0.sse2._mm_cvtsi32_si128(AT);
            let shifted = bw._mm512_srl_epi16(cast(*words), at);
            f._mm512_and_si512(shifted, f._mm512_set1_epi16(15))
        }

        #[inline(always)]
        fn low_bytes(self, words: &[[u16; 2]; 16]) -> __m512i {
            let bw = self.0.avx512bw;
            bw._mm512_srai_epi16::<8>(bw._mm512_slli_epi16::<8>(cast(*words)))
        }

        #[inline(always)]
        fn high_bytes(self, words: &[[u16; 2]; 16]) -> __m512i {
            self.0.avx512bw._mm512_srai_epi16::<8>(cast(*words))
        }

        #[inline(always)]
        fn dot(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            let products = self.0.avx512bw._mm512_madd_epi16(a, b);
            self.0.avx512f._mm512_add_epi32(c, products)
        }

        #[inline(always)]
        fn floats(self, ints: __m512i) -> __m512 {
            self.0.avx512f._mm512_cvtepi32_ps(ints)
        }

        #[inline(always)]
        fn halves(self, lanes: &[u16; 16]) -> __m512 {
            self.0.avx512f._mm512_cvtph_ps(cast::<_, __m256i>(*lanes))
        }

        #[inline(always)]
        fn uppers(self, lanes: &[u16; 16]) -> __m512 {
            let f = self.0.avx512f;
            cast(f._mm512_slli_epi32::<16>(f._mm512_cvtepu16_epi32(cast::<_, __m256i>(*lanes))))
        }

        #[inline(always)]
        fn quarter(self, v: [__m512; 4]) -> __m512 {
            self.fours(self.eights(v[0], v[1]), self.eights(v[2], v[3]))
        }

        #[inline(always)]
        fn quarters(self, v: [__m512; 4]) -> [f32; 16] {
            let f = self.0.avx512f;
            let (a, b) = (self.twos(v[0], v[1]), self.twos(v[2], v[3]));
            cast(f._mm512_add_ps(
                f._mm512_shuffle_ps::<0b10_00_10_00>(a, b),
                f._mm512_shuffle_ps::<0b11_01_11_01>(a, b),
            ))
        }
    }
}
