//! Wall time by stage.

use std::time::Duration;

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// A stage whose time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Passes over the prompt.
    Prefill,
    /// Guessing.
    Draft,
    /// The target's pass over all rows.
    Verify,
    /// Deciding which drafts survive.
    Accept,
    /// Cache, tokens, text, stops.
    Commit,
}

/// Wall seconds of the passes that a choice took part in; a shared pass counts in full for each of
/// its sequences. `other` is what is left of `total`, the time from admission to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    stages: [f64; 5],
    total: f64,
}

impl Timing {
    /// Adds `time` to `stage`.
    pub fn add(&mut self, stage: Stage, time: Duration) {
        self.stages[stage as usize] += time.as_secs_f64();
    }

    /// Seconds of `stage`.
    #[must_use]
    pub fn of(&self, stage: Stage) -> f64 {
        self.stages[stage as usize]
    }

    /// Sets the time from admission to the end.
    pub fn finish(&mut self, total: Duration) {
        self.total = total.as_secs_f64();
    }

    /// Seconds from admission to the end.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.total
    }
}

impl Serialize for Timing {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let other = self.total - self.stages.iter().sum::<f64>();
        let mut out = to.serialize_struct("timing_s", 7)?;
        out.serialize_field("prefill", &self.of(Stage::Prefill))?;
        out.serialize_field("draft", &self.of(Stage::Draft))?;
        out.serialize_field("verify", &self.of(Stage::Verify))?;
        out.serialize_field("accept", &self.of(Stage::Accept))?;
        out.serialize_field("commit", &self.of(Stage::Commit))?;
        out.serialize_field("other", &other.max(0.0))?;
        out.serialize_field("total", &self.total)?;
        out.end()
    }
}
