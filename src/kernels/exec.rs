//! Serial or parallel.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use cpu_time::ThreadTime;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

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
    /// Calls `each` with the index and the values of every `size` values of `out`, of which none are
    /// no call; `work` is the number of multiplications of all calls together.
    pub(super) fn chunks<F>(self, out: &mut [f32], size: usize, work: usize, each: F)
    where
        F: Fn(usize, &mut [f32]) + Sync,
    {
        if size == 0 {
            return;
        }
        let threads = self.threads(work);
        let (mut first, mut left) = (0, out);
        let next = || {
            let chunks = left.len().div_ceil(size).div_ceil(threads);
            let taken = left.split_off_mut(..(chunks * size).min(left.len()))?;
            first += chunks;
            (chunks > 0).then_some((first - chunks, taken))
        };
        share_out(threads, next, |(first, taken)| {
            for (i, chunk) in taken.chunks_mut(size).enumerate() {
                each(first + i, chunk);
            }
        });
    }

    /// Threads for so many multiplications.
    pub(super) fn threads(self, work: usize) -> usize {
        if self == Self::Parallel && work >= GRAIN {
            rayon::current_num_threads()
        } else {
            1
        }
    }
}

/// Has as many of `threads` threads as are free `run` what `next` gives, until that is none.
pub(super) fn share_out<T>(
    threads: usize,
    next: impl FnMut() -> Option<T> + Send,
    run: impl Fn(T) + Sync,
) {
    let next = Mutex::new(next);
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner)();
    together(threads, &|| {
        while let Some(taken) = take() {
            run(taken);
        }
    });
}

fn together(threads: usize, run: &(impl Fn() + Sync)) {
    if threads < 2 {
        return run();
    }
    let half = threads / 2;
    rayon::join(|| together(threads - half, run), || together(half, run));
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
        let timed = |exec| {
            let on_core = ThreadTime::now();
            (pass(exec), on_core.elapsed())
        };
        let (result, on_core) = match (width, &self.pool) {
            (Width::One, _) => timed(Exec::Serial),
            (Width::All, Some(pool)) => pool.install(|| timed(Exec::Parallel)),
            (Width::All, None) => rayon::scope(|_| timed(Exec::Parallel)),
        };
        let seconds = begin.elapsed().as_secs_f64();
        lock()[kind].took(width, seconds, on_core.as_secs_f64());
        result
    }
}
