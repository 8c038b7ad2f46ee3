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
    /// The tokens of rounds over all seconds less those of prompts; none where there were no rounds.
    pub(super) round_tokens_per_s: Option<f64>,
    /// Of `round_tokens_per_s`.
    pub(super) round_speedup: Option<Speedup>,
    /// In words: faster, slower, or not told apart from plain decoding; none for plain decoding itself.
    pub(super) verdict: Option<String>,
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
    /// Tokens that these passes delivered, to all sequences together.
    pub(super) tokens_per_pass: Option<f64>,
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
        let verdict = verdict(&arm.name, place, [speedup, round_speedup]);
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
            verdict: Some(verdict).filter(|_| drafts != "none"),
            speedup,
            round_tokens_per_s: Some(Throughput::sum(&decode))
                .filter(|all| all.tokens > 0)
                .and_then(|all| all.rate()),
            round_speedup,
            ttft_s: Percentiles::of(found.ttft),
            tpot_s: found.pace.per_token(),
            tpot_by_request_s: Percentiles::of(found.tpot),
            chunk_gap_s: found.pace.chunk_gap(),
            decode_tokens_per_s: found.pace.decode_rate(),
            latency_s: Percentiles::of(found.latency),
            tokens_per_pass: (found.passes > 0)
                .then(|| float(found.acceptance.emitted()) / float(found.passes)),
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

/// What the speed-up of an arm, and that without prompts, come to: one sentence.
fn verdict(arm: &str, place: Place, [speedup, rounds]: [Option<Speedup>; 2]) -> String {
    let Place {
        concurrency,
        temperature,
    } = place;
    let at = format!("{arm} at concurrency {concurrency} and temperature {temperature}");
    let Some(speedup) = speedup else {
        return format!("not measured: {at}, or plain decoding beside it, gave no tokens.");
    };
    let number = |speedup: Speedup| {
        let spread = match speedup.interval {
            Some([low, high]) => format!("95 % interval {low:.3} to {high:.3}"),
            None => "one repeat, no interval".to_owned(),
        };
        [format!("{:.3}", speedup.ratio), spread]
    };
    let word = if speedup.contains_one() {
        "not told apart"
    } else if speedup.ratio < 1.0 {
        "slower"
    } else {
        "faster"
    };
    let [ratio, spread] = number(speedup);
    let rest = rounds
        .map(number)
        .map(|[ratio, spread]| format!("; without prompts {ratio} ({spread})"));
    let rest = rest.unwrap_or_default();
    format!("{word}: {at} gives {ratio} of plain decoding's tokens per second ({spread}){rest}.")
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 56: slower is said in words, and so is what the repeats do not decide: one of them, once.
    #[test]
    fn an_arm_has_one_verdict_in_words() {
        let place = Place {
            concurrency: 4,
            temperature: 0.0,
        };
        let speedup = |ratio, interval| {
            let repeats = 3;
            Some(Speedup {
                ratio,
                interval,
                repeats,
            })
        };
        let at = "ngram depth 4 at concurrency 4 and temperature 0";
        let gives = "of plain decoding's tokens per second";
        let unsure = speedup(0.99, Some([0.9, 1.1]));
        for (ours, rounds, said) in [
            (
                speedup(0.75, Some([0.7, 0.8])),
                unsure,
                format!(
                    "slower: {at} gives 0.750 {gives} (95 % interval 0.700 to 0.800); without prompts 0.990 \
                     (95 % interval 0.900 to 1.100)."
                ),
            ),
            (
                unsure,
                None,
                format!("not told apart: {at} gives 0.990 {gives} (95 % interval 0.900 to 1.100)."),
            ),
            (
                speedup(1.05, Some([0.9, 1.2])),
                speedup(0.5, Some([0.4, 0.6])),
                format!(
                    "not told apart: {at} gives 1.050 {gives} (95 % interval 0.900 to 1.200); without prompts \
                     0.500 (95 % interval 0.400 to 0.600)."
                ),
            ),
            (
                speedup(1.5, Some([1.4, 1.6])),
                None,
                format!("faster: {at} gives 1.500 {gives} (95 % interval 1.400 to 1.600)."),
            ),
            (
                speedup(0.5, None),
                None,
                format!("slower: {at} gives 0.500 {gives} (one repeat, no interval)."),
            ),
            (
                None,
                unsure,
                format!("not measured: {at}, or plain decoding beside it, gave no tokens."),
            ),
        ] {
            assert_eq!(verdict("ngram depth 4", place, [ours, rounds]), said);
        }
    }
}
