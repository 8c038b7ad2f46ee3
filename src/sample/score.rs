//! Scores as they come: logits, or what bias, penalties and processors made of them.

use std::{
    cmp::Ordering,
    ops::{Add, Mul},
};

use super::buffer::Kept;

/// A logit, or a score before the temperature: finite, or masked.
pub(super) trait Score: Kept + PartialOrd + Add<Output = Self> + Mul<Output = Self> {
    /// 0.
    const ZERO: Self;

    /// Minus infinity, the masked score.
    const MASKED: Self;

    /// The score in 64 bits; minus zero becomes zero, so that the two tie.
    fn wide(self) -> f64;

    /// This less `peak`, to the precision of an `f32`. It never falls where the score rises.
    fn above(self, peak: Self) -> f32;

    /// Ascending, minus zero before zero.
    fn order(self, other: Self) -> Ordering;
}

impl Score for f32 {
    const ZERO: Self = 0.0;
    const MASKED: Self = Self::NEG_INFINITY;

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self) + 0.0
    }

    #[inline(always)]
    fn above(self, peak: Self) -> f32 {
        self - peak
    }

    #[inline]
    fn order(self, other: Self) -> Ordering {
        self.total_cmp(&other)
    }
}

impl Score for f64 {
    const ZERO: Self = 0.0;
    const MASKED: Self = Self::NEG_INFINITY;

    #[inline(always)]
    fn wide(self) -> f64 {
        self + 0.0
    }

    #[inline(always)]
    fn above(self, peak: Self) -> f32 {
        narrow(self - peak)
    }

    #[inline]
    fn order(self, other: Self) -> Ordering {
        self.total_cmp(&other)
    }
}

/// The nearest `f32`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the precision is what its callers ask for"
)]
pub(super) fn narrow(x: f64) -> f32 {
    x as f32
}

/// Scores, of which one at least is not masked, and the temperature that divides them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scores<'a, S> {
    pub(super) values: &'a [S],
    /// Place of the first of the largest.
    pub(super) at: usize,
    pub(super) temperature: f64,
}

impl<S: Score> Scores<'_, S> {
    /// The largest.
    #[inline(always)]
    pub(super) fn peak(&self) -> S {
        self.values[self.at]
    }

    /// A score over the temperature: what a softmax takes the exponential of.
    #[inline(always)]
    pub(super) fn over(&self, z: S) -> f64 {
        // Dividing by 1 changes nothing and takes its time, and no temperature is more common.
        if self.temperature == 1.0 {
            z.wide()
        } else {
            z.wide() / self.temperature
        }
    }
}
