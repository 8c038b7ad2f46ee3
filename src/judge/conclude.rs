//! From the evidence of all sections to findings and one verdict.

use eyrie_verifier::{
    chi2, g,
    holm::holm,
    judge::{self, Judgement as Judged},
    verdict::Verdict,
};
use serde::{Serialize, Serializer};

use super::Settings;
use crate::error::{ErrorKind, Result};

/// A part of the judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Laws by enumeration.
    Exact,
    /// The rules over adversarial tables.
    Accept,
    /// The whole engine over a built-in target.
    Engine,
    /// The model given.
    Live,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The section.
    pub section: Section,
    /// What was judged.
    pub name: String,
    /// Settings, samples, rows of the transform, or tokens compared.
    pub samples: usize,
    /// The largest error of a law; Pearson's chi-square; Cramer and von Mises' W. None for an identity.
    pub statistic: Option<f64>,
    /// The least p-value of its tests, adjusted by Holm for all tests of the judgement.
    pub p_value: Option<f64>,
    /// The smallest total variation that it would have seen.
    pub excluded_tv: Option<f64>,
    /// Its verdict.
    #[serde(serialize_with = "name")]
    pub verdict: Verdict,
    /// More, in words.
    pub note: String,
}

/// The whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// FAIL if a finding fails, else UNDECIDED if one is, else PASS.
    pub verdict: Verdict,
    /// The table.
    pub findings: Vec<Finding>,
}

/// A finding before the correction for all the others.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    finding: Finding,
    /// Those of the tests that count.
    p_values: Vec<f64>,
    /// Whether a test that does not reject says something.
    powerful: bool,
}

impl Evidence {
    /// Something that is the case or not.
    pub(super) fn fact(section: Section, name: String, samples: usize, holds: bool) -> Self {
        Self {
            finding: Finding {
                section,
                name,
                samples,
                statistic: None,
                p_value: None,
                excluded_tv: None,
                verdict: Verdict::of(!holds, samples > 0),
                note: String::new(),
            },
            p_values: Vec::new(),
            powerful: true,
        }
    }

    /// The outcome of tests of `samples` samples.
    pub(super) fn tested(section: Section, name: String, samples: usize, judged: &Judged) -> Self {
        let counted = judged.tests.iter().filter(|test| test.holm.is_some());
        let mut evidence = Self::fact(section, name, samples, true);
        evidence.p_values = counted.map(|test| test.p_value).collect();
        evidence.finding.statistic = judged.tests.first().map(|test| test.statistic);
        evidence.finding.excluded_tv = judged.excluded_tv;
        evidence.powerful = judged.verdict != Verdict::Undecided;
        evidence
    }

    /// With a statistic.
    pub(super) fn statistic(mut self, statistic: f64) -> Self {
        self.finding.statistic = Some(statistic);
        self
    }

    /// With words.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.finding.note = note.into();
        self
    }

    /// With a test that says nothing unless it rejects, if `powerful` does not hold.
    pub(super) fn powerful(mut self, powerful: bool) -> Self {
        self.powerful = powerful;
        self
    }

    /// Failed, whatever the tests say.
    pub(super) fn failed(mut self, why: impl Into<String>) -> Self {
        self.finding.verdict = Verdict::Fail;
        self.note(why)
    }
}

/// Judges whether cells have the law `p`.
///
/// Where Pearson's or the G test rejects already, at a level that no correction takes back, the others are not made: the simulation
/// inside pools takes longest where it has least to add.
pub(super) fn gof(
    (section, name): (Section, String),
    p: &[f64],
    cells: &[usize],
    settings: &Settings,
) -> Result<Evidence> {
    let asked = asked(settings);
    let mut counts = vec![0; p.len()];
    for &cell in cells {
        let inside = counts.get_mut(cell);
        *inside.ok_or_else(|| ErrorKind::Judge(format!("cell {cell} of {}", p.len())))? += 1;
    }
    let pearson = chi2::goodness_of_fit(&counts, p)?;
    let likelihood = g::goodness_of_fit(&counts, p)?;
    if pearson.p_value.min(likelihood.p_value) < asked.alpha / 4.0 {
        let mut evidence = Evidence::fact(section, name, cells.len(), true);
        evidence.p_values = vec![pearson.p_value, likelihood.p_value];
        return Ok(evidence.statistic(pearson.statistic));
    }
    let judged = judge::gof(p, cells, asked)?;
    Ok(Evidence::tested(section, name, cells.len(), &judged))
}

/// What the verifier is asked for one finding.
pub(super) fn asked(settings: &Settings) -> judge::Settings {
    judge::Settings {
        alpha: settings.level(),
        tv: settings.tv,
        seed: settings.seed,
    }
}

/// One Holm correction over all tests of all findings, then the verdicts.
pub(super) fn conclude(evidence: Vec<Evidence>, settings: &Settings) -> Judgement {
    let all: Vec<f64> = evidence.iter().flat_map(|e| e.p_values.clone()).collect();
    let mut adjusted = holm(&all).into_iter();
    let findings: Vec<Finding> = evidence
        .into_iter()
        .map(|evidence| {
            let mut finding = evidence.finding;
            let own = adjusted.by_ref().take(evidence.p_values.len());
            finding.p_value = own.reduce(f64::min);
            if let (Some(p), Verdict::Pass) = (finding.p_value, finding.verdict) {
                finding.verdict = Verdict::of(p < settings.alpha, evidence.powerful);
            }
            finding
        })
        .collect();
    let any = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    let decided = !any(Verdict::Undecided) && !findings.is_empty();
    Judgement {
        verdict: Verdict::of(any(Verdict::Fail), decided),
        findings,
    }
}

fn name<S: Serializer>(verdict: &Verdict, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(verdict.name())
}

#[cfg(test)]
mod tests;
