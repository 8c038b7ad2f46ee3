//! `cpu/pass`: bytes of weights a second, whatever the rows.

use std::{hint::black_box, path::Path};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use eyrie::{
    SeqId,
    cache::Txn,
    model::{Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
};
use eyrie_fixtures::tt;

/// Weights of SmolLM2-135M in its layers, and in its head.
const WEIGHTS: (u64, u64) = (106_168_320, 28_311_552);

fn tiny_pass(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tt().write_dir(dir.path()).expect("written");
    let model = load(dir.path(), &LoadOptions::default());
    pass(c, "cpu/pass/tt", &model, None);
}

fn smollm2_pass(c: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        return;
    }
    let (layers, head) = WEIGHTS;
    for (dtype, bytes) in [
        ("as-stored", layers / 32 * 20 + head / 32 * 34),
        ("f32", (layers + head) * 4),
        ("bf16", (layers + head) * 2),
        ("q8_0", (layers + head) / 32 * 34),
    ] {
        let options = LoadOptions {
            dtype: dtype.parse().expect("a dtype"),
            threads: Some(2),
            ..LoadOptions::default()
        };
        pass(
            c,
            &format!("cpu/pass/smollm2-{dtype}"),
            &load(&path, &options),
            Some(bytes),
        );
    }
}

fn load(path: &Path, options: &LoadOptions) -> Llama {
    let checkpoint = Checkpoint::open(path).expect("a checkpoint");
    Llama::load(&checkpoint, options).expect("a model")
}

/// Whole passes after 32 tokens, all rows wanted; nothing is committed.
fn pass(c: &mut Criterion, name: &str, model: &Llama, bytes: Option<u64>) {
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    let mut cache = model.new_cache(64);
    let mut rows = Rows::new();
    rows.chain(SeqId(1), 0, &[1; 32], Wanted::None)
        .expect("a chain");
    let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
    model.forward(&rows, &mut txn, &[]).expect("a pass");
    let all: Vec<usize> = (0..32).collect();
    txn.commit(SeqId(1), &all).expect("committed");
    drop(txn);
    for count in [1, 4, 8, 16] {
        let mut rows = Rows::new();
        rows.chain(SeqId(1), 32, &vec![2; count], Wanted::All)
            .expect("a chain");
        group.throughput(bytes.map_or(Throughput::Elements(count as u64), Throughput::Bytes));
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
                black_box(model.forward(&rows, &mut txn, &[]).expect("a pass"))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, tiny_pass, smollm2_pass);
