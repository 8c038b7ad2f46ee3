//! How fast memory can be read: the ceiling of a pass, which streams every weight once.

use std::{hint::black_box, time::Instant};

/// Bytes that a thread reads, more than its caches hold.
const BYTES: usize = 96 << 20;
/// Readings, of which the best counts.
const ROUNDS: usize = 5;
/// Sums that go on at once, so that no addition waits for the one before.
const LANES: usize = 16;

/// Bytes a second that `threads` threads read together: the best of a few readings.
pub(super) fn read_bandwidth(threads: usize) -> f64 {
    let words = BYTES / size_of::<u64>();
    let memory: Vec<Vec<u64>> = (0..threads)
        .map(|seed| vec![seed as u64 + 1; words])
        .collect();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for part in &memory {
                scope.spawn(|| black_box(sum(black_box(part))));
            }
        });
        best = best.min(begin.elapsed().as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^53")]
    let bytes = (threads * BYTES) as f64;
    bytes / best
}

fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; LANES];
    let (chunks, rest) = words.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    let all = lanes.iter().chain(rest);
    all.fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..1003).collect();
        assert_eq!(sum(&words), 1003 * 1002 / 2);
    }
}
