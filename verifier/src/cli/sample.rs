//! Samples of sequences.

use std::path::Path;

use serde::Deserialize;

use super::{Failure, lines};

/// A sample line; what else stands in it is the engine's business.
#[derive(Debug, Deserialize)]
struct Line {
    tokens: Vec<u32>,
    finish_reason: Option<String>,
    seed: Option<serde_json::Value>,
}

/// Samples cut to a length.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Line number and tokens.
    pub(super) lines: Vec<(usize, Vec<u32>)>,
    /// The seeds that lines tell.
    pub(super) seeds: Vec<String>,
}

/// Reads samples; of each line the first `length` tokens, whose ids must be below `vocab`.
pub(super) fn read(path: &Path, length: usize, vocab: u64) -> Result<Samples, Failure> {
    let mut samples = Samples::default();
    let count = lines::read(path, |number, mut line: Line| {
        if line.finish_reason.as_deref() == Some("error") {
            let problem = "finish_reason \"error\": the request failed and is no sample; must be another reason";
            return Err(lines::at(path, number, problem));
        }
        line.tokens.truncate(length);
        if let Some(i) = line.tokens.iter().position(|id| u64::from(*id) >= vocab) {
            let problem = format!(
                "tokens[{i}] = {}: must be below vocab, {vocab}",
                line.tokens[i]
            );
            return Err(lines::at(path, number, problem));
        }
        let seed = line.seed.filter(|seed| !seed.is_null());
        samples.seeds.extend(seed.map(|seed| seed.to_string()));
        samples.lines.push((number, line.tokens));
        Ok(())
    })?;
    if count == 0 {
        return Err(lines::of(
            path,
            "no samples: must have a line {\"tokens\":[…]} for each",
        ));
    }
    Ok(samples)
}
