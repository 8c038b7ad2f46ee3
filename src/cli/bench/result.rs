//! A result: what it is of, its summary, its raw data.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    args::HEADS,
    cells::Measured,
    plan::Plan,
    prompts::{self, Conversation, Prompts},
    provenance::{self, FileFacts},
    record::{DELIVERY_COLUMNS, ROUND_COLUMNS, RunRecord, STEP_COLUMNS},
    summary::{Ceiling, Place, Summary},
    warnings::count,
};
use crate::{
    cli::error::one_line,
    report::{COUNTING, TIMING},
};

/// All arms at one concurrency and temperature.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) place: Place,
    pub(super) arms: Vec<Summary>,
    /// By arm, its repeats.
    runs: Vec<Vec<RunRecord>>,
    pub(super) equal_tokens_checked: bool,
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

    /// The repeats of an arm.
    pub(super) fn runs(&self, arm: usize) -> &[RunRecord] {
        self.runs.get(arm).map_or(&[], Vec::as_slice)
    }
}

/// The files of the models, by their content.
#[derive(Debug)]
pub(super) struct ModelFiles {
    model: Vec<FileFacts>,
    /// By drafter that has some.
    drafters: Vec<Vec<FileFacts>>,
}

impl ModelFiles {
    /// Of the models that have just been loaded.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(super) fn read(plan: &Plan) -> Result<Self> {
        let facts =
            |path: &PathBuf| provenance::files(path).with_context(|| path.display().to_string());
        let drafts = plan.drafters.iter().filter_map(|spec| spec.path.as_ref());
        Ok(Self {
            model: facts(&plan.plain().model)?,
            drafters: drafts.map(facts).collect::<Result<_>>()?,
        })
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
    pub(super) prompts: &'a Prompts,
    /// The files of the models.
    pub(super) files: &'a ModelFiles,
    /// What ended the runs early, in words.
    pub(super) ended: Option<String>,
    /// Before and after the runs.
    pub(super) bandwidth: [Option<f64>; 2],
    pub(super) ceiling: Ceiling,
}

impl About<'_> {
    /// All but the raw data; `line` is the command.
    pub(super) fn summary(&self, line: &[OsString], warnings: &[String], cells: &[Cell]) -> Value {
        let conversations = &self.prompts.conversations;
        let ids = prompts::ids(conversations);
        let all = conversations.len();
        let turns: usize = conversations.iter().map(Conversation::turns).sum();
        let cells = cells.iter().map(|cell| {
            json!({
                "concurrency": cell.place.concurrency,
                "temperature": cell.place.temperature,
                "equal_tokens_checked": cell.equal_tokens_checked,
                "arms": cell.arms,
            })
        });
        json!({
            "format": 1,
            "complete": self.ended.is_none(),
            "ended_by": self.ended,
            "provenance": provenance::of_run(line),
            "files": {
                "model": self.files.model,
                "drafters": self.files.drafters,
                "prompts": self.prompts.files,
            },
            "counting": COUNTING,
            "timing": TIMING,
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
        })
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
                "* {}, {}, device {}, seed {}, {}, warm-up {}, at most {}{}",
                setup.model.display(),
                count(setup.threads, "thread"),
                setup.device,
                plan.seed,
                count(plan.repeats, "repeat"),
                plan.warm_up,
                count(plan.max_tokens, "token"),
                if plan.ignore_eos {
                    ", end tokens ignored"
                } else {
                    ""
                }
            ),
            format!(
                "* {} {template}; the first begins {:?}",
                count(self.prompts.conversations.len(), "prompt"),
                one_line(&self.head)
            ),
            format!(
                "* read bandwidth {before} GB/s before and {after} after; a pass reads {weights:.1} MB of weights \
                 and {} bytes a token of context",
                self.ceiling.kv
            ),
            format!("* {HEADS}"),
            format!("* {COUNTING}"),
            format!("* {TIMING}"),
        ];
        let ended = self.ended.as_ref();
        let ended = ended
            .map(|words| format!("* not complete, only the repeats that every arm has: {words}"));
        lines
            .into_iter()
            .chain(ended)
            .collect::<Vec<_>>()
            .join("\n")
            + "\n"
    }
}

/// A result in full.
#[derive(Debug, Serialize)]
pub(super) struct Whole<'a> {
    #[serde(flatten)]
    summary: &'a Value,
    /// Acceptance by request.
    requests: Value,
    /// The tokens of plain decoding.
    outputs: Value,
    raw: Raw<'a>,
}

/// All runs, request by request and step by step.
#[derive(Debug, Serialize)]
struct Raw<'a> {
    step_columns: [&'a str; 10],
    round_columns: [&'a str; 4],
    delivery_columns: [&'a str; 2],
    runs: Vec<RawRun<'a>>,
}

#[derive(Debug, Serialize)]
struct RawRun<'a> {
    concurrency: usize,
    temperature: f64,
    arm: &'a str,
    repeat: usize,
    order: usize,
    run: &'a RunRecord,
}

impl<'a> Whole<'a> {
    pub(super) fn new(summary: &'a Value, plan: &'a Plan, cells: &'a [Cell]) -> Self {
        Self {
            summary,
            requests: requests(cells),
            outputs: outputs(cells),
            raw: Raw {
                step_columns: STEP_COLUMNS,
                round_columns: ROUND_COLUMNS,
                delivery_columns: DELIVERY_COLUMNS,
                runs: cells.iter().flat_map(|cell| runs(plan, cell)).collect(),
            },
        }
    }
}

fn runs<'a>(plan: &'a Plan, cell: &'a Cell) -> impl Iterator<Item = RawRun<'a>> {
    let arms = plan.arms.iter().zip(&cell.runs);
    arms.flat_map(move |(arm, repeats)| {
        repeats.iter().enumerate().map(move |(repeat, run)| RawRun {
            concurrency: cell.place.concurrency,
            temperature: cell.place.temperature,
            arm: &arm.name,
            repeat,
            order: run.order,
            run,
        })
    })
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
