//! `cpu/attention`, `cpu/tree-paths`: rows over their own keys, and whose keys those are.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use eyrie::{
    SeqId,
    kernels::{Attention, Keys, Threads},
    model::{Rows, Wanted},
    tree::DraftTree,
};

use crate::values;

const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const Q: usize = HEADS * HEAD_DIM;
const KV: usize = KV_HEADS * HEAD_DIM;

/// Slots of each row: those before the pass, and its path in it.
type Slots = Vec<(Vec<u32>, Vec<u32>)>;

/// `rows` of one sequence of `keys` tokens that follow on each other.
fn chain(rows: u32, keys: u32) -> Slots {
    let row = |i| ((0..keys).collect(), (keys..=keys + i).collect());
    (0..rows).map(row).collect()
}

/// One row each of sequences of `step`, 2 `step`, ... tokens.
fn ragged(rows: u32, step: u32) -> Slots {
    let begin = |i: u32| i * (i + 1) / 2 * step;
    let row = |i| ((begin(i)..begin(i + 1)).collect(), vec![]);
    (0..rows).map(row).collect()
}

/// A tree of `width` children a node over `keys` tokens.
fn tree(width: u32, nodes: u32, keys: u32) -> Slots {
    let row = |node: u32| {
        let mut path = vec![keys + node];
        let mut at = node;
        while at > 0 {
            at = (at - 1) / width;
            path.push(keys + at);
        }
        path.reverse();
        ((0..keys).collect(), path)
    };
    (0..nodes).map(row).collect()
}

/// Bytes of different keys and values: what memory has to deliver once.
fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/attention");
    let threads = Threads::new(Some(2)).expect("two threads");
    let cases = [
        ("chain/1x64", chain(1, 64)),
        ("chain/1x512", chain(1, 512)),
        ("chain/1x4096", chain(1, 4096)),
        ("chain/8x512", chain(8, 512)),
        ("ragged/16x64..1024", ragged(16, 64)),
        ("tree/24x512", tree(4, 24, 512)),
    ];
    for (name, slots) in &cases {
        let all = slots
            .iter()
            .flat_map(|(prefix, path)| prefix.iter().chain(path));
        let count = all.max().map_or(0, |last| *last as usize + 1);
        let (q, k, v) = (
            values(slots.len() * Q),
            values(count * KV),
            values(count * KV),
        );
        let attention = Attention {
            q: &q,
            k: &k,
            v: &v,
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
        };
        let keys: Vec<_> = slots
            .iter()
            .map(|(prefix, path)| Keys { prefix, path })
            .collect();
        let mut out = vec![0.0; q.len()];
        group.throughput(Throughput::Bytes(
            (count * KV * 2 * size_of::<f32>()) as u64,
        ));
        group.bench_function(*name, |b| {
            threads.run(usize::MAX, |exec| {
                b.iter(|| attention.apply(black_box(&keys), &mut out, exec));
            });
        });
        if *name == "chain/8x512" {
            group.bench_function("chain-naive/8x512", |b| {
                b.iter(|| naive(black_box(&attention), count, slots));
            });
        }
    }
    group.finish();
}

/// Scores of all keys, a mask of those on the path, a sum over all of them.
fn naive(attention: &Attention<'_>, count: usize, slots: &Slots) -> Vec<f32> {
    let mut out = Vec::new();
    for ((prefix, path), q) in slots.iter().zip(attention.q.chunks_exact(Q)) {
        let mut mask = vec![f32::NEG_INFINITY; count];
        for slot in prefix.iter().chain(path) {
            mask[*slot as usize] = 0.0;
        }
        for (head, q) in q.chunks_exact(HEAD_DIM).enumerate() {
            let part = |all: &[f32], slot: usize| {
                let begin = slot * KV + head / (HEADS / KV_HEADS) * HEAD_DIM;
                <[f32; HEAD_DIM]>::try_from(&all[begin..begin + HEAD_DIM]).expect("a head")
            };
            let score = |(slot, mask): (usize, &f32)| {
                let k = part(attention.k, slot);
                (q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>() / 8.0 + mask).exp()
            };
            let weights: Vec<f32> = mask.iter().enumerate().map(score).collect();
            let total: f32 = weights.iter().sum();
            let mut mixed = [0.0; HEAD_DIM];
            for (slot, weight) in weights.iter().enumerate() {
                for (mixed, v) in mixed.iter_mut().zip(part(attention.v, slot)) {
                    *mixed += weight / total * v;
                }
            }
            out.extend(mixed);
        }
    }
    out
}

/// A tree as rows of a pass with their positions; the twin is the mask of who sees whom.
fn paths(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/tree-paths");
    for nodes in [24u32, 60] {
        let mut tree = DraftTree::new();
        let mut all = Vec::new();
        for i in 0..nodes {
            let parent = i.checked_sub(4).map(|at| all[at as usize / 4]);
            all.push(tree.point(parent, i).expect("the parent is there"));
        }
        group.throughput(Throughput::Elements(u64::from(nodes)));
        group.bench_function(BenchmarkId::new("rows", nodes), |b| {
            b.iter(|| {
                let tree = black_box(&tree);
                let tokens: Vec<u32> = tree.nodes().map(|node| tree.token(node)).collect();
                let index = |node: eyrie::Node| u32::try_from(node.index()).expect("a row");
                let parents: Vec<_> = tree.nodes().map(|n| tree.parent(n).map(index)).collect();
                let mut rows = Rows::new();
                rows.span(SeqId(1), 512, &tokens, &parents, Wanted::All)
                    .expect("rows");
                rows
            });
        });
        group.bench_function(BenchmarkId::new("mask-naive", nodes), |b| {
            b.iter(|| {
                let tree = black_box(&tree);
                let mut mask = vec![false; tree.len() * tree.len()];
                for node in tree.nodes() {
                    for above in tree.path(node) {
                        mask[node.index() * tree.len() + above.index()] = true;
                    }
                }
                mask
            });
        });
    }
    group.finish();
}

criterion_group!(benches, attention, paths);
