//! The requests of a run, in order.

use std::path::Path;

use anyhow::{Context, Result};

use super::{error::usage, plan::Plan};
use crate::{
    request::{RequestError, RequestSpec, system_seed},
    sample::derive_line,
};

/// One request to run, or why it cannot be.
#[derive(Debug)]
pub(super) struct Job {
    /// Its id, or the number of its line.
    pub(super) id: String,
    /// What it asks for, with a seed.
    pub(super) spec: Result<RequestSpec, RequestError>,
}

impl Job {
    /// Number of results that are expected.
    pub(super) fn choices(&self) -> usize {
        self.spec.as_ref().map_or(1, |spec| spec.n)
    }
}

/// The requests of the flags, or of their file. Every one gets a seed: its own, else one derived
/// from the seed of the flags and the number of its line, else one from the system.
///
/// # Errors
/// A file that cannot be read, or without a request.
pub(super) fn jobs(plan: &Plan) -> Result<Vec<Job>> {
    if let Some(spec) = &plan.request {
        let mut spec = spec.clone();
        spec.seed.get_or_insert_with(system_seed);
        return Ok(vec![Job {
            id: "1".to_owned(),
            spec: Ok(spec),
        }]);
    }
    let Some(path) = &plan.requests else {
        return usage("--prompt", "missing");
    };
    let jobs = read(path, plan.seed)?;
    if jobs.is_empty() {
        return usage("--requests", format!("{} has no request", path.display()));
    }
    Ok(jobs)
}

fn read(path: &Path, seed: Option<u64>) -> Result<Vec<Job>> {
    let bytes = std::fs::read(path).with_context(|| format!("--requests {}", path.display()))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.filter(|(line, _)| !line.trim_ascii().is_empty());
    Ok(lines
        .map(|(line, number)| job(line, number, seed))
        .collect())
}

fn job(line: &[u8], number: u64, seed: Option<u64>) -> Job {
    let id = RequestSpec::id_of(&String::from_utf8_lossy(line));
    let id = id.unwrap_or_else(|| number.to_string());
    let text = std::str::from_utf8(line).map_err(RequestError::from);
    let spec = text.and_then(RequestSpec::from_line).map(|mut spec| {
        let derived = || seed.map_or_else(system_seed, |seed| derive_line(seed, number));
        spec.seed.get_or_insert_with(derived);
        spec
    });
    Job { id, spec }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8], seed: Option<u64>) -> Vec<Job> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path, seed).unwrap()
    }

    #[test]
    fn lines_are_numbered_from_one_and_blank_ones_count() {
        let text = b"\r\n{\"prompt\":\"x\"}\n\n{\"prompt\":\"x\",\"id\":\"a\",\"seed\":5}\n{\"prompt\":\"\xff\"}";
        let jobs = read_text(text, Some(9));
        let ids: Vec<_> = jobs.iter().map(|job| job.id.as_str()).collect();
        assert_eq!(ids, ["2", "a", "5"]);
        let seed = |job: &Job| job.spec.as_ref().ok().and_then(|spec| spec.seed);
        assert_eq!(seed(&jobs[0]), Some(derive_line(9, 2)));
        assert_eq!(seed(&jobs[1]), Some(5));
        let error = jobs[2].spec.as_ref().expect_err("no text").to_string();
        assert!(error.starts_with("not UTF-8: "), "{error}");
        let latin = read_text(b"{\"id\":\"a\",\"prompt\":\"caf\xe9\"}", None);
        let error = latin[0].spec.as_ref().unwrap_err().to_string();
        assert_eq!(latin[0].id, "a");
        assert!(error.starts_with("not UTF-8: "), "{error}");
        assert!(read_text(b"\n \n", None).is_empty());
        let marked = read_text(b"\xef\xbb\xbf{\"prompt\":\"x\"}", None);
        assert!(marked[0].spec.is_ok(), "a byte order mark is no text");
    }

    #[test]
    fn unseeded_requests_get_different_seeds_below_2_to_53() {
        let jobs = read_text(&b"{\"prompt\":\"x\"}\n".repeat(100), None);
        let seeds: std::collections::BTreeSet<_> = jobs
            .iter()
            .map(|job| job.spec.as_ref().unwrap().seed.unwrap())
            .collect();
        assert_eq!(seeds.len(), 100);
        assert!(seeds.iter().all(|seed| *seed < 1 << 53));
    }
}
