//! Signs of life for what takes longer than a second: on a terminal only.

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Nothing is shown before this time.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Shows that something is going on, from a second after its start until it is dropped.
#[derive(Debug)]
pub(super) struct Busy {
    job: Option<(Sender<()>, JoinHandle<()>)>,
    parts: Arc<[AtomicUsize; 2]>,
}

impl Busy {
    /// Starts to wait; `what` is shown with the time it has taken.
    pub(super) fn start(what: &str) -> Self {
        let parts = Arc::new([const { AtomicUsize::new(0) }; 2]);
        if !std::io::stderr().is_terminal() {
            return Self { job: None, parts };
        }
        let (what, seen) = (what.to_owned(), Arc::clone(&parts));
        let (done, waiting) = channel::<()>();
        let show = move || {
            if waiting.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            while waiting.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let [done, all] = [&seen[0], &seen[1]].map(|part| part.load(Ordering::Relaxed));
                bar.set_message(match all {
                    0 => what.clone(),
                    all => format!("{what} {done}/{all}"),
                });
                bar.tick();
            }
            bar.finish_and_clear();
        };
        Self {
            job: Some((done, std::thread::spawn(show))),
            parts,
        }
    }

    /// Shows `done` of `all` beside the words.
    pub(super) fn reached(&self, done: usize, all: usize) {
        self.parts[0].store(done, Ordering::Relaxed);
        self.parts[1].store(all, Ordering::Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((done, shown)) = self.job.take() {
            drop(done);
            // Whatever becomes of a progress line, the work goes on.
            let _ = shown.join();
        }
    }
}
