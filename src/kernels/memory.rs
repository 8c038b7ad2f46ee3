//! How fast memory can be read: the ceiling of a pass, which streams every weight once.

use std::{hint::black_box, thread};

/// Far more than caches hold.
const BYTES: usize = 192 << 20;

/// Sums that go on at once, so that no addition waits for the one before.
const LANES: usize = 16;

/// Memory to be read by any number of threads, which is as much whatever their number.
#[derive(Clone, Debug)]
pub struct Memory {
    words: Vec<u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            words: vec![1; BYTES / size_of::<u64>()],
        }
    }
}

impl Memory {
    /// Bytes that are read at a time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// Reads all of it once, each of so many threads an equal part; the sum of its words.
    #[must_use]
    pub fn read(&self, threads: usize) -> u64 {
        let part = self.words.len().div_ceil(threads.max(1)).max(1);
        let mut sums = vec![0; self.words.len().div_ceil(part)];
        thread::scope(|scope| {
            for (sum, words) in sums.iter_mut().zip(self.words.chunks(part)) {
                scope.spawn(move || *sum = added(black_box(words)));
            }
        });
        sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
    }
}

fn added(words: &[u64]) -> u64 {
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
    fn every_word_is_read_once_whatever_the_threads() {
        let memory = Memory {
            words: (0..1003).collect(),
        };
        for threads in [0, 1, 2, 3, 7, 1024] {
            assert_eq!(memory.read(threads), 1003 * 1002 / 2, "{threads}");
        }
        assert_eq!(Memory { words: Vec::new() }.read(2), 0);
    }
}
