//! What is printed.

use std::fmt;

use serde_json::{Map, Value, json};

use super::Failure;
use crate::{
    judge::{Judgement, Outcome, POWER, Settings},
    power::{PIT, PIT_ALPHA, PIT_GROSS, PIT_ROWS, rows_needed},
    verdict::Verdict,
};

/// A judgement with what it was made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The verdict, which decides the exit status.
    pub verdict: Verdict,
    command: &'static str,
    n: Vec<usize>,
    title: String,
    judgement: Judgement,
    settings: Settings,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(
        command: &'static str,
        n: Vec<usize>,
        title: String,
        judgement: Judgement,
        settings: Settings,
    ) -> Self {
        Self {
            verdict: judgement.verdict,
            command,
            n,
            title,
            judgement,
            settings,
            notes: Vec::new(),
        }
    }

    pub(super) fn with(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// One JSON object in one line. A statistic that is infinite, after an impossible sample, is null.
    pub(super) fn json(&self) -> Result<String, Failure> {
        let tests = serde_json::to_value(&self.judgement.tests);
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("command", json!(self.command));
        put("verdict", json!(self.verdict.name()));
        put("alpha", json!(self.settings.alpha));
        put("seed", json!(self.settings.seed));
        put("samples", json!(self.n));
        put("tests", tests.map_err(|e| Failure(e.to_string()))?);
        if let Some(excluded) = self.judgement.excluded_tv {
            put("power", json!(POWER));
            put("excluded_tv", json!(excluded));
            put("pooled", json!(self.judgement.pooled));
            put("tv", json!(self.settings.tv));
        } else {
            let row = |m: &crate::power::PitPower| json!({"broken": m.broken, "power": m.rejected});
            put("rows_needed", json!(rows_needed(self.settings.alpha)));
            put("power_alpha", json!(PIT_ALPHA));
            put("power_rows", json!(PIT_ROWS));
            put("power_table", PIT.iter().map(row).collect());
        }
        put("notes", json!(self.notes));
        serde_json::to_string(&object).map_err(|e| Failure(e.to_string()))
    }

    fn power(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(excluded), Some(pooled)) = (self.judgement.excluded_tv, self.judgement.pooled)
        {
            let limit = self.settings.tv;
            writeln!(
                f,
                "smallest total variation excluded at power {POWER}: {excluded:.4} (of it {pooled:.4} inside pools); to pass: {limit} at most"
            )?;
            return Ok(());
        }
        writeln!(f, "power at alpha {PIT_ALPHA:e}, by broken engine and rows")?;
        write!(f, "{:<36}", "")?;
        for rows in PIT_ROWS {
            write!(f, "{rows:>8}")?;
        }
        writeln!(f)?;
        for row in PIT {
            write!(f, "{:<36}", row.broken)?;
            for power in row.rejected {
                write!(f, "{power:>8.3}")?;
            }
            writeln!(f)?;
        }
        match rows_needed(self.settings.alpha) {
            Some(rows) => writeln!(
                f,
                "to pass: {rows} rows at least, which see the first {PIT_GROSS} of these"
            ),
            None => writeln!(
                f,
                "to pass: alpha {PIT_ALPHA:e} at least, or this table says nothing"
            ),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.command, self.title)?;
        writeln!(
            f,
            "{:<18}{:>12}{:>7}{:>12}{:>12}",
            "test", "statistic", "dof", "p", "Holm"
        )?;
        for test in &self.judgement.tests {
            line(f, test)?;
        }
        self.power(f)?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        write!(f, "{} (alpha {:e})", self.verdict, self.settings.alpha)
    }
}

fn line(f: &mut fmt::Formatter<'_>, test: &Outcome) -> fmt::Result {
    let dof = test.dof.map_or_else(|| "-".into(), |dof| dof.to_string());
    let holm = test.holm.map_or_else(|| "-".into(), |p| format!("{p:.3e}"));
    write!(
        f,
        "{:<18}{:>12.3}{dof:>7}{:>12.3e}{holm:>12}",
        test.test, test.statistic, test.p_value
    )?;
    if let (Some(draws), Some(resolution)) = (test.draws, test.resolution) {
        write!(f, "  {draws} draws, resolution {resolution:.1e}")?;
        if test.holm.is_none() {
            write!(f, ": too coarse to count")?;
        }
    }
    if test.test == "e-process" {
        write!(f, "  statistic: ln of the largest evidence")?;
    }
    writeln!(f)
}
