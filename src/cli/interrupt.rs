//! Ctrl-C for work that can stop at a good moment.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C (or the signal to terminate) asks for the end; asked twice, the program ends at
/// once.
pub(super) fn listen() -> Result<()> {
    static LISTENS: OnceLock<Option<String>> = OnceLock::new();
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    let failed = LISTENS.get_or_init(|| {
        let set = ctrlc::set_handler(handler);
        set.err().map(|error| error.to_string())
    });
    match failed {
        None => Ok(()),
        Some(error) => Err(anyhow::anyhow!(error.clone())).context("Ctrl-C cannot be listened to"),
    }
}

/// Whether the end was asked for.
pub(super) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
