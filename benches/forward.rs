//! `cpu/linear`, `cpu/attention`, `cpu/pass`.

use std::{hint::black_box, path::Path};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use eyrie::{
    SeqId,
    cache::Txn,
    kernels::{Attention, Exec, Format, Keys, Threads, Weight},
    model::{Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
};
use eyrie_fixtures::tt;

/// Values between -1 and 1, in no order.
fn values(count: usize) -> Vec<f32> {
    let mut mixed = 1u32;
    let next = std::iter::repeat_with(|| {
        mixed = mixed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [.., low, high] = mixed.to_le_bytes();
        f32::from(i16::from_le_bytes([low, high])) / 32_768.0
    });
    next.take(count).collect()
}

/// The linear layers of SmolLM2-135M on two threads; the twin multiplies in plain loops.
fn linear(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/linear");
    let threads = Threads::new(Some(2)).expect("two threads");
    let shapes = [
        (576, 576),
        (192, 576),
        (1536, 576),
        (576, 1536),
        (49_152, 576),
    ];
    for format in [Format::F32, Format::Q8_0, Format::Q4_1] {
        for (outputs, width) in shapes {
            let row = format.row_bytes(width).expect("whole blocks");
            let bytes = (0..61).cycle().take(row * outputs).collect();
            let weight = Weight::new(format, outputs, width, bytes).expect("a matrix");
            for rows in [1, 4, 8, 16] {
                let x = values(rows * width);
                let mut y = vec![0.0; rows * outputs];
                group.throughput(Throughput::Elements((rows * outputs * width) as u64));
                let size = format!("{outputs}x{width}/{format}");
                group.bench_function(BenchmarkId::new(size, rows), |b| {
                    threads.run(usize::MAX, |exec| {
                        b.iter(|| weight.apply(black_box(&x), &mut y, exec));
                    });
                });
            }
        }
    }
    let (outputs, width) = (1536, 576);
    let (w, x) = (values(outputs * width), values(width));
    group.throughput(Throughput::Elements((outputs * width) as u64));
    group.bench_function("1536x576/naive/1", |b| {
        b.iter(|| {
            let rows = w.chunks_exact(x.len());
            let dot = |row: &[f32]| row.iter().zip(&x).map(|(w, x)| w * x).sum::<f32>();
            black_box(rows.map(dot).collect::<Vec<_>>())
        });
    });
    group.finish();
}

/// One row of SmolLM2-135M's heads, on one thread.
fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/attention");
    let (heads, kv_heads, head_dim) = (9, 3, 64);
    for count in [64, 512, 4096] {
        let kv = values(count * 192);
        let attention = Attention {
            q: &values(576),
            k: &kv,
            v: &kv,
            heads,
            kv_heads,
            head_dim,
        };
        let slots: Vec<u32> = (0..).take(count).collect();
        let keys = [Keys {
            prefix: &slots,
            path: &[],
        }];
        let mut out = vec![0.0; 576];
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("9x64", count), |b| {
            b.iter(|| attention.apply(black_box(&keys), &mut out, Exec::Serial));
        });
    }
    group.finish();
}

fn tiny_pass(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tt().write_dir(dir.path()).expect("written");
    let model = load(dir.path(), &LoadOptions::default());
    pass(c, "cpu/pass/tt", &model);
}

fn smollm2_pass(c: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        return;
    }
    for dtype in ["as-stored", "f32", "q8_0"] {
        let options = LoadOptions {
            dtype: dtype.parse().expect("a dtype"),
            threads: Some(2),
            ..LoadOptions::default()
        };
        pass(
            c,
            &format!("cpu/pass/smollm2-{dtype}"),
            &load(&path, &options),
        );
    }
}

fn load(path: &Path, options: &LoadOptions) -> Llama {
    let checkpoint = Checkpoint::open(path).expect("a checkpoint");
    Llama::load(&checkpoint, options).expect("a model")
}

/// Whole passes after 32 tokens, all rows wanted; nothing is committed.
fn pass(c: &mut Criterion, name: &str, model: &Llama) {
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
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
                black_box(model.forward(&rows, &mut txn, &[]).expect("a pass"))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, linear, attention, tiny_pass, smollm2_pass);
