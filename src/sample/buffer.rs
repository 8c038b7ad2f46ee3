//! Room for a row, kept for the next one.

use std::{
    cell::Cell,
    fmt,
    ops::{Deref, DerefMut},
    thread::LocalKey,
};

/// Values of a row in memory that the thread uses again.
///
/// A vocabulary is so large that allocators give its memory back to the system and ask for it again, and
/// the first touch of every page then costs more than all that is computed of the row.
pub(super) struct Buffer<S: Kept>(Vec<S>);

/// What a thread keeps the room of one row for.
pub(super) trait Kept: Copy + fmt::Debug + 'static {
    fn spare() -> &'static LocalKey<Cell<Vec<Self>>>;
}

thread_local! {
    static LOGITS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    static SCORES: Cell<Vec<f64>> = const { Cell::new(Vec::new()) };
}

impl Kept for f32 {
    fn spare() -> &'static LocalKey<Cell<Vec<Self>>> {
        &LOGITS
    }
}

impl Kept for f64 {
    fn spare() -> &'static LocalKey<Cell<Vec<Self>>> {
        &SCORES
    }
}

impl<S: Kept> FromIterator<S> for Buffer<S> {
    fn from_iter<I: IntoIterator<Item = S>>(values: I) -> Self {
        let mut room = S::spare().take();
        room.clear();
        room.extend(values);
        Self(room)
    }
}

impl<S: Kept> From<&[S]> for Buffer<S> {
    fn from(values: &[S]) -> Self {
        values.iter().copied().collect()
    }
}

impl<S: Kept> Drop for Buffer<S> {
    fn drop(&mut self) {
        let room = std::mem::take(&mut self.0);
        let larger = |spare: &Cell<Vec<S>>| {
            let kept = spare.take();
            spare.set(if kept.capacity() > room.capacity() {
                kept
            } else {
                room
            });
        };
        // A thread that ends keeps nothing.
        let _ = S::spare().try_with(larger);
    }
}

impl<S: Kept> Deref for Buffer<S> {
    type Target = [S];

    fn deref(&self) -> &[S] {
        &self.0
    }
}

impl<S: Kept> DerefMut for Buffer<S> {
    fn deref_mut(&mut self) -> &mut [S] {
        &mut self.0
    }
}

impl<S: Kept> Clone for Buffer<S> {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<S: Kept> fmt::Debug for Buffer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_room_is_used_again() {
        let large: Buffer<f32> = (0..1000u16).map(f32::from).collect();
        let place = large.as_ptr();
        let small = Buffer::from(&large[..3]);
        drop(large);
        drop(small);
        let again: Buffer<f32> = [1.0, 2.0].into_iter().collect();
        assert_eq!((again.as_ptr(), &again[..]), (place, &[1.0, 2.0][..]));
        assert_eq!(&again.clone()[..], &again[..]);
    }
}
