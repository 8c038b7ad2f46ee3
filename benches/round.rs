//! `cpu/engine`: the whole engine on the tiny target, what the round costs around the model.
//! `cpu/round`: one round that checks four drafts a sequence, and its twin without drafts.

use std::{path::Path, sync::Arc};

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use eyrie::{
    accept::Match,
    draft::{Drafter, ModelDrafter, Ngram, NoDrafter, Pick, Script},
    model::{Llama, LoadOptions, Target, load::Checkpoint},
    request::Request,
    sample::{RawParams, SamplingParams},
    schedule::{Engine, EngineOptions, Parts},
};

const TOKENS: usize = 32;
const DEPTH: usize = 4;

/// Rounds before the one that is measured.
const BEFORE: usize = 4;

fn target() -> Arc<dyn Target> {
    let dir = tempfile::TempDir::new().expect("a folder");
    eyrie_fixtures::tt().write_dir(dir.path()).expect("written");
    load(dir.path(), 1)
}

fn load(path: &Path, threads: usize) -> Arc<dyn Target> {
    let checkpoint = Checkpoint::open(path).expect("opens");
    let options = LoadOptions {
        threads: Some(threads),
        ..LoadOptions::default()
    };
    Arc::new(Llama::load(&checkpoint, &options).expect("loads"))
}

/// An engine of `batch` requests for `max_tokens` each.
fn requests(
    target: &Arc<dyn Target>,
    drafter: Box<dyn Drafter>,
    (batch, temperature): (usize, f64),
    max_tokens: usize,
) -> Engine {
    let parts = Parts {
        target: Arc::clone(target),
        text: None,
        eos: Vec::new(),
        valid: target.vocab(),
        drafter,
        rule: Box::new(Match),
    };
    let options = EngineOptions {
        depth: DEPTH,
        nodes: None,
        max_batch: batch,
        kv_tokens: 2048,
        prefill_chunk: 64,
    };
    let mut engine = Engine::new(parts, options).expect("valid");
    let raw = RawParams {
        temperature,
        ..RawParams::default()
    };
    for seed in 0..batch as u64 {
        let request = Request {
            id: seed.to_string(),
            prompt: vec![1, 2, 3, 1, 2],
            params: SamplingParams::new(raw.clone()).expect("valid"),
            max_tokens,
            stop: Vec::new(),
            stop_ids: Vec::new(),
            ignore_eos: false,
            seed,
            n: 1,
            logprobs: None,
            drafter_off: false,
            processors: Vec::new(),
        };
        engine.submit(request).expect("valid");
    }
    engine
}

fn run(
    target: &Arc<dyn Target>,
    drafter: Box<dyn Drafter>,
    batch: usize,
    temperature: f64,
) -> usize {
    requests(target, drafter, (batch, temperature), TOKENS)
        .run()
        .len()
}

fn engine(c: &mut Criterion) {
    let target = target();
    for (batch, temperature) in [(1, 0.0), (1, 1.0), (16, 0.0), (16, 1.0)] {
        let mut group = c.benchmark_group(format!(
            "cpu/engine/batch-{batch}-temperature-{temperature}"
        ));
        group.throughput(Throughput::Elements((batch * TOKENS) as u64));
        group.bench_function("none", |b| {
            b.iter(|| run(&target, Box::new(NoDrafter), batch, temperature));
        });
        group.bench_function("ngram", |b| {
            b.iter(|| run(&target, Box::new(Ngram), batch, temperature));
        });
        group.bench_function("self", |b| {
            b.iter(|| {
                let own = ModelDrafter::new(Arc::clone(&target), Pick::Coupled, 2048, 64);
                run(&target, Box::new(own), batch, temperature)
            });
        });
        group.finish();
    }
}

fn round(c: &mut Criterion) {
    let smollm2 =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let smollm2 = smollm2.exists().then(|| load(&smollm2, 2));
    let targets = [
        Some(("tt", target())),
        smollm2.map(|target| ("smollm2", target)),
    ];
    for (name, target) in targets.into_iter().flatten() {
        let mut group = c.benchmark_group(format!("cpu/round/{name}"));
        group.sample_size(20);
        for (batch, temperature) in [(1, 0.0), (1, 1.0), (8, 0.0)] {
            for depth in [0, DEPTH] {
                let drafts = vec![vec![1; depth]; BEFORE + 2];
                let setup = || {
                    let drafter = Box::new(Script::new(drafts.clone()));
                    let mut engine = requests(&target, drafter, (batch, temperature), 200);
                    for _ in 0..BEFORE {
                        engine.step();
                    }
                    engine
                };
                group.throughput(Throughput::Elements((batch * (1 + depth)) as u64));
                group.bench_function(format!("{batch}-temperature-{temperature}/{depth}"), |b| {
                    let step = |mut engine: Engine| {
                        engine.step();
                        engine
                    };
                    b.iter_batched(setup, step, BatchSize::PerIteration);
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, engine, round);
