//! `cpu/ngram`: one guess by the text's own repetitions; bytes of tokens looked through.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use eyrie::{
    SeqId, TokenId,
    draft::{Anchor, Drafter, Ngram},
    sample::{Chain, Counts, Keyed, RawParams, SamplingParams},
    tree::DraftTree,
};

const DEPTH: usize = 4;

/// Words in an order that repeats now and then.
fn text(count: usize) -> Vec<TokenId> {
    let mut mixed = 1u32;
    let next = std::iter::repeat_with(|| {
        mixed = mixed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        mixed >> 26
    });
    next.take(count).collect()
}

fn guess(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/ngram");
    let params = SamplingParams::new(RawParams::default()).expect("in range");
    let chain = Chain::new(params, 64, 64, Vec::new()).expect("no bias");
    for count in [512, 4096] {
        let tokens = text(count);
        let counts = Counts::new(&tokens);
        group.throughput(Throughput::Bytes(size_of_val(&tokens[..]) as u64));
        group.bench_function(BenchmarkId::new("guess", count), |b| {
            b.iter(|| {
                let anchor = Anchor {
                    seq: SeqId(0),
                    tokens: black_box(&tokens),
                    round: 0,
                    depth: DEPTH,
                    nodes: DEPTH,
                    chain: &chain,
                    counts: &counts,
                    draws: &mut Keyed::new(7),
                };
                let mut tree = [DraftTree::new()];
                let guessed = Ngram.propose(&mut [anchor], &mut tree);
                guessed.expect("a guess");
                tree
            });
        });
        group.bench_function(BenchmarkId::new("guess-naive", count), |b| {
            b.iter(|| naive(black_box(&tokens)));
        });
    }
    group.finish();
}

/// Every earlier end, compared backwards.
fn naive(tokens: &[TokenId]) -> Option<usize> {
    let same = |end: usize| {
        let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
        (pairs.take_while(|(a, b)| a == b).count(), end)
    };
    (1..tokens.len()).map(same).max().map(|(_, end)| end)
}

criterion_group!(benches, guess);
