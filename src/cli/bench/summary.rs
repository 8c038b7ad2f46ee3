//! What the runs of an arm amount to, beside plain decoding's.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    plan::ArmPlan,
    record::{RunRecord, Stages},
};
use crate::report::{Acceptance, Pace, Percentiles, Speedup, Throughput};

/// What a pass has to read, and how fast it could be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    /// Bytes of the target's weights.
    pub(super) weights: usize,
    /// Bytes of keys and values a token.
    pub(super) kv: usize,
    /// Bytes a second; none where it was not measured.
    pub(super) bandwidth: Option<f64>,
}

/// One arm at one concurrency and temperature.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) arm: String,
    pub(super) drafts: &'static str,
    /// Drafted tokens of a chain, or levels of a tree.
    pub(super) depth: Option<u8>,
    pub(super) tree: Option<String>,
    /// All tokens over all seconds, prompts included.
    pub(super) tokens_per_s: Option<f64>,
    /// Tokens and seconds of each repeat.
    pub(super) repeats: Vec<(usize, f64)>,
    /// Of `tokens_per_s`; none for plain decoding itself.
    pub(super) speedup: Option<Speedup>,
    /// The tokens of rounds over all seconds less those of prompts.
    pub(super) round_tokens_per_s: Option<f64>,
    /// Of `round_tokens_per_s`.
    pub(super) round_speedup: Option<Speedup>,
    /// Said in words where it is slower, or not told from plain decoding.
    pub(super) sentences: Vec<String>,
    /// Seconds from submission to the first delivery.
    pub(super) ttft_s: Percentiles,
    /// Seconds per token after the first delivery, of all requests together.
    pub(super) tpot_s: Option<f64>,
    /// The same by request.
    pub(super) tpot_by_request_s: Percentiles,
    /// Mean seconds between deliveries, which may bring several tokens.
    pub(super) chunk_gap_s: Option<f64>,
    /// Tokens per second of one request after its first delivery.
    pub(super) decode_tokens_per_s: Option<f64>,
    /// Seconds from submission to the last delivery.
    pub(super) latency_s: Percentiles,
    pub(super) acceptance: Acceptance,
    pub(super) by_domain: BTreeMap<String, Acceptance>,
    #[serde(skip)]
    pub(super) by_request: BTreeMap<String, Acceptance>,
    /// Wall seconds of all repeats.
    pub(super) stages_s: Map<String, Value>,
    pub(super) stage_share: Map<String, Value>,
    /// Passes of rounds; those over prompts are not counted.
    pub(super) passes: usize,
    /// Rows of these passes.
    pub(super) rows: usize,
    pub(super) rows_per_pass: Option<f64>,
    /// Bytes of weights, keys and values that these passes had to read, by the time of `verify`.
    pub(super) verify_bytes_per_s: Option<f64>,
    /// The same as a share of the bandwidth measured.
    pub(super) of_ceiling: Option<f64>,
}

/// Where an arm ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) concurrency: usize,
    pub(super) temperature: f64,
}

impl Summary {
    /// Of the repeats of an arm, and plain decoding's beside them.
    pub(super) fn of(
        arm: &ArmPlan,
        place: Place,
        runs: &[RunRecord],
        plain: &[RunRecord],
        ceiling: Ceiling,
    ) -> Self {
        let ours: Vec<_> = runs.iter().map(RunRecord::throughput).collect();
        let decode: Vec<_> = runs.iter().map(RunRecord::decode).collect();
        let drafts = match (arm.setup.depth, arm.setup.tree) {
            (None, _) => "none",
            (Some(_), None) => "chain",
            (Some(_), Some(_)) => "tree",
        };
        let over = |ours: &[Throughput], of: fn(&RunRecord) -> Throughput| {
            let theirs: Vec<_> = plain.iter().map(of).collect();
            (drafts != "none")
                .then(|| Speedup::of(&theirs, ours))
                .flatten()
        };
        let speedup = over(&ours, RunRecord::throughput);
        let round_speedup = over(&decode, RunRecord::decode);
        let mut said = sentences(&arm.name, place, "tokens per second", speedup);
        said.extend(sentences(
            &arm.name,
            place,
            "tokens per second without prompts",
            round_speedup,
        ));
        let mut found = Counted::default();
        for run in runs {
            found.add(run);
        }
        let verify = found.stages.rounds[1];
        let read = found.passes * ceiling.weights + found.kv_tokens * ceiling.kv;
        let verify_bytes_per_s = (read > 0 && verify > 0.0).then(|| float(read) / verify);
        let named = found.stages.named();
        let total = found.stages.total;
        let share = |seconds: f64| (total > 0.0).then(|| seconds / total);
        Self {
            arm: arm.name.clone(),
            drafts,
            depth: arm.setup.depth,
            tree: arm.setup.tree.map(|tree| tree.to_string()),
            tokens_per_s: Throughput::sum(&ours).rate(),
            repeats: ours.iter().map(|run| (run.tokens, run.seconds)).collect(),
            sentences: said,
            speedup,
            round_tokens_per_s: Throughput::sum(&decode).rate(),
            round_speedup,
            ttft_s: Percentiles::of(found.ttft),
            tpot_s: found.pace.per_token(),
            tpot_by_request_s: Percentiles::of(found.tpot),
            chunk_gap_s: found.pace.chunk_gap(),
            decode_tokens_per_s: found.pace.decode_rate(),
            latency_s: Percentiles::of(found.latency),
            acceptance: found.acceptance,
            by_domain: found.by_domain,
            by_request: found.by_request,
            stages_s: object(&named, |seconds| json!(seconds)),
            stage_share: object(&named, |seconds| json!(share(seconds))),
            passes: found.passes,
            rows: found.rows,
            rows_per_pass: (found.passes > 0).then(|| float(found.rows) / float(found.passes)),
            verify_bytes_per_s,
            of_ceiling: verify_bytes_per_s
                .zip(ceiling.bandwidth)
                .map(|(ours, all)| ours / all),
        }
    }
}

