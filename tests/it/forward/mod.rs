//! The pass of a model: parity with an independent implementation, and row invariance.

#![expect(
    clippy::print_stdout,
    reason = "measured differences, and what was skipped"
)]

mod errors;
mod invariance;
mod parity;
mod smollm2;

use std::path::Path;

use eyrie::{
    SeqId, TokenId,
    cache::{KvCache, Txn},
    model::{Dtype, Forward, Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
};
use eyrie_fixtures::Fixture;

/// The fixture as a safetensors directory, loaded with `dtype` on `threads` threads.
fn llama(fixture: &Fixture, dtype: &str, threads: usize) -> Llama {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fixture
        .write_dir(dir.path())
        .expect("the fixture is written");
    open(dir.path(), dtype, threads)
}

fn open(path: &Path, dtype: &str, threads: usize) -> Llama {
    let checkpoint = Checkpoint::open(path).expect("the checkpoint opens");
    let options = LoadOptions {
        dtype: dtype.parse::<Dtype>().expect("a dtype"),
        head_dtype: None,
        threads: Some(threads),
    };
    Llama::load(&checkpoint, &options).expect("the model loads")
}

/// Feeds `tokens` after what `seq` has, all rows wanted, and commits them.
fn feed(
    target: &dyn Target,
    cache: &mut KvCache,
    seq: SeqId,
    tokens: &[TokenId],
    taps: &[usize],
) -> Forward {
    let mut rows = Rows::new();
    let base = cache.committed(seq);
    rows.chain(seq, base, tokens, Wanted::All).expect("a chain");
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let forward = target.forward(&rows, &mut txn, taps).expect("a pass");
    let all: Vec<usize> = (0..tokens.len()).collect();
    txn.commit(seq, &all).expect("committed");
    forward
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Tokens of a vocabulary of 64, in no order.
fn tokens(seed: u32, count: u32) -> Vec<TokenId> {
    let mix = |i: u32| {
        (i + 1)
            .wrapping_mul(2_654_435_761)
            .wrapping_add(seed * 7919)
            >> 13
    };
    (0..count).map(|i| mix(i) % 64).collect()
}

fn argmax(logits: &[f32]) -> usize {
    let best = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (0..logits.len()).fold(0, best)
}
