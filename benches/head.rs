//! `cpu/head-extend`, `cpu/head-step`: the passes of an EAGLE-3 head; its twin feeds the same rows one by one.

use std::{path::Path, sync::Arc};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group};
use eyrie::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    draft::eagle::{Head, HeadCheckpoint, HeadOptions, TargetFacts},
    model::{Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
};
use eyrie_fixtures::{Fixture, head, tt};

const SEQ: SeqId = SeqId(0);

/// A head of width 256 with 2,048 tokens of its own, for a target of the same width.
fn load(dir: &Path) -> Head {
    let target = Fixture {
        vocab: 4096,
        hidden: 256,
        head_dim: 64,
        ..tt()
    };
    let head = head::Head {
        hidden: 256,
        target_hidden: 256,
        head_dim: 64,
        intermediate: 768,
        vocab: 4096,
        tokens: Some((0..2048).map(|i| 2 * i).collect()),
        ..head::e3()
    };
    let (model, draft) = (dir.join("target"), dir.join("head"));
    target.write_dir(&model).expect("a target is written");
    head.write_dir(&draft).expect("a head is written");
    let checkpoint = Checkpoint::open(&model).expect("a target");
    let options = LoadOptions {
        threads: Some(2),
        ..LoadOptions::default()
    };
    let facts = TargetFacts::from(checkpoint.config());
    let target: Arc<dyn Target> = Arc::new(Llama::load(&checkpoint, &options).expect("a target"));
    let head = HeadCheckpoint::open(&draft, &facts, &HeadOptions::default()).expect("a head");
    Head::load(&head, target, &options).expect("a head")
}

/// Feeds rows and asks for the logits of the last.
fn feed(head: &Head, cache: &mut KvCache, tokens: &[TokenId], features: &Matrix) -> Matrix {
    let mut rows = Rows::new();
    let base = cache.committed(SEQ);
    rows.chain(SEQ, base, tokens, Wanted::Last).expect("rows");
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let outputs = head.forward(&rows, features, &mut txn).expect("a pass");
    txn.commit_all(SEQ).expect("its rows");
    head.logits(&outputs.gather([tokens.len() - 1]))
}

fn passes(c: &mut Criterion) {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let head = load(dir.path());
    let tokens: Vec<TokenId> = (0..128).map(|i| i * 37 % 4096).collect();
    let width = head.shown_width();
    let values =
        (0..128 * width).map(|i| f32::from(u8::try_from(i % 251).unwrap_or(0)) / 125.0 - 1.0);
    let shown = Matrix::new(width, values.collect());
    let all = head.fuse(shown.clone());
    let empty = || head.new_cache(256);
    let full = || {
        let mut cache = empty();
        feed(&head, &mut cache, &tokens, &all);
        cache
    };

    let mut group = c.benchmark_group("cpu/head-extend");
    for rows in [5, 64] {
        group.throughput(Throughput::Elements(rows as u64));
        let (tokens, shown) = (&tokens[..rows], shown.gather(0..rows));
        group.bench_function(BenchmarkId::from_parameter(rows), |b| {
            let once = |mut cache| feed(&head, &mut cache, tokens, &head.fuse(shown.clone()));
            b.iter_batched(empty, once, BatchSize::LargeInput);
        });
    }
    let (five, shown) = (&tokens[..5], shown.gather(0..5));
    group.throughput(Throughput::Elements(5));
    group.bench_function("one-by-one/5", |b| {
        let each = |mut cache| {
            for row in 0..5 {
                let features = head.fuse(shown.gather([row]));
                feed(&head, &mut cache, &five[row..=row], &features);
            }
        };
        b.iter_batched(empty, each, BatchSize::LargeInput);
    });
    group.finish();

    let mut group = c.benchmark_group("cpu/head-step");
    group.throughput(Throughput::Elements(1));
    let feature = all.gather([127]);
    group.bench_function("after-128", |b| {
        let once = |mut cache| feed(&head, &mut cache, &[5], &feature);
        b.iter_batched(full, once, BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, passes);
