//! `eyrie bench`: every drafter beside plain decoding, in interleaved runs of the same requests.

mod args;
mod arms;
mod bandwidth;
mod beside;
mod cells;
mod plan;
mod prompts;
mod provenance;
mod record;
mod result;
mod result_file;
mod run;
mod summary;
mod table;
mod warnings;

pub(super) use args::BENCH;
pub use args::{BenchArgs, DrafterSpec};
pub(super) use beside::{Beside, Side};
pub(super) use provenance::COMMIT;

use std::{ffi::OsString, io::Write};

use anyhow::Result;

use self::{
    arms::{Arms, Found, weight_bytes},
    bandwidth::read_bandwidth,
    cells::Bench,
    plan::Plan,
    prompts::Asker,
    result::{About, Cell, ModelFiles, Whole},
    result_file::ResultFile,
    summary::Ceiling,
};
use super::{
    args::Device,
    error::{self, Unwritable, usage},
    interrupt,
    progress::Busy,
    say,
};
use crate::{request::Resolver, text::ChatTemplate};

/// Runs the command, which `line` is the words of.
pub(super) fn run(args: &BenchArgs, line: &[OsString]) -> Result<()> {
    let mut plan = Plan::new(args)?;
    let prompts = prompts::read(&plan)?;
    let conversations = &prompts.conversations;
    let found = Found::open(&mut plan)?;
    let chat = chat(&plan, &found)?;
    if args.print_config {
        found.measure(&mut plan)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(&plan)?).map_err(Unwritable)?;
        return Ok(());
    }
    let file = ResultFile::open(&plan.out)?;
    let arms = found.load(&mut plan)?;
    let files = ModelFiles::read(&plan)?;
    let asker = asker(&plan, &arms, chat);
    asker.check(conversations)?;
    let told = warnings::of(&plan, &arms, conversations, chat);
    interrupt::listen()?;
    for warning in &told {
        say("warning", warning);
    }
    let threads = plan.plain().threads;
    let on_cpu = plan.plain().device == Device::Cpu;
    let before = on_cpu.then(|| read_bandwidth(threads));
    let bench = Bench {
        plan: &plan,
        arms: &arms,
        asker: &asker,
        conversations,
        busy: Busy::start("running prompts"),
    };
    let outcome = bench.cells();
    drop(bench.busy);
    let kept = outcome.repeats();
    let ended = match outcome.ended {
        Some(error) if kept == 0 => return Err(error),
        ended => ended,
    };
    let after = on_cpu.then(|| read_bandwidth(threads));
    let best = before.zip(after).map(|(before, after)| before.max(after));
    let ceiling = Ceiling {
        weights: weight_bytes(&arms.opened.checkpoint, plan.plain()),
        kv: arms.opened.kv_bytes(),
        bandwidth: best,
    };
    let cells = outcome.cells.into_iter();
    let cells: Vec<Cell> = cells.map(|cell| Cell::of(&plan, cell, ceiling)).collect();
    let head = conversations.first().map(|first| asker.head(first));
    let template = arms.opened.chat.as_ref().map(ChatTemplate::name);
    let about = About {
        plan: &plan,
        template: template.filter(|_| chat),
        head: head.unwrap_or_default(),
        prompts: &prompts,
        files: &files,
        ended: ended.as_ref().map(error::line),
        bandwidth: [before, after],
        ceiling,
    };
    let summary = about.summary(line, &told, &cells);
    let path = file.path().display().to_string();
    file.write(&Whole::new(&summary, &plan, &cells))?;
    let text = if plan.json {
        summary.to_string()
    } else {
        let tables: String = cells.iter().map(table::cell).collect();
        format!("{}{tables}", about.text())
    };
    let printed = print(&text);
    if let Some(error) = ended {
        let all = plan.repeats * plan.concurrency.len() * plan.temperature.len();
        let kept =
            format!("{kept} of {all} repeats of all arms are in {path}, \"complete\": false");
        say("note", &kept);
        return Err(error);
    }
    printed
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end()).map_err(Unwritable)?;
    Ok(out.flush().map_err(Unwritable)?)
}

/// Whether texts go through the chat template.
fn chat(plan: &Plan, found: &Found) -> Result<bool> {
    match (plan.chat, &found.target().chat) {
        (Some(true), None) => usage("--chat", "the model has no chat template"),
        (Some(chat), _) => Ok(chat),
        (None, template) => Ok(template.is_some()),
    }
}

fn asker(plan: &Plan, arms: &Arms, chat: bool) -> Asker {
    Asker {
        resolver: Resolver {
            tokenizer: arms.opened.tokenizer.clone(),
            chat: arms.opened.chat.clone(),
            valid: arms.opened.valid(),
            context: arms.target.context(),
            kv_tokens: arms.kv_tokens,
        },
        chat,
        max_tokens: plan.max_tokens,
        ignore_eos: plan.ignore_eos,
        seed: plan.seed,
    }
}
