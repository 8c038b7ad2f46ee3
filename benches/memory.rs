//! `cpu/memory/read`: the ceiling of every bench whose throughput is in bytes.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use rayon::prelude::*;

/// Far more than a cache holds.
const VALUES: usize = 1 << 27;

/// Values that a thread takes at a time.
const PART: usize = 1 << 16;

fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0; 64];
    for values in values.as_chunks::<64>().0 {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/memory");
    let values = vec![1.0f32; VALUES];
    group.sample_size(20);
    group.throughput(Throughput::Bytes(size_of_val(&values[..]) as u64));
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.expect("threads");
        group.bench_function(format!("read/{threads}"), |b| {
            b.iter(|| pool.install(|| black_box(&values).par_chunks(PART).map(sum).sum::<f32>()));
        });
    }
    group.finish();
}

criterion_group!(benches, read);
