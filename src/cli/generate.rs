//! `eyrie generate`.

use std::{
    fs::File,
    io::{BufWriter, IsTerminal, Write},
};

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::{
    args::{Device, GenerateArgs},
    error::Unwritable,
    jobs::jobs,
    models::Models,
    output::{Form, Output},
    plan::Plan,
    prepare::load,
    session::{Session, Totals},
};
use crate::schedule::Engine;

/// Runs the command; false if a request failed.
pub(super) fn run(args: &GenerateArgs) -> Result<bool> {
    let mut plan = Plan::new(args)?;
    let jobs = jobs(&plan)?;
    let models = Models::open(&mut plan.setup)?;
    models.warn();
    if args.print_config {
        models.measure(&mut plan.setup)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&plan)?).map_err(Unwritable)?;
        return Ok(true);
    }
    let trace = match &plan.trace {
        None => None,
        Some(path) => {
            let file = File::create(path).with_context(|| plan.trace_name())?;
            Some(BufWriter::new(file))
        }
    };
    let prepared = load(models, plan.setup, plan.rule)?;
    plan.setup = prepared.setup;
    let engine = Engine::new(prepared.parts, prepared.options)?;
    let choices: Vec<usize> = jobs.iter().map(|job| job.choices()).collect();
    let form = match (plan.json, choices[..] == [1] && plan.requests.is_none()) {
        (true, _) => Form::Json,
        (false, true) => Form::Stream,
        (false, false) => Form::Sections,
    };
    let on_terminal = std::io::stderr().is_terminal();
    if on_terminal {
        header(&plan)?;
    }
    let session = Session {
        engine,
        resolver: prepared.resolver,
        plan: &plan,
        output: Output::new(form, choices),
        trace,
    };
    let totals = session.run(jobs)?;
    if on_terminal {
        summary(&totals)?;
    }
    Ok(totals.failed == 0)
}

/// What runs, in one line.
fn header(plan: &Plan) -> Result<()> {
    let mut line = format!(
        "{}: drafter {}",
        plan.setup.model.display(),
        word(&plan.setup.drafter)
    );
    if let (Some(depth), Some(pick)) = (plan.setup.depth, plan.setup.pick) {
        let size = match plan.setup.tree {
            Some(tree) => format!("tree {tree}"),
            None => format!("depth {depth}"),
        };
        line += &format!(", {size}, pick {}", word(&pick));
    }
    line += &format!(", rule {}", word(&plan.rule));
    let (device, row_invariant) = (plan.setup.device, plan.setup.row_invariant);
    if device != Device::Cpu {
        line += &format!(", {device}, row_invariant: {row_invariant}");
        if row_invariant == "no" {
            line += " (the law is promised, not the tokens of a seed)";
        }
    }
    if let Some(request) = &plan.request {
        line += &format!(", temperature {}", request.sampling.temperature);
    }
    Ok(writeln!(std::io::stderr(), "{line}")?)
}

/// The word that a flag is given by.
fn word(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What it did, in one line.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn summary(totals: &Totals) -> Result<()> {
    let rate = |a: usize, b: f64| if b > 0.0 { a as f64 / b } else { 0.0 };
    let mut line = format!(
        "{} tokens in {:.1} s ({:.1} tokens/s), {} rounds",
        totals.tokens,
        totals.seconds,
        rate(totals.tokens, totals.seconds),
        totals.rounds
    );
    if totals.drafted > 0 {
        line += &format!(
            ", {} of {} drafts accepted, {:.2} tokens a round",
            totals.accepted,
            totals.drafted,
            rate(totals.emitted, totals.rounds as f64)
        );
    }
    Ok(writeln!(std::io::stderr(), "{line}")?)
}
