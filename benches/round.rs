//! The whole engine on the tiny target: what the round costs around the model.

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group};
use eyrie::{
    accept::Match,
    draft::{Drafter, ModelDrafter, Ngram, NoDrafter, Pick},
    model::{Llama, LoadOptions, Target, load::Checkpoint},
    request::Request,
    sample::{RawParams, SamplingParams},
    schedule::{Engine, EngineOptions, Parts},
};

const TOKENS: usize = 32;

fn target() -> Arc<dyn Target> {
    let dir = tempfile::TempDir::new().expect("a folder");
    eyrie_fixtures::tt().write_dir(dir.path()).expect("written");
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    let options = LoadOptions {
        threads: Some(1),
        ..LoadOptions::default()
    };
    Arc::new(Llama::load(&checkpoint, &options).expect("loads"))
}

fn run(
    target: &Arc<dyn Target>,
    drafter: Box<dyn Drafter>,
    batch: usize,
    temperature: f64,
) -> usize {
    let parts = Parts {
        target: Arc::clone(target),
        text: None,
        eos: Vec::new(),
        valid: target.vocab(),
        drafter,
        rule: Box::new(Match),
    };
    let options = EngineOptions {
        depth: 4,
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
            max_tokens: TOKENS,
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
    engine.run().len()
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

criterion_group!(benches, engine);
