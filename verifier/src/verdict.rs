//! What a test says in the end.

use std::fmt;

/// The verdict on an engine's law.
///
/// "Not rejected" alone is no verdict: a test of ten samples rejects nothing. An engine passes if it is not
/// rejected by a test that would have seen a deviation of the size asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not rejected, and the test would have seen what it was asked to see.
    Pass,
    /// Rejected.
    Fail,
    /// Not rejected, but too weak a test to say so: more samples are needed.
    Undecided,
}

impl Verdict {
    /// The verdict of a test that rejected or not, and had power enough or not.
    #[must_use]
    pub fn of(rejected: bool, powerful: bool) -> Self {
        match (rejected, powerful) {
            (true, _) => Self::Fail,
            (false, true) => Self::Pass,
            (false, false) => Self::Undecided,
        }
    }

    /// Exit status of a program that prints it: 0, 1, 3.
    #[must_use]
    pub fn exit(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Undecided => 3,
        }
    }

    /// `PASS`, `FAIL` or `UNDECIDED`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Undecided => "UNDECIDED",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
