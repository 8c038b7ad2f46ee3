//! The cache against a `Vec` of tokens: any program of passes, commits, cuts, forks and releases.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LAYERS: usize = 2;
const WIDTH: usize = 3;
const SLOTS: usize = 24;

#[derive(Clone, Debug)]
enum Op {
    /// A pass over rows of some sequences; by sequence, the rows kept, or nothing committed.
    Pass(Vec<(u64, usize, Option<Vec<usize>>)>),
    Truncate(u64, usize),
    Fork(u64, u64, usize),
    Release(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let kept = prop::option::of(prop::collection::vec(0usize..7, 0..5));
    prop_oneof![
        4 => prop::collection::vec((0u64..4, 0usize..6, kept), 1..4).prop_map(Op::Pass),
        1 => (0u64..4, 0usize..10).prop_map(|(seq, len)| Op::Truncate(seq, len)),
        1 => (0u64..4, 0u64..4, 0usize..6).prop_map(|(from, to, len)| Op::Fork(from, to, len)),
        1 => (0u64..4).prop_map(Op::Release),
    ]
}

/// What the cache should hold: the tokens themselves.
type Model = BTreeMap<u64, Vec<f32>>;

/// The tokens that the cache holds for `seq`, read through its slots, equal in both layers.
fn read(cache: &mut KvCache, seq: u64) -> Vec<f32> {
    let txn = Txn::begin(cache, &[]).expect("no rows always fit");
    let at = |layer: usize, slot: &u32| {
        let (k, v) = txn.layer(layer);
        let range = *slot as usize * WIDTH..(*slot as usize + 1) * WIDTH;
        assert!(k[range.clone()].iter().all(|x| *x == k[range.start]));
        assert_eq!(k[range.start], -v[range.start]);
        k[range.start]
    };
    let tokens = |layer| -> Vec<f32> {
        let slots = txn.prefix(SeqId(seq)).iter();
        slots.map(|slot| at(layer, slot)).collect()
    };
    assert_eq!(tokens(0), tokens(1));
    tokens(0)
}

/// Runs a pass on the cache and on the model. Tokens are numbered as they are written.
fn pass(
    cache: &mut KvCache,
    model: &mut Model,
    rows: &[(u64, usize, Option<Vec<usize>>)],
    next: &mut f32,
) {
    let want: Vec<_> = rows.iter().map(|(seq, n, _)| (SeqId(*seq), *n)).collect();
    let (free, total) = (cache.free(), want.iter().map(|w| w.1).sum::<usize>());
    let Some(mut txn) = Txn::begin(cache, &want) else {
        assert!(total > free, "refused although {free} slots were free");
        return;
    };
    assert!(total <= free);
    let mut written = BTreeMap::<u64, Vec<f32>>::new();
    for seq in rows
        .iter()
        .map(|r| r.0)
        .collect::<std::collections::BTreeSet<_>>()
    {
        for slot in txn.fresh(SeqId(seq)).to_vec() {
            *next += 1.0;
            written.entry(seq).or_default().push(*next);
            for layer in 0..LAYERS {
                txn.write(layer, slot, &[*next; WIDTH], &[-*next; WIDTH]);
            }
        }
    }
    for (seq, _, kept) in rows {
        let Some(kept) = kept else { continue };
        let fresh = written.get(seq).cloned().unwrap_or_default();
        let legal = kept.windows(2).all(|w| w[0] < w[1]) && kept.iter().all(|r| *r < fresh.len());
        let open = !txn.fresh(SeqId(*seq)).is_empty() || want.iter().any(|w| w.0 == SeqId(*seq));
        let done = txn.commit(SeqId(*seq), kept);
        if done.is_ok() {
            assert!(legal && open);
            let tokens = model.entry(*seq).or_default();
            tokens.extend(kept.iter().map(|r| fresh[*r]));
            written.remove(seq);
        } else {
            assert!(!legal || !written.contains_key(seq));
        }
    }
}

fn step(cache: &mut KvCache, model: &mut Model, op: Op, next: &mut f32) {
    match op {
        Op::Pass(rows) => pass(cache, model, &rows, next),
        Op::Truncate(seq, len) => {
            let tokens = model.entry(seq).or_default();
            let legal = len <= tokens.len();
            assert_eq!(cache.truncate(SeqId(seq), len).is_ok(), legal);
            tokens.truncate(if legal { len } else { usize::MAX });
        }
        Op::Fork(from, to, len) => {
            let source = model.get(&from).cloned().unwrap_or_default();
            let empty = model.get(&to).is_none_or(Vec::is_empty);
            let legal = empty && len <= source.len();
            assert_eq!(cache.fork(SeqId(from), SeqId(to), len).is_ok(), legal);
            if legal {
                model.insert(to, source[..len].to_vec());
            }
        }
        Op::Release(seq) => {
            cache.release(SeqId(seq));
            model.remove(&seq);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn holds_the_tokens_of_a_plain_list(ops in prop::collection::vec(op(), 1..60)) {
        let mut cache = KvCache::new(LAYERS, WIDTH, SLOTS);
        let (mut model, mut next) = (Model::new(), 0.0);
        for op in ops {
            step(&mut cache, &mut model, op, &mut next);
            for seq in 0..4 {
                let want = model.get(&seq).cloned().unwrap_or_default();
                prop_assert_eq!(cache.committed(SeqId(seq)), want.len());
                prop_assert_eq!(read(&mut cache, seq), want);
            }
        }
        for seq in 0..4 {
            cache.release(SeqId(seq));
        }
        prop_assert_eq!(cache.free(), SLOTS);
    }
}

#[test]
fn an_error_between_begin_and_commit_leaves_no_trace() {
    let mut cache = KvCache::new(LAYERS, WIDTH, SLOTS);
    let (seq, other) = (SeqId(1), SeqId(2));
    let mut failing = || -> Result<()> {
        let mut txn = Txn::begin(&mut cache, &[(seq, 3), (other, 2)]).expect("room");
        txn.commit(other, &[0, 1])?;
        txn.commit(seq, &[2, 1])
    };
    let message = failing().expect_err("descending rows").to_string();
    assert!(
        message.contains("[2, 1]") && message.contains("sequence 1"),
        "{message}"
    );
    assert_eq!(
        (cache.committed(seq), cache.committed(other), cache.free()),
        (0, 2, SLOTS - 2)
    );
}
