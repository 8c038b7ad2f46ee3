//! The commands: read, judge, report.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use super::{
    Failure, Report,
    args::{GofArgs, PitArgs, TwoSampleArgs},
    law, lines, sample, trace,
};
use crate::{chi2::BadInput, judge};

pub(super) fn gof(args: &GofArgs) -> Result<Report, Failure> {
    let law = law::read(&args.expected)?;
    let samples = sample::read(&args.samples, law.length, law.vocab)?;
    let impossible = law.p.len() - 1;
    let (mut cells, mut notes) = (Vec::with_capacity(samples.lines.len()), Vec::new());
    for (line, tokens) in &samples.lines {
        let cell = law.cells.get(tokens).copied().unwrap_or(impossible);
        if law.p[cell] == 0.0 && notes.is_empty() {
            let path = args.samples.display();
            notes.push(format!("{path}:{line}: {tokens:?} has probability 0"));
        }
        cells.push(cell);
    }
    let settings = args.common.settings(args.tv.tv);
    let judgement =
        judge::gof(&law.p, &cells, settings).map_err(|e| unusable(&args.samples, &e))?;
    let title = format!(
        "{} samples, {} cells of length {} over a vocabulary of {}",
        cells.len(),
        law.p.iter().filter(|p| **p > 0.0).count(),
        law.length,
        law.vocab
    );
    Ok(Report::new("gof", vec![cells.len()], title, judgement, settings).with(notes))
}

pub(super) fn two_sample(args: &TwoSampleArgs) -> Result<Report, Failure> {
    let length = args.length.get();
    let a = sample::read(&args.a, length, 1 << 32)?;
    let b = sample::read(&args.b, length, 1 << 32)?;
    let known: HashSet<&String> = a.seeds.iter().collect();
    let shared: Vec<&String> = b.seeds.iter().filter(|seed| known.contains(seed)).collect();
    // A few are chance where seeds are short; samples that go in pairs are not independent.
    if let Some(seed) = shared
        .first()
        .filter(|_| shared.len() * 100 > b.lines.len())
    {
        let count = shared.len();
        let other = args.a.display();
        let problem = format!(
            "{count} seeds, {seed} the first, are in {other} too: each sample must have its own"
        );
        return Err(lines::of(&args.b, problem));
    }
    let mut cells: BTreeMap<&[u32], [u64; 2]> = BTreeMap::new();
    for (side, samples) in [&a, &b].into_iter().enumerate() {
        for (_, tokens) in &samples.lines {
            cells.entry(tokens).or_default()[side] += 1;
        }
    }
    let [x, y] = [0, 1].map(|side| cells.values().map(|c| c[side]).collect::<Vec<_>>());
    let settings = args.common.settings(args.tv.tv);
    let judgement = judge::two_sample(&x, &y, settings).map_err(|e| unusable(&args.a, &e))?;
    let n = vec![a.lines.len(), b.lines.len()];
    let title = format!(
        "{} and {} samples, {} cells of length {length}",
        n[0],
        n[1],
        cells.len()
    );
    Ok(Report::new("two-sample", n, title, judgement, settings))
}

pub(super) fn pit(args: &PitArgs) -> Result<Report, Failure> {
    let (rows, numbers) = trace::read(&args.trace)?;
    // The PIT asks for no total variation.
    let settings = args.common.settings(1.0);
    let judgement = judge::pit(&rows, settings).map_err(|e| unusable(&args.trace, &e))?;
    let impossible = rows.iter().position(|row| row.p <= 0.0);
    let notes = impossible.map(|i| {
        format!(
            "{}:{}: the token has probability 0",
            args.trace.display(),
            numbers[i]
        )
    });
    let title = format!("{} rows", rows.len());
    Ok(Report::new("pit", vec![rows.len()], title, judgement, settings).with(notes))
}

fn unusable(path: &Path, error: &BadInput) -> Failure {
    lines::of(path, error)
}
