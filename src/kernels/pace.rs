//! Whether more threads are faster, found out while they run.

/// Runs on more threads between two on one, where one was faster last.
const RETRY: u32 = 32;

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
/// cores, because one that waits is not there when its turn comes. One is tried when all have become
/// slow, kept while it is faster, and all are tried again now and then.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// The best on all threads.
    best: Option<f64>,
    /// Lately.
    all: Option<f64>,
    one: Option<f64>,
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
        let lately = match width {
            Width::One => &mut self.one,
            Width::All => {
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

    /// The widths of `runs` runs that take so long on all threads and on one.
    fn widths(pace: &mut Pace, runs: usize, all: f64, one: f64) -> Vec<Width> {
        let run = |_| {
            let width = pace.next();
            pace.took(width, if width == Width::All { all } else { one });
            width
        };
        (0..runs).map(run).collect()
    }

    #[test]
    fn one_thread_is_not_tried_while_all_are_as_fast_as_ever() {
        let widths = widths(&mut Pace::default(), 500, 1.0, 0.1);
        assert!(widths.iter().all(|width| *width == Width::All));
    }

    #[test]
    fn one_thread_is_kept_while_it_is_faster_and_all_come_back() {
        let mut pace = Pace::default();
        widths(&mut pace, 10, 1.0, 1.5);
        let busy = widths(&mut pace, 320, 4.0, 2.0);
        let all = busy.iter().filter(|width| **width == Width::All).count();
        assert!((9..16).contains(&all), "{all}");
        let quiet = widths(&mut pace, 400, 1.0, 1.5);
        let one = quiet.iter().filter(|width| **width == Width::One).count();
        assert!(one < 200, "{one}");
        let after = widths(&mut pace, 200, 1.0, 1.5);
        assert!(after.iter().all(|width| *width == Width::All));
    }

    #[test]
    fn slow_runs_that_one_thread_does_not_mend_stay_on_all() {
        let mut pace = Pace::default();
        widths(&mut pace, 10, 1.0, 9.0);
        let slow = widths(&mut pace, 320, 3.0, 9.0);
        let one = slow.iter().filter(|width| **width == Width::One).count();
        assert!(one <= 11, "{one}");
    }
}