fn object(named: &[(&str, f64)], of: impl Fn(f64) -> Value) -> Map<String, Value> {
    let entries = named.iter();
    entries
        .map(|(name, seconds)| ((*name).to_owned(), of(*seconds)))
        .collect()
}

/// Sums over runs.
#[derive(Debug, Default)]
struct Counted {
    stages: Stages,
    passes: usize,
    rows: usize,
    kv_tokens: usize,
    pace: Pace,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    latency: Vec<f64>,
    acceptance: Acceptance,
    by_domain: BTreeMap<String, Acceptance>,
    by_request: BTreeMap<String, Acceptance>,
}

impl Counted {
    fn add(&mut self, run: &RunRecord) {
        self.stages.add(&run.stages());
        for step in run.steps.iter().filter(|step| step.sequences > 0) {
            self.passes += 1;
            self.rows += step.rows;
            self.kv_tokens += step.kv_tokens;
        }
        for answer in &run.answers {
            let pace = answer.deliveries.pace();
            self.pace.add(pace);
            self.ttft.extend(answer.deliveries.first());
            self.latency.extend(answer.deliveries.last());
            self.tpot.extend(pace.per_token());
            let acceptance = answer.acceptance();
            self.acceptance.add(&acceptance);
            let of = |map: &mut BTreeMap<String, Acceptance>, key: &str| {
                map.entry(key.to_owned()).or_default().add(&acceptance);
            };
            of(&mut self.by_domain, &answer.domain);
            of(&mut self.by_request, &answer.name);
        }
    }
}

/// What is said of a speed-up that is none.
fn sentences(arm: &str, place: Place, unit: &str, speedup: Option<Speedup>) -> Vec<String> {
    let Some(speedup) = speedup else {
        return Vec::new();
    };
    let Place {
        concurrency,
        temperature,
    } = place;
    let at = format!("{arm} at concurrency {concurrency} and temperature {temperature}");
    let spread = match speedup.interval {
        Some([low, high]) => format!("95 % interval {low:.3} to {high:.3}"),
        None => "one repeat, no interval".to_owned(),
    };
    let mut said = Vec::new();
    if speedup.ratio < 1.0 {
        let ratio = speedup.ratio;
        said.push(format!(
            "slower: {at} gives {ratio:.3} of plain decoding's {unit} ({spread})."
        ));
    }
    if speedup.contains_one() {
        said.push(format!(
            "not told apart: {at} and plain decoding in {unit}, the interval contains 1 ({spread})."
        ));
    }
    said
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 56: slower is said in words, and so is what the repeats do not decide.
    #[test]
    fn slower_is_said_in_words() {
        let place = Place {
            concurrency: 4,
            temperature: 0.0,
        };
        let said = |ratio, interval| {
            let repeats = 3;
            let speedup = Speedup {
                ratio,
                interval,
                repeats,
            };
            sentences("ngram depth 4", place, "tokens per second", Some(speedup))
        };
        let at = "ngram depth 4 at concurrency 4 and temperature 0";
        let slower = said(0.75, Some([0.7, 0.8]));
        let words =
            "gives 0.750 of plain decoding's tokens per second (95 % interval 0.700 to 0.800).";
        assert_eq!(slower, [format!("slower: {at} {words}")]);
        let unsure = said(0.99, Some([0.9, 1.1]));
        assert!(
            unsure[0].starts_with("slower: ") && unsure.len() == 2,
            "{unsure:?}"
        );
        let rest = "and plain decoding in tokens per second, the interval contains 1 (95 % interval 0.900 to 1.100).";
        assert_eq!(unsure[1], format!("not told apart: {at} {rest}"));
        assert!(said(1.5, Some([1.4, 1.6])).is_empty());
        assert_eq!(said(1.05, Some([0.9, 1.2])).len(), 1);
        assert!(said(0.5, None)[0].contains("one repeat, no interval"));
    }
}
