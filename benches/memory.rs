//! `cpu/memory/read`: the ceiling of every bench whose throughput is in bytes.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use eyrie::kernels::Memory;

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/memory");
    let memory = Memory::default();
    group.sample_size(20);
    group.throughput(Throughput::Bytes(memory.bytes() as u64));
    for threads in [1, 2] {
        group.bench_function(format!("read/{threads}"), |b| {
            b.iter(|| black_box(&memory).read(threads));
        });
    }
    group.finish();
}

criterion_group!(benches, read);
