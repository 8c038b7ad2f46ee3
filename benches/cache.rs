//! Bookkeeping of one round: slots for a tree, the accepted path kept, the rest returned.

use std::{collections::BTreeMap, hint::black_box};

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use eyrie::{
    SeqId,
    cache::{KvCache, Txn},
};

const WIDTH: usize = 192;
const LENGTH: usize = 512;

/// A cache of `batch` sequences of `LENGTH` tokens.
fn filled(batch: u64) -> KvCache {
    let mut cache = KvCache::new(1, WIDTH, 32 * LENGTH);
    for seq in (0..batch).map(SeqId) {
        let mut txn = Txn::begin(&mut cache, &[(seq, LENGTH)]).expect("room");
        txn.commit(seq, &(0..LENGTH).collect::<Vec<_>>())
            .expect("its rows");
    }
    cache
}

/// One round of `rows` rows a sequence, of which the anchor and every third are kept.
fn round(cache: &mut KvCache, batch: u64, rows: usize) {
    let want: Vec<_> = (0..batch).map(|seq| (SeqId(seq), rows)).collect();
    let mut txn = Txn::begin(cache, &want).expect("room");
    let kept: Vec<usize> = (0..rows).step_by(3).collect();
    for (seq, _) in &want {
        txn.commit(*seq, &kept).expect("its rows");
    }
}

/// The twin: every sequence's keys in one list of its own, and rows moved to their places.
fn round_naive(lists: &mut BTreeMap<u64, Vec<f32>>, rows: usize) {
    for list in lists.values_mut() {
        let base = list.len();
        list.resize(base + rows * WIDTH, 0.0);
        for (to, from) in (0..rows).step_by(3).enumerate() {
            let from = base + from * WIDTH;
            list.copy_within(from..from + WIDTH, base + to * WIDTH);
        }
        list.truncate(base + rows.div_ceil(3) * WIDTH);
    }
}

fn commit(c: &mut Criterion) {
    for (batch, rows) in [(1u64, 5usize), (16, 5), (16, 25)] {
        let mut group = c.benchmark_group(format!("cpu/cache-round/{batch}x{rows}"));
        group.throughput(Throughput::Elements(batch * rows as u64));
        group.bench_function("slots", |b| {
            let setup = || filled(batch);
            let run = |mut cache: KvCache| {
                round(&mut cache, batch, rows);
                cache
            };
            b.iter_batched(setup, run, BatchSize::LargeInput);
        });
        let lists: BTreeMap<u64, Vec<f32>> = (0..batch)
            .map(|seq| (seq, vec![0.0; LENGTH * WIDTH]))
            .collect();
        group.bench_function("naive", |b| {
            let run = |mut lists: BTreeMap<u64, Vec<f32>>| {
                round_naive(&mut lists, rows);
                black_box(lists)
            };
            b.iter_batched(|| lists.clone(), run, BatchSize::LargeInput);
        });
        group.finish();
    }
}

criterion_group!(benches, commit);
