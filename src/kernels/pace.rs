//! Whether more threads are faster, found out while they run.

/// Runs on more threads between two on one, where one was faster last.
const RETRY: u32 = 64;

/// Runs on more threads before one is tried for comparison, the first of which is a slow start.
const FIRST: u32 = 2;

/// Seconds of a run above which none is spent on comparing.
const LONG: f64 = 0.05;

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
/// cores, because one that waits is not there when its turn comes. One is tried at the start, and when all
/// have become slow, kept while it is faster, and all are tried again now and then.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// The best on all threads.
    best: Option<f64>,
    /// Lately.
    all: Option<f64>,
    one: Option<f64>,
    /// Runs on all, the first few.
    first: u32,
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
            None if all > SUSPECT * best => Width::One,
            None if self.first == FIRST && all < LONG => Width::One,
            None => Width::All,
        };
        if self.since < RETRY {
            return width;
        }
        self.since = 0;
        // What one took is forgotten, so that all are not left for what once was.
        if width == Width::All {
            self.one = None;
        }
        Width::All
    }

    /// Takes what a run has taken.
    pub(super) fn took(&mut self, width: Width, seconds: f64) {
        let mean = |before: Option<f64>| before.map_or(seconds, |before| 0.5 * (before + seconds));
        match width {
            Width::One => self.one = Some(mean(self.one)),
            Width::All => {
                let best = (DRIFT * self.best.unwrap_or(f64::INFINITY)).min(seconds);
                self.best = Some(best);
                self.all = Some(if self.first < FIRST {
                    best
                } else {
                    mean(self.all)
                });
                self.first = FIRST.min(self.first) + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The widths of `runs` runs that take so long on all threads and on one.
    fn widths(pace: &mut Pace, runs: usize, all: f64, one: f64) -> Vec<Width> {
        let run = |_| {
            let width = pace.next();
            pace.took(width, if width == Width::All { all } else { one });
            width
        };
        (0..runs).map(run).collect()
    }

    fn ones(widths: &[Width]) -> usize {
        widths.iter().filter(|width| **width == Width::One).count()
    }

    #[test]
    fn one_thread_is_tried_once_while_all_are_as_fast_as_ever() {
        let mut pace = Pace::default();
        pace.took(pace.clone().next(), 0.03);
        assert_eq!(ones(&widths(&mut pace, 500, 0.01, 0.02)), 1);
        let long = widths(&mut Pace::default(), 500, 1.0, 0.1);
        assert_eq!(ones(&long), 0);
    }

    #[test]
    fn one_thread_is_kept_from_the_start_where_it_is_faster() {
        let busy = widths(&mut Pace::default(), 64, 0.03, 0.006);
        assert!(ones(&busy) >= 60);
    }

    #[test]
    fn one_thread_is_kept_while_it_is_faster_and_all_come_back() {
        let mut pace = Pace::default();
        widths(&mut pace, 10, 1.0, 1.5);
        let busy = widths(&mut pace, 320, 4.0, 2.0);
        let all = busy.len() - ones(&busy);
        assert!((5..10).contains(&all), "{all}");
        let quiet = widths(&mut pace, 400, 1.0, 1.5);
        assert!(ones(&quiet) < 200, "{}", ones(&quiet));
        let after = widths(&mut pace, 200, 1.0, 1.5);
        assert!(after.iter().all(|width| *width == Width::All));
    }

    #[test]
    fn slow_runs_that_one_thread_does_not_mend_stay_on_all() {
        let mut pace = Pace::default();
        widths(&mut pace, 10, 1.0, 9.0);
        let slow = widths(&mut pace, 320, 3.0, 9.0);
        assert!(ones(&slow) <= 11, "{}", ones(&slow));
    }
}
