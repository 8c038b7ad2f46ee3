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
pub(super) use provenance::of_run;

use std::{ffi::OsString, io::Write};

use anyhow::{Context, Result};

use self::{
    arms::{Arms, Found, weight_bytes},
    bandwidth::read_bandwidth,
    cells::Bench,
    plan::Plan,
    prompts::Asker,
    result::{About, Cell, Whole},
    result_file::ResultFile,
    summary::Ceiling,
};
use super::{
    args::Device,
    error::{Unwritable, usage},
    progress::Busy,
    say,
};
use crate::{request::Resolver, text::ChatTemplate};

/// Runs the command, which `line` is the words of.
pub(super) fn run(args: &BenchArgs, line: &[OsString]) -> Result<()> {
    let mut plan = Plan::new(args)?;
    let conversations = prompts::read(&plan)?;
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
    let asker = asker(&plan, &arms, chat);
    for (place, conversation) in conversations.iter().enumerate() {
        let asked = asker.ask(conversation, place, &[], 0.0);
        asked.with_context(|| format!("--prompts: {}", conversation.id))?;
    }
    let told = warnings::of(&plan, &arms, &conversations, chat);
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
        conversations: &conversations,
        busy: Busy::start("running prompts"),
    };
    let measured = bench.cells()?;
    drop(bench.busy);
    let after = on_cpu.then(|| read_bandwidth(threads));
    let best = before.zip(after).map(|(before, after)| before.max(after));
    let setup = plan.plain();
    let ceiling = Ceiling {
        weights: weight_bytes(
            &arms.opened.checkpoint,
            setup.dtype.into(),
            setup.head_dtype.into(),
        ),
        kv: arms.opened.kv_bytes(),
        bandwidth: best,
    };
    let cells: Vec<Cell> = measured
        .into_iter()
        .map(|measured| Cell::of(&plan, measured, ceiling))
        .collect();
    let head = conversations.first().map(|first| asker.head(first));
    let template = arms.opened.chat.as_ref().map(ChatTemplate::name);
    let about = About {
        plan: &plan,
        template: template.filter(|_| chat),
        head: head.unwrap_or_default(),
        conversations: &conversations,
        bandwidth: [before, after],
        ceiling,
    };
    let summary = about.summary(line, &told, &cells)?;
    file.write(&Whole::new(&summary, &plan, &cells))?;
    let mut out = std::io::stdout().lock();
    let text = if plan.json {
        summary.to_string()
    } else {
        let tables: String = cells.iter().map(table::cell).collect();
        format!("{}{tables}", about.text())
    };
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
