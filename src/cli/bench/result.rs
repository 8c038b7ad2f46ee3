//! A result: what it is of, its summary, its raw data.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    cells::Measured,
    plan::Plan,
    prompts::{self, Conversation},
    provenance,
    record::{DELIVERY_COLUMNS, ROUND_COLUMNS, RunRecord, STEP_COLUMNS},
    summary::{Ceiling, Place, Summary},
};
use crate::{cli::error::one_line, report::COUNTING};

/// All arms at one concurrency and temperature.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) place: Place,
    pub(super) arms: Vec<Summary>,
    /// By arm, its repeats.
    runs: Vec<Vec<RunRecord>>,
    equal_tokens_checked: bool,
}

impl Cell {
    /// Sums the runs of a place up.
    pub(super) fn of(plan: &Plan, measured: Measured, ceiling: Ceiling) -> Self {
        let Measured {
            place,
            runs,
            equal_tokens_checked,
        } = measured;
        let arms = plan.arms.iter().zip(&runs);
        let arms = arms.map(|(arm, of)| Summary::of(arm, place, of, &runs[0], ceiling));
        Self {
            place,
            arms: arms.collect(),
            runs,
            equal_tokens_checked,
        }
    }
}

/// What a result says of itself before its numbers.
#[derive(Debug)]
pub(super) struct About<'a> {
    pub(super) plan: &'a Plan,
    /// The template's name, if texts go through one.
    pub(super) template: Option<&'a str>,
    /// The beginning of the first prompt as the model is shown it.
    pub(super) head: String,
    pub(super) conversations: &'a [Conversation],
    /// Before and after the runs.
    pub(super) bandwidth: [Option<f64>; 2],
    pub(super) ceiling: Ceiling,
}

impl About<'_> {
    /// All but the raw data; `line` is the command.
    ///
    /// # Errors
    /// If a file that the result depends on can no longer be read.
    pub(super) fn summary(
        &self,
        line: &[OsString],
        warnings: &[String],
        cells: &[Cell],
    ) -> Result<Value> {
        let ids = prompts::ids(self.conversations);
        let all = self.conversations.len();
        let turns: usize = self.conversations.iter().map(Conversation::turns).sum();
        let cells = cells.iter().map(|cell| {
            json!({
                "concurrency": cell.place.concurrency,
                "temperature": cell.place.temperature,
                "equal_tokens_checked": cell.equal_tokens_checked,
                "arms": cell.arms,
            })
        });
        Ok(json!({
            "format": 1,
            "provenance": provenance::of_run(line),
            "files": files(self.plan)?,
            "counting": COUNTING,
            "config": self.plan,
            "warnings": warnings,
            "prompts": {
                "conversations": all,
                "turns": turns,
                "source": match ids { 0 => "text", n if n == all => "ids", _ => "text and ids" },
                "template": self.template,
                "rendered_head": self.head,
            },
            "bandwidth": {
                "read_bytes_per_s_before": self.bandwidth[0],
                "read_bytes_per_s_after": self.bandwidth[1],
                "threads": self.plan.plain().threads,
                "weight_bytes_per_pass": self.ceiling.weights,
                "kv_bytes_per_token": self.ceiling.kv,
            },
            "cells": cells.collect::<Vec<_>>(),
        }))
    }

    /// The same for a reader, up to the tables.
    pub(super) fn text(&self) -> String {
        let (plan, setup) = (self.plan, self.plan.plain());
        let template = match self.template {
            None => "taken as they are".to_owned(),
            Some(name) => format!("through the template {name}"),
        };
        let rate = |rate: Option<f64>| {
            rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1}", rate / 1e9))
        };
        let [before, after] = self.bandwidth.map(rate);
        #[expect(clippy::cast_precision_loss, reason = "bytes far below 2^53")]
        let weights = self.ceiling.weights as f64 / 1e6;
        let lines = [
            "# eyrie bench".to_owned(),
            String::new(),
            format!(
                "* {}, {} threads, device {}, seed {}, {} repeats, warm-up {}, at most {} tokens{}",
                setup.model.display(),
                setup.threads,
                setup.device,
                plan.seed,
                plan.repeats,
                plan.warm_up,
                plan.max_tokens,
                if plan.ignore_eos {
                    ", end tokens ignored"
                } else {
                    ""
                }
            ),
            format!(
                "* {} prompts {template}; the first begins {:?}",
                self.conversations.len(),
                one_line(&self.head)
            ),
            format!(
                "* read bandwidth {before} GB/s before and {after} after; a pass reads {weights:.1} MB of weights \
                 and {} bytes a token of context",
                self.ceiling.kv
            ),
            format!("* {COUNTING}"),
        ];
        lines.join("\n") + "\n"
    }
}

/// The summary with acceptance by request, the tokens of plain decoding, and all runs.
pub(super) fn with_raw(mut summary: Value, plan: &Plan, cells: &[Cell]) -> Value {
    summary["requests"] = requests(cells);
    summary["outputs"] = outputs(cells);
    summary["raw"] = raw(plan, cells);
    summary
}

/// The files that a result depends on.
fn files(plan: &Plan) -> Result<Value> {
    let facts =
        |path: &PathBuf| provenance::files(path).with_context(|| path.display().to_string());
    let drafts = plan.drafters.iter().filter_map(|spec| spec.path.as_ref());
    Ok(json!({
        "model": facts(&plan.plain().model)?,
        "drafters": drafts.map(facts).collect::<Result<Vec<_>>>()?,
        "prompts": plan.prompts.iter().map(facts).collect::<Result<Vec<_>>>()?,
    }))
}

/// Acceptance by request.
fn requests(cells: &[Cell]) -> Value {
    let arms = cells.iter().flat_map(|cell| {
        cell.arms.iter().map(|arm| {
            json!({
                "concurrency": cell.place.concurrency,
                "temperature": cell.place.temperature,
                "arm": arm.arm,
                "acceptance": arm.by_request,
            })
        })
    });
    arms.collect()
}

/// The tokens of plain decoding.
fn outputs(cells: &[Cell]) -> Value {
    let cells = cells.iter().map(|cell| {
        let answers = cell.runs[0].iter().take(1).flat_map(|run| &run.answers);
        let tokens: serde_json::Map<_, _> = answers
            .map(|answer| (answer.name.clone(), json!(answer.tokens)))
            .collect();
        json!({
            "concurrency": cell.place.concurrency,
            "temperature": cell.place.temperature,
            "tokens": tokens,
        })
    });
    cells.collect()
}

/// All runs, request by request and step by step.
fn raw(plan: &Plan, cells: &[Cell]) -> Value {
    let mut runs = Vec::new();
    for cell in cells {
        for (arm, repeats) in plan.arms.iter().zip(&cell.runs) {
            for (repeat, run) in repeats.iter().enumerate() {
                let mut object = json!({
                    "concurrency": cell.place.concurrency,
                    "temperature": cell.place.temperature,
                    "arm": arm.name,
                    "repeat": repeat,
                    "order": run.order,
                });
                object["run"] = run.json();
                runs.push(object);
            }
        }
    }
    json!({
        "step_columns": STEP_COLUMNS,
        "round_columns": ROUND_COLUMNS,
        "delivery_columns": DELIVERY_COLUMNS,
        "runs": runs,
    })
}
