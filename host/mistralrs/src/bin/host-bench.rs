//! Plain mistral.rs, Eyrie without speculation and Eyrie with it, side by side in one process.
//!
//! The arms take turns within each repeat, over the same prompts, each request for the same number of
//! tokens. mistral.rs' own pipeline gets one request at a time and no prefix cache: with several rows
//! its decoding on a CPU is wrong, so its clients queue, and their wait is told apart.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use either::Either;
use eyrie_mistralrs::{EyrieLoader, Options, serve};
use indexmap::IndexMap;
use mistralrs_core::{
    AddModelConfig, AutoDeviceMapParams, Constraint, DefaultSchedulerMethod, DeviceMapSetting,
    EngineConfig, GGUFLoaderBuilder, GGUFSpecificConfig, MistralRs, MistralRsBuilder, ModelDType,
    NormalRequest, Request, RequestMessage, Response, SamplingParams, SchedulerConfig, TokenSource,
    Usage,
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

/// The host's own pipeline.
const HOST: &str = "mistral.rs";
/// Eyrie's, with speculation.
const EYRIE: &str = "eyrie";

/// Plain mistral.rs, Eyrie plain and Eyrie speculating, over one GGUF file
#[derive(Debug, Parser)]
#[command(name = "cargo xtask host bench")]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Prompts, one JSON object with `turns` a line; the first turn is asked
    #[arg(long, value_name = "FILE", required = true)]
    prompts: Vec<PathBuf>,
    /// Prompts of each file to use
    #[arg(long, default_value_t = 8)]
    take: usize,
    /// Clients at once
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    clients: Vec<usize>,
    /// Tokens of each answer
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// Times that each cell is measured
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Write every request's times
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is compared.
struct Arm {
    name: String,
    /// Requests that it may have at once.
    gate: Arc<Semaphore>,
}

/// One answer.
#[derive(Clone, Debug)]
struct Answer {
    queued: f64,
    served: f64,
    usage: Usage,
}

/// One measured cell.
struct Cell {
    arm: usize,
    clients: usize,
    repeat: usize,
    seconds: f64,
    answers: Vec<Answer>,
}

impl Cell {
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn rate(&self) -> f64 {
        let tokens = self
            .answers
            .iter()
            .map(|answer| answer.usage.completion_tokens);
        tokens.sum::<usize>() as f64 / self.seconds
    }

    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn mean(&self, of: impl Fn(&Answer) -> f64) -> f64 {
        self.answers.iter().map(of).sum::<f64>() / self.answers.len() as f64
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().context("threads of the clients");
    match runtime.and_then(|runtime| runtime.block_on(run(Args::parse()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let prompts = prompts(&args)?;
    let options = format!("{:?}", args.options);
    let host = host(&args.options.setup.model).await?;
    let plain = format!("{EYRIE}{}", serve::PLAIN);
    let loader = EyrieLoader::new(args.options);
    for (name, speculate) in [(EYRIE, true), (&plain, false)] {
        let config = AddModelConfig::new(EngineConfig {
            no_prefix_cache: true,
            disable_eos_stop: true,
            throughput_logging_enabled: false,
            ..EngineConfig::default()
        });
        let pipeline = loader.pipeline(name, speculate)?;
        let added = host.add_model(name.to_owned(), pipeline, loader.scheduler(), config);
        added.await.map_err(anyhow::Error::msg)?;
    }
    let all = Semaphore::MAX_PERMITS;
    let arms = [(HOST.to_owned(), 1), (plain, all), (EYRIE.to_owned(), all)];
    let arms = arms.map(|(name, most)| Arm {
        name,
        gate: Arc::new(Semaphore::new(most)),
    });
    for arm in &arms {
        measure(&host, arm, &prompts[..1], 1, args.max_tokens).await?;
    }
    let mut cells = Vec::new();
    for repeat in 0..args.repeats {
        for &clients in &args.clients {
            for turn in 0..arms.len() {
                let arm = (turn + repeat) % arms.len();
                let (seconds, answers) =
                    measure(&host, &arms[arm], &prompts, clients, args.max_tokens).await?;
                let cell = Cell {
                    arm,
                    clients,
                    repeat,
                    seconds,
                    answers,
                };
                eprintln!(
                    "repeat {repeat}, {clients} clients, {}: {:.1} tokens/s",
                    arms[arm].name,
                    cell.rate()
                );
                cells.push(cell);
            }
        }
    }
    table(&arms, &args.clients, &cells);
    if let Some(path) = &args.out {
        let record = json!({ "options": options, "cells": cells.iter().map(|cell| raw(&arms, cell)).collect::<Vec<_>>() });
        fs::write(path, format!("{record:#}\n")).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The host with its own pipeline over the GGUF file `model`.
async fn host(model: &Path) -> Result<Arc<MistralRs>> {
    let about = || format!("--model {}", model.display());
    let name = model
        .file_name()
        .with_context(about)?
        .to_string_lossy()
        .into_owned();
    let folder = model.parent().with_context(about)?.display().to_string();
    if model.extension().is_none_or(|kind| kind != "gguf") {
        bail!("{}: a .gguf file is accepted, which all arms read", about());
    }
    let folder = if folder.is_empty() {
        ".".to_owned()
    } else {
        folder
    };
    let config = GGUFSpecificConfig::default();
    let loader =
        GGUFLoaderBuilder::new(None, None, folder, vec![name], config, false, None).build();
    let map = DeviceMapSetting::Auto(AutoDeviceMapParams::default_text());
    let device = candle_core::Device::Cpu;
    let dtype = ModelDType::Auto;
    let pipeline = loader.load_model_from_hf(
        None,
        TokenSource::None,
        &dtype,
        &device,
        true,
        map,
        None,
        None,
    )?;
    let one = SchedulerConfig::DefaultScheduler {
        method: DefaultSchedulerMethod::Fixed(std::num::NonZeroUsize::MIN),
    };
    let host = MistralRsBuilder::new(pipeline, one, false, None);
    Ok(host
        .with_model_id(HOST)
        .with_no_prefix_cache(true)
        .with_disable_eos_stop(true)
        .build()
        .await)
}

fn prompts(args: &Args) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for path in &args.prompts {
        let about = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(about)?;
        for line in text.lines().take(args.take) {
            let line: Value = serde_json::from_str(line).with_context(about)?;
            let turn = line["turns"][0]
                .as_str()
                .context("no turns")
                .with_context(about)?;
            all.push(turn.to_owned());
        }
    }
    ensure!(!all.is_empty(), "--prompts: no prompt");
    Ok(all)
}

/// Asks all prompts with so many clients; the seconds from the first question to the last answer.
async fn measure(
    host: &Arc<MistralRs>,
    arm: &Arm,
    prompts: &[String],
    clients: usize,
    max_tokens: usize,
) -> Result<(f64, Vec<Answer>)> {
    let queue: Arc<Mutex<VecDeque<String>>> =
        Arc::new(Mutex::new(prompts.iter().cloned().collect()));
    let clock = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (host, gate, name) = (Arc::clone(host), Arc::clone(&arm.gate), arm.name.clone());
        let queue = Arc::clone(&queue);
        tasks.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            loop {
                let next = queue
                    .lock()
                    .map_err(|_| anyhow::anyhow!("a client panicked"))?
                    .pop_front();
                let Some(prompt) = next else {
                    return Ok::<_, anyhow::Error>(answers);
                };
                let asked = Instant::now();
                let _turn = gate.acquire().await?;
                let queued = asked.elapsed().as_secs_f64();
                let usage = ask(&host, &name, prompt, max_tokens).await?;
                let served = asked.elapsed().as_secs_f64() - queued;
                answers.push(Answer {
                    queued,
                    served,
                    usage,
                });
            }
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await??);
    }
    Ok((clock.elapsed().as_secs_f64(), answers))
}

async fn ask(host: &MistralRs, model: &str, prompt: String, max_tokens: usize) -> Result<Usage> {
    let (to, mut from) = mpsc::channel(16);
    let turn = [("role", "user".to_owned()), ("content", prompt)];
    let turn: IndexMap<_, _> = turn
        .into_iter()
        .map(|(key, text)| (key.to_owned(), Either::Left(text)))
        .collect();
    let request = Request::Normal(Box::new(NormalRequest {
        id: host.next_request_id(),
        messages: RequestMessage::Chat {
            messages: vec![turn],
            enable_thinking: None,
            reasoning_effort: None,
        },
        sampling_params: SamplingParams {
            temperature: Some(0.0),
            max_len: Some(max_tokens),
            ..SamplingParams::neutral()
        },
        response: to,
        return_logprobs: false,
        is_streaming: false,
        constraint: Constraint::None,
        suffix: None,
        tool_choice: None,
        tools: None,
        logits_processors: None,
        return_raw_logits: false,
        web_search_options: None,
        model_id: Some(model.to_owned()),
        truncate_sequence: false,
    }));
    host.get_sender(Some(model))?.send(request).await?;
    match from.recv().await {
        Some(Response::Done(done)) => Ok(done.usage),
        Some(Response::InternalError(error) | Response::ValidationError(error)) => {
            bail!("{model}: {error}")
        }
        Some(Response::ModelError(error, _)) => bail!("{model}: {error}"),
        Some(_) => bail!("{model}: an answer of another kind"),
        None => bail!("{model}: no answer"),
    }
}

fn table(arms: &[Arm], clients: &[usize], cells: &[Cell]) {
    println!(
        "| clients | arm | tokens/s | x {HOST} | x plain | served s | queued s | accepted/drafted |"
    );
    println!("|--:|---|--:|--:|--:|--:|--:|--:|");
    for &clients in clients {
        let of = |arm: usize| {
            cells
                .iter()
                .filter(move |cell| (cell.clients, cell.arm) == (clients, arm))
        };
        for (arm, Arm { name, .. }) in arms.iter().enumerate() {
            let rates: Vec<f64> = of(arm).map(Cell::rate).collect();
            // Of one repeat each: what the machine did then, both had.
            let ratio = |to: usize| {
                let ratios: Vec<f64> = rates
                    .iter()
                    .zip(of(to))
                    .map(|(own, cell)| own / cell.rate())
                    .collect();
                spread(&ratios, 2)
            };
            let served: Vec<f64> = of(arm)
                .map(|cell| cell.mean(|answer| answer.served))
                .collect();
            let queued: Vec<f64> = of(arm)
                .map(|cell| cell.mean(|answer| answer.queued))
                .collect();
            let counts = of(arm)
                .flat_map(|cell| &cell.answers)
                .filter_map(|answer| answer.usage.speculative.as_ref());
            let (accepted, drafted) =
                counts.fold((0, 0), |(a, d), one| (a + one.accepted, d + one.drafted));
            println!(
                "| {clients} | {name} | {} | {} | {} | {} | {} | {accepted}/{drafted} |",
                spread(&rates, 1),
                ratio(0),
                ratio(1),
                spread(&served, 2),
                spread(&queued, 2),
            );
        }
    }
}

/// Mean, lowest and highest.
#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn spread(values: &[f64], digits: usize) -> String {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{mean:.digits$} ({low:.digits$}..{high:.digits$})")
}

fn raw(arms: &[Arm], cell: &Cell) -> Value {
    let answers = cell.answers.iter().map(
        |answer| json!({ "queued": answer.queued, "served": answer.served, "usage": answer.usage }),
    );
    json!({
        "arm": arms[cell.arm].name,
        "clients": cell.clients,
        "repeat": cell.repeat,
        "seconds": cell.seconds,
        "answers": answers.collect::<Vec<_>>(),
    })
}
