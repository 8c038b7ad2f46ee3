//! Philox4x32-10: a keyed bijection on 128-bit counters, used as a random function.
//!
//! Salmon, Moraes, Dror, Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3* (SC 2011). There is
//! no state: block `c` under key `k` is a pure function, so any draw can be asked for at any time,
//! in any order, again. Changing it changes every seeded text, hence is a breaking change; the test
//! vectors below and in [`super::draws`] are the guard.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The block of `counter` under `key`.
#[inline]
pub(super) fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let (high0, low0) = product(MULTIPLIERS[0], counter[0]);
        let (high1, low1) = product(MULTIPLIERS[1], counter[2]);
        counter = [
            high1 ^ counter[1] ^ key[0],
            low1,
            high0 ^ counter[3] ^ key[1],
            low0,
        ];
        key = next(key);
    }
    counter
}

/// The key of the next round.
#[inline]
fn next(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])]
}

/// The keys of the rounds, each word in 64 bits.
pub(super) type Keys = [[u64; 2]; ROUNDS];

/// The keys of the rounds that begin with `key`.
pub(super) fn keys(mut key: [u32; 2]) -> Keys {
    [(); ROUNDS].map(|()| {
        let now = key.map(u64::from);
        key = next(key);
        now
    })
}

/// Words 1 and 3 of `N` blocks side by side: block `i` has word 1 in the lower half of number `i` and
/// word 3 in its upper half. The first words of the counters ascend from that of `counter`.
///
/// Only the low half of each 64 bits counts in a round, which is what a multiplication takes; the
/// upper halves are left as they come.
#[inline(always)]
pub(super) fn odd_words<const N: usize>(counter: [u32; 4], keys: &Keys) -> [u64; N] {
    let [first, second, third, fourth] = counter;
    let mut a = [u64::from(first); N];
    for (a, i) in a.iter_mut().zip(0..) {
        *a += i;
    }
    let mut b = [u64::from(second); N];
    let mut c = [u64::from(third); N];
    let mut d = [u64::from(fourth); N];
    let [most @ .., _] = keys;
    for [first, second] in most {
        for i in 0..N {
            let even = u64::from(MULTIPLIERS[0]) * (a[i] & LOW);
            let odd = u64::from(MULTIPLIERS[1]) * (c[i] & LOW);
            a[i] = (odd >> 32) ^ b[i] ^ first;
            b[i] = odd;
            c[i] = (even >> 32) ^ d[i] ^ second;
            d[i] = even;
        }
    }
    // The last round makes these two words of nothing but the products.
    let mut words = [0; N];
    for i in 0..N {
        let one = u64::from(MULTIPLIERS[1]) * (c[i] & LOW);
        let three = u64::from(MULTIPLIERS[0]) * (a[i] & LOW);
        words[i] = (one & LOW) | three << 32;
    }
    words
}

/// The low half of 64 bits.
const LOW: u64 = 0xFFFF_FFFF;

/// High and low word of `a * b`.
#[inline]
fn product(a: u32, b: u32) -> (u32, u32) {
    split(u64::from(a) * u64::from(b))
}

/// High and low word of `x`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "each half is taken on purpose"
)]
pub(super) fn split(x: u64) -> (u32, u32) {
    ((x >> 32) as u32, x as u32)
}

#[cfg(test)]
mod tests {
    use super::{LOW, keys, odd_words, philox};

    /// The known answers published with the paper's reference implementation (Random123).
    #[test]
    fn published_known_answers() {
        let all = u32::MAX;
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8],
            ),
            (
                [all; 4],
                [all; 2],
                [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD],
            ),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ];
        for (counter, key, answer) in cases {
            assert_eq!(
                philox(counter, key),
                answer,
                "counter {counter:x?}, key {key:x?}"
            );
        }
    }

    #[test]
    fn words_side_by_side_are_those_of_the_blocks() {
        let (counter, key) = ([u32::MAX - 2, 7, u32::MAX, 9], [3, u32::MAX]);
        let words = odd_words::<8>(counter, &keys(key));
        for (i, word) in (0..).zip(words) {
            let [first, rest @ ..] = counter;
            let [a, b, c] = rest;
            let alone = philox([first.wrapping_add(i), a, b, c], key);
            assert_eq!(
                [word & LOW, word >> 32],
                [alone[1], alone[3]].map(u64::from)
            );
        }
    }
}
