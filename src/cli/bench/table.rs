//! A result as Markdown.

use std::fmt::Write;

use super::{result::Cell, summary::Summary};
use crate::report::{Acceptance, Percentiles, Speedup};

/// The table of one concurrency and temperature, with what is to be said in words.
pub(super) fn cell(cell: &Cell) -> String {
    let mut out = format!(
        "\n## Concurrency {}, temperature {}\n\n",
        cell.place.concurrency, cell.place.temperature
    );
    let heads = [
        "arm",
        "tokens/s",
        "speed-up (95 %)",
        "without prompts",
        "speed-up (95 %)",
        "TTFT p50/p99 ms",
        "TPOT ms",
        "gap ms",
        "latency p50/p99 s",
        "passes",
        "rows/pass",
        "tokens/pass",
        "prefill/draft/verify/accept/commit/other %",
        "verify GB/s (of ceiling)",
    ];
    rows(&mut out, &heads, cell.arms.iter().map(speed));
    let mut depth = 0;
    for arm in &cell.arms {
        depth = depth.max(arm.acceptance.unconditional().len());
    }
    if depth > 0 {
        out.push('\n');
        let heads = [
            "arm",
            "of",
            "length (with bonus)",
            "accepted/drafting round",
            "accepted/drafted",
            "drafted/round",
            "tokens/round",
            "by position, unconditional",
            "by position, conditional",
        ];
        let drafting = cell.arms.iter().filter(|arm| arm.drafts != "none");
        rows(&mut out, &heads, drafting.flat_map(acceptances));
    }
    let mut verdicts = cell
        .arms
        .iter()
        .filter_map(|arm| arm.verdict.as_ref())
        .peekable();
    if verdicts.peek().is_some() {
        out.push('\n');
    }
    for verdict in verdicts {
        let _ = writeln!(out, "* {verdict}");
    }
    out
}

fn rows(out: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(heads.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
}

fn speed(arm: &Summary) -> Vec<String> {
    let over = |speedup: Option<Speedup>| {
        let words = speedup.map(|speedup| {
            let interval = speedup.interval;
            let interval = interval.map(|[low, high]| format!(" ({low:.2} to {high:.2})"));
            format!("{:.2}{}", speedup.ratio, interval.unwrap_or_default())
        });
        words.unwrap_or_else(|| "-".to_owned())
    };
    let shares = arm.stage_share.values();
    let shares: Vec<_> = shares
        .map(|share| number(share.as_f64().map(|share| share * 100.0), 1))
        .collect();
    let verify = arm.verify_bytes_per_s.map(|rate| {
        let of = arm
            .of_ceiling
            .map(|share| format!(" ({:.0} %)", share * 100.0));
        format!("{:.1}{}", rate / 1e9, of.unwrap_or_default())
    });
    vec![
        arm.arm.clone(),
        number(arm.tokens_per_s, 1),
        over(arm.speedup),
        number(arm.round_tokens_per_s, 1),
        over(arm.round_speedup),
        pair(arm.ttft_s, 1e3, 1),
        number(arm.tpot_s.map(|seconds| seconds * 1e3), 2),
        number(arm.chunk_gap_s.map(|seconds| seconds * 1e3), 2),
        pair(arm.latency_s, 1.0, 2),
        arm.passes.to_string(),
        number(arm.rows_per_pass, 2),
        number(arm.tokens_per_pass, 2),
        shares.join(" / "),
        verify.unwrap_or_else(|| "-".to_owned()),
    ]
}

/// A row for all domains together, and for each if there are several.
fn acceptances(arm: &Summary) -> Vec<Vec<String>> {
    let mut all = vec![acceptance(&arm.arm, "all", &arm.acceptance)];
    if arm.by_domain.len() > 1 {
        let domains = arm.by_domain.iter();
        all.extend(domains.map(|(domain, of)| acceptance(&arm.arm, domain, of)));
    }
    all
}

fn acceptance(arm: &str, of: &str, found: &Acceptance) -> Vec<String> {
    vec![
        arm.to_owned(),
        of.to_owned(),
        number(found.mean_acceptance_length(), 3),
        number(found.accepted_per_drafting_round(), 3),
        number(found.draft_acceptance_rate(), 3),
        number(found.drafted_per_round(), 2),
        number(found.tokens_per_round(), 3),
        list(&found.unconditional()),
        list(&found.conditional()),
    ]
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn pair(of: Percentiles, times: f64, digits: usize) -> String {
    let [p50, p99] = [of.p50, of.p99].map(|value| number(value.map(|x| x * times), digits));
    format!("{p50} / {p99}")
}

/// Rates by position; `-` is not observed.
fn list(rates: &[Option<f64>]) -> String {
    let rates: Vec<_> = rates.iter().map(|rate| number(*rate, 2)).collect();
    rates.join(" ")
}
