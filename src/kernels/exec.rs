//! Serial or parallel.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, prelude::*};

use super::pace::{Pace, Width};

/// Multiplications below which a call stays on its thread.
const GRAIN: usize = 1 << 17;

/// Where a kernel may run. The bits of its result do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exec {
    /// On the calling thread.
    Serial,
    /// On the current rayon pool, where the work is worth it.
    Parallel,
}

impl Exec {
    /// Calls `each` with the index and the values of every `size` values of `out`; `work` is the
    /// number of multiplications of all calls together.
    pub(super) fn chunks<F>(self, out: &mut [f32], size: usize, work: usize, each: F)
    where
        F: Fn(usize, &mut [f32]) + Send + Sync,
    {
        if self.parallel(work) {
            out.par_chunks_mut(size)
                .enumerate()
                .for_each(|(i, chunk)| each(i, chunk));
        } else {
            for (i, chunk) in out.chunks_mut(size).enumerate() {
                each(i, chunk);
            }
        }
    }

    pub(super) fn parallel(self, work: usize) -> bool {
        self == Self::Parallel && work >= GRAIN
    }
}

/// The threads of a model.
#[derive(Debug)]
pub struct Threads {
    pool: Option<ThreadPool>,
    serial: bool,
    /// By the amount of work.
    paces: Mutex<Vec<Pace>>,
}

impl Threads {
    /// `count` threads of its own (one is the caller's), or rayon's shared pool.
    ///
    /// # Errors
    /// If the system cannot start them.
    pub fn new(count: Option<usize>) -> Result<Self, ThreadPoolBuildError> {
        let own = count.filter(|count| *count > 1);
        let pool = own.map(|count| ThreadPoolBuilder::new().num_threads(count).build());
        Ok(Self {
            pool: pool.transpose()?,
            serial: count.is_some_and(|count| count < 2),
            paces: Mutex::new(vec![Pace::default(); 8 * usize::BITS as usize]),
        })
    }

    /// Runs `pass`, which makes about `work` multiplications: on the calling thread if it is short, or
    /// if that is faster because others compete for the cores.
    pub fn run<T: Send>(&self, work: usize, pass: impl FnOnce(Exec) -> T + Send) -> T {
        if self.serial || work < 8 * GRAIN {
            return pass(Exec::Serial);
        }
        let octave = work.ilog2();
        // Its four leading bits: passes of so many rows.
        let kind = 8 * octave as usize + (work >> (octave - 3) & 7);
        let lock = || self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let width = lock()[kind].next();
        let begin = Instant::now();
        let result = match (width, &self.pool) {
            (Width::One, _) => pass(Exec::Serial),
            (Width::All, Some(pool)) => pool.install(|| pass(Exec::Parallel)),
            (Width::All, None) => rayon::scope(|_| pass(Exec::Parallel)),
        };
        lock()[kind].took(width, begin.elapsed().as_secs_f64());
        result
    }
}
