//! Libraries that panic on what a file makes them do: a regular expression that backtracks without
//! end, an id that a vocabulary does not have.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread will become an error: a panic hook need not report it.
#[must_use]
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// Runs `work`, a call of a library that leaves nothing half done behind; a panic becomes its
/// message.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outer = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    done.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the library broke down").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(guarded(is_guarded), Ok(true));
        let index = std::hint::black_box(7);
        let broken = guarded(|| [1, 2][index]).unwrap_err();
        assert!(broken.contains("index is 7"), "{broken}");
        assert!(!is_guarded());
    }
}
