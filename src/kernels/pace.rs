//! Whether more threads are faster, found out while they run.

/// Runs on more threads between two on one, where one was faster last.
const RETRY: u32 = 64;

/// Runs in a row on one that had a core to itself after which all are tried.
const ALONE: u32 = 16;

/// The share of its time for which a thread is on a core that it has to itself.
const FREE: f64 = 0.85;

/// How much slower than the best a run on more threads has to be before one is tried.
const SUSPECT: f64 = 1.5;

/// What the best grows by at every run, so that it follows a context that grows.
const DRIFT: f64 = 1.01;

/// How a run is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// On the calling thread.
    One,
    /// On all.
    All,
}

/// Seconds that runs of one kind of work took.
///
/// Threads that wait for each other at every layer are slower than one where others compete for the
/// cores, because one that waits is not there when its turn comes. One is tried when all have become slow or
/// had to wait for a core, and kept while it is faster; all are tried again when it has a core to itself, and
/// now and then.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// The best on all threads.
    best: Option<f64>,
    /// Lately.
    all: Option<f64>,
    one: Option<f64>,
    /// Whether the last on all had to wait for a core.
    crowded: bool,
    /// Runs on one, lately and in a row, that had not.
    alone: u32,
    since: u32,
}

impl Pace {
    /// How to do the next run.
    pub(super) fn next(&mut self) -> Width {
        let (Some(best), Some(all)) = (self.best, self.all) else {
            return Width::All;
        };
        self.since += 1;
        let width = match self.one {
            Some(one) if one < all => Width::One,
            Some(_) => Width::All,
            None if self.crowded || all > SUSPECT * best => Width::One,
            None => Width::All,
        };
        let free = width == Width::One && self.alone >= ALONE;
        if self.since < RETRY && !free {
            return width;
        }
        // What is forgotten is measured anew, so that nothing is left for what once was.
        if width == Width::All || free {
            self.one = None;
        }
        if free {
            self.all = None;
        }
        (self.since, self.alone) = (0, 0);
        Width::All
    }

    /// Takes what a run has taken, and for how much of it its thread was on a core.
    pub(super) fn took(&mut self, width: Width, seconds: f64, on_core: f64) {
        let free = on_core > FREE * seconds;
        let lately = match width {
            Width::One => {
                self.alone = if free { self.alone + 1 } else { 0 };
                &mut self.one
            }
            Width::All => {
                self.crowded = !free;
                let best = self.best.unwrap_or(f64::INFINITY);
                self.best = Some((DRIFT * best).min(seconds));
                &mut self.all
            }
        };
        *lately = Some(lately.map_or(seconds, |before| 0.5 * (before + seconds)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and the share on a core of a run on all, and of one on one.
    type Times = [(f64, f64); 2];

    const QUIET: Times = [(1.0, 1.0), (1.5, 1.0)];
    const BUSY: Times = [(4.0, 0.4), (2.0, 0.5)];

    /// The runs of `runs` that were on one.
    fn ones(pace: &mut Pace, runs: usize, [all, one]: Times) -> usize {
        let run = |_: &usize| {
            let width = pace.next();
            let (seconds, share) = if width == Width::All { all } else { one };
            pace.took(width, seconds, share * seconds);
            width == Width::One
        };
        (0..runs).filter(run).count()
    }

    #[test]
    fn one_thread_is_not_tried_while_all_are_as_fast_as_ever() {
        assert_eq!(ones(&mut Pace::default(), 500, [(1.0, 1.0), (0.1, 1.0)]), 0);
    }

    #[test]
    fn one_thread_is_kept_from_the_start_where_others_have_the_cores() {
        assert_eq!(ones(&mut Pace::default(), 64, BUSY), 63);
    }

    #[test]
    fn all_come_back_when_the_cores_are_free() {
        let mut pace = Pace::default();
        assert_eq!(ones(&mut pace, 10, QUIET), 0);
        let busy = ones(&mut pace, 320, BUSY);
        assert!((310..320).contains(&busy), "{busy}");
        let quiet = ones(&mut pace, 400, QUIET);
        assert!(quiet <= 20, "{quiet}");
    }

    #[test]
    fn a_core_that_others_have_is_found_by_the_time_that_all_take() {
        let mut pace = Pace::default();
        ones(&mut pace, 10, QUIET);
        let busy = ones(&mut pace, 320, [(4.0, 1.0), (2.0, 0.5)]);
        assert!(busy > 300, "{busy}");
    }

    #[test]
    fn slow_runs_that_one_thread_does_not_mend_stay_on_all() {
        let mut pace = Pace::default();
        ones(&mut pace, 10, QUIET);
        let slow = ones(&mut pace, 320, [(3.0, 0.5), (9.0, 0.5)]);
        assert!(slow <= 6, "{slow}");
    }
}
