//! Any row of any pass equals that row alone, bit for bit.

use std::sync::LazyLock;

use eyrie::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    model::{Llama, Rows, Target, Wanted},
};
use eyrie_fixtures::{Fixture, Quant, tt};
use proptest::prelude::*;

use super::{bits, feed, llama, open, tokens};

const DTYPES: [&str; 9] = [
    "as-stored",
    "f32",
    "bf16",
    "f16",
    "q8_0",
    "q4_0",
    "q4_1",
    "q4_k",
    "q6_k",
];

/// Wide enough that passes of a few rows run in parallel, and for blocks of 256.
fn wide() -> Fixture {
    Fixture {
        hidden: 256,
        intermediate: 512,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        layers: 2,
        ..tt()
    }
}

/// Every type of weights on 1, 2, 3 and 4 threads, and TT.
static MODELS: LazyLock<Vec<Llama>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("q4_1.gguf");
    wide().write_gguf(&path, Quant::Q4_1).expect("written");
    let all = DTYPES.iter().flat_map(|dtype| {
        let path = path.clone();
        (1..=4).map(move |threads| match *dtype {
            "as-stored" => open(&path, dtype, threads),
            _ => llama(&wide(), dtype, threads),
        })
    });
    all.chain([llama(&tt(), "f32", 1), llama(&tt(), "q8_0", 2)])
        .collect()
});

/// A sequence's rows of a pass: committed tokens, then a tree.
#[derive(Clone, Debug)]
struct Case {
    prefix: Vec<TokenId>,
    /// Whether the prefix is the first sequence's, shared.
    shared: bool,
    tree: Vec<TokenId>,
    parents: Vec<Option<u32>>,
}

fn case() -> impl Strategy<Value = Case> {
    let row = (0u32..64, any::<u8>(), any::<prop::sample::Index>());
    (
        prop::collection::vec(0u32..64, 0..24),
        any::<bool>(),
        prop::collection::vec(row, 1..16),
    )
        .prop_map(|(prefix, shared, rows)| {
            let parent = |(i, (_, kind, index)): (usize, &(u32, u8, prop::sample::Index))| {
                let any = |i: usize| u32::try_from(index.index(i)).expect("few rows");
                match (i, kind) {
                    (0, _) | (_, 0..16) => None,
                    (_, 16..128) => u32::try_from(i - 1).ok(),
                    _ => Some(any(i)),
                }
            };
            Case {
                prefix,
                shared,
                parents: rows.iter().enumerate().map(parent).collect(),
                tree: rows.iter().map(|row| row.0).collect(),
            }
        })
}

/// Logits and taps of one pass over all cases, on whatever slots came of feeding the prefixes in
/// pieces by turns with holes between them.
fn packed(model: &Llama, cases: &[Case], taps: &[usize]) -> (Matrix, Matrix) {
    let mut cache = model.new_cache(512);
    let seq = |i: usize| SeqId(i as u64);
    let hole = SeqId(1000);
    let mut done = vec![0; cases.len()];
    for round in 0.. {
        let mut idle = true;
        for (i, case) in cases
            .iter()
            .enumerate()
            .filter(|(i, c)| *i == 0 || !c.shared)
        {
            let to = (done[i] + 1 + (round + i) % 4).min(case.prefix.len());
            if done[i] < to {
                feed(model, &mut cache, seq(i), &case.prefix[done[i]..to], &[]);
                feed(model, &mut cache, hole, &[1], &[]);
                (done[i], idle) = (to, false);
            }
        }
        if idle {
            break;
        }
    }
    cache.release(hole);
    for (i, case) in cases.iter().enumerate().skip(1).filter(|(_, c)| c.shared) {
        cache
            .fork(seq(0), seq(i), case.prefix.len())
            .expect("a prefix");
    }

    let mut rows = Rows::new();
    for (i, case) in cases.iter().enumerate() {
        rows.span(
            seq(i),
            case.prefix.len(),
            &case.tree,
            &case.parents,
            Wanted::All,
        )
        .expect("a tree");
    }
    let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
    let forward = model.forward(&rows, &mut txn, taps).expect("a pass");
    (forward.logits, forward.taps.expect("taps"))
}

