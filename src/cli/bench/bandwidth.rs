//! The ceiling of a pass, measured beside the runs.

use std::{hint::black_box, time::Instant};

use crate::kernels::Memory;

/// Readings, of which the best counts.
const ROUNDS: usize = 5;

/// Bytes a second that `threads` threads read together, or as many as there are cores: the best of a few
/// readings.
pub(super) fn read_bandwidth(threads: usize) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(cores);
    let memory = Memory::default();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        black_box(black_box(&memory).read(threads));
        best = best.min(begin.elapsed().as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^53")]
    let bytes = memory.bytes() as f64;
    bytes / best
}