/// Logits and taps of every row, each fed alone, one token at a time from the start.
fn alone(model: &Llama, case: &Case, taps: &[usize]) -> Vec<(Vec<f32>, Vec<f32>)> {
    let mut cache = model.new_cache(2048);
    for token in &case.prefix {
        feed(model, &mut cache, SeqId(0), &[*token], &[]);
    }
    let of = |row: usize| SeqId(1 + row as u64);
    let mut all = Vec::new();
    for (i, (token, parent)) in case.tree.iter().zip(&case.parents).enumerate() {
        let from = parent.map_or(SeqId(0), |parent| of(parent as usize));
        let length = cache.committed(from);
        cache.fork(from, of(i), length).expect("the parent's path");
        let forward = feed(model, &mut cache, of(i), &[*token], taps);
        let tap = forward.taps.expect("taps").row(0).to_vec();
        all.push((forward.logits.row(0).to_vec(), tap));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_row_of_any_pass_is_that_row_alone(
        model in 0..MODELS.len(),
        mut cases in prop::collection::vec(case(), 1..5),
    ) {
        let model = &MODELS[model];
        let first = cases[0].prefix.clone();
        for case in cases.iter_mut().skip(1).filter(|case| case.shared) {
            case.prefix = first[..case.prefix.len().min(first.len())].to_vec();
        }
        let taps = [0, 1, 2];
        let (logits, tapped) = packed(model, &cases, &taps);
        let expected = cases.iter().flat_map(|case| alone(model, case, &taps));
        for (row, (one, tap)) in expected.enumerate() {
            prop_assert_eq!(bits(logits.row(row)), bits(&one), "logits of row {}", row);
            prop_assert_eq!(bits(tapped.row(row)), bits(&tap), "taps of row {}", row);
        }
    }
}

/// 64 rows at once, in every type and on every number of threads, chunked in every way.
#[test]
fn chunks_and_threads_change_no_bit() {
    let prompt = tokens(9, 64);
    for (types, models) in DTYPES.iter().zip(MODELS.chunks(4)) {
        let run = |model: &Llama, size: usize| {
            let mut cache = model.new_cache(64);
            let chunks = prompt.chunks(size);
            let logits = chunks.map(|c| feed(model, &mut cache, SeqId(1), c, &[]).logits);
            logits.flat_map(|m| bits(m.as_slice())).collect::<Vec<_>>()
        };
        let plain = run(&models[0], 1);
        for model in models {
            for size in [1, 2, 5, 33, 64] {
                assert!(run(model, size) == plain, "{types} in chunks of {size}");
            }
        }
    }
}

/// Case 51: a pass of several tokens after a cached prefix equals one token at a time.
#[test]
fn case_51_several_tokens_after_a_prefix_equal_one_at_a_time() {
    for model in MODELS.iter() {
        let taps = [0, 1, model.layers()];
        let (prompt, next) = (tokens(1, 5), tokens(2, 3));
        let mut cache = model.new_cache(32);
        feed(model, &mut cache, SeqId(1), &prompt, &[]);
        let together = feed(model, &mut cache, SeqId(1), &next, &taps);
        for token in &prompt {
            feed(model, &mut cache, SeqId(2), &[*token], &[]);
        }
        for (row, token) in next.iter().enumerate() {
            let one = feed(model, &mut cache, SeqId(2), &[*token], &taps);
            assert_eq!(bits(together.logits.row(row)), bits(one.logits.row(0)));
            let (all, one) = (together.taps.as_ref(), one.taps);
            let all = all.map(|taps| bits(taps.row(row)));
            assert_eq!(all, one.map(|taps| bits(taps.row(0))));
        }
    }
}

/// Case 38, the model's part: the rows of a tree equal the chains of their paths, and after a
/// commit of scattered rows the sequence goes on as if only they had been fed.
#[test]
fn case_38_tree_rows_equal_their_paths_and_scattered_rows_stay() {
    let model = llama(&tt(), "f32", 1);
    let prompt = tokens(3, 6);
    let tree = tokens(4, 7);
    let parents = [None, Some(0), Some(0), Some(2), Some(1), Some(2), Some(5)];
    let path = [0, 2, 5, 6];
    let chain: Vec<_> = path.iter().map(|row| tree[*row]).collect();

    let mut cache = model.new_cache(64);
    feed(&model, &mut cache, SeqId(1), &prompt, &[]);
    feed(&model, &mut cache, SeqId(2), &prompt, &[]);
    let straight = feed(&model, &mut cache, SeqId(2), &chain, &[]).logits;

    let mut rows = Rows::new();
    rows.span(SeqId(1), 6, &tree, &parents, Wanted::All)
        .expect("a tree");
    assert_eq!(rows.positions(), [6, 7, 7, 8, 8, 8, 9]);
    let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
    let logits = model.forward(&rows, &mut txn, &[]).expect("a pass").logits;
    txn.commit(SeqId(1), &path).expect("committed");
    drop(txn);
    for (i, row) in path.iter().enumerate() {
        assert_eq!(bits(logits.row(*row)), bits(straight.row(i)));
    }
    assert_ne!(bits(logits.row(3)), bits(logits.row(5)), "siblings differ");

    for token in tokens(5, 20) {
        let step = |cache: &mut KvCache, seq| {
            let forward = feed(&model, cache, SeqId(seq), &[token], &[]);
            bits(forward.logits.as_slice())
        };
        assert_eq!(step(&mut cache, 1), step(&mut cache, 2));
    }
}
