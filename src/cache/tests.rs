//! The cache against a `Vec` of tokens: any program of passes, commits, cuts, forks and releases, with
//! keys and values in host memory and on a device.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor};
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

fn in_host_memory() -> KvCache {
    KvCache::new(LAYERS, WIDTH, SLOTS)
}

/// Key heads of one value each.
fn on_device() -> KvCache {
    KvCache::on_device(LAYERS, (WIDTH, 1), SLOTS, Device::Cpu)
}

/// The key and the value in a slot.
fn slot(txn: &Txn<'_>, layer: usize, slot: u32) -> [Vec<f32>; 2] {
    let range = slot as usize * WIDTH..(slot as usize + 1) * WIDTH;
    let Some((k, v)) = txn.tensors(layer) else {
        let (k, v) = txn.layer(layer);
        return [k, v].map(|side| side[range.clone()].to_vec());
    };
    [k, v].map(|side| {
        let side = side
            .narrow(1, slot as usize, 1)
            .and_then(|s| s.flatten_all());
        side.and_then(|s| s.to_vec1()).expect("a slot")
    })
}

/// Writes `token` as the key of `slot` and its negative as the value.
fn write(txn: &mut Txn<'_>, layer: usize, slot: u32, token: f32) {
    if txn.device().is_none() {
        txn.write(layer, slot, &[token; WIDTH], &[-token; WIDTH]);
        return;
    }
    let side = |value: f32| Tensor::full(value, (WIDTH, 1, 1), &Device::Cpu).expect("a tensor");
    let places = txn.places(&[slot]).expect("a slot of the pass");
    let (k, v) = (side(token), side(-token));
    txn.scatter(layer, &places, &k, &v).expect("written");
}

/// The tokens that the cache holds for `seq`, read through its slots, equal in both layers.
fn read(cache: &mut KvCache, seq: u64) -> Vec<f32> {
    let txn = Txn::begin(cache, &[]).expect("no rows always fit");
    let at = |layer: usize, place: &u32| {
        let [k, v] = slot(&txn, layer, *place);
        assert_eq!(k, [k[0]; WIDTH]);
        assert_eq!(v, [-k[0]; WIDTH]);
        k[0]
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
                write(&mut txn, layer, slot, *next);
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

fn holds_the_tokens_of_a_plain_list(mut cache: KvCache, ops: Vec<Op>) {
    let (mut model, mut next) = (Model::new(), 0.0);
    for op in ops {
        step(&mut cache, &mut model, op, &mut next);
        for seq in 0..4 {
            let want = model.get(&seq).cloned().unwrap_or_default();
            assert_eq!(cache.committed(SeqId(seq)), want.len());
            assert_eq!(read(&mut cache, seq), want);
        }
    }
    for seq in 0..4 {
        cache.release(SeqId(seq));
    }
    assert_eq!(cache.free(), SLOTS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn holds_the_tokens_of_a_plain_list_in_host_memory(ops in prop::collection::vec(op(), 1..60)) {
        holds_the_tokens_of_a_plain_list(in_host_memory(), ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn holds_the_tokens_of_a_plain_list_on_a_device(ops in prop::collection::vec(op(), 1..60)) {
        holds_the_tokens_of_a_plain_list(on_device(), ops);
    }
}

#[test]
fn what_is_on_a_device_is_written_by_the_rows_of_the_pass_alone() {
    let mut cache = on_device();
    let txn = Txn::begin(&mut cache, &[(SeqId(1), 2)]).expect("room");
    let slots = txn.fresh(SeqId(1)).to_vec();
    assert!(txn.places(&slots).is_ok() && txn.tensors(0).is_none());
    let foreign = slots.iter().max().expect("two slots") + 1;
    let error = txn
        .places(&[slots[0], foreign])
        .expect_err("not of the pass");
    assert!(
        error.to_string().contains(&format!("slot {foreign}")),
        "{error}"
    );
    let mut host = in_host_memory();
    let txn = Txn::begin(&mut host, &[(SeqId(1), 1)]).expect("room");
    let error = txn.places(txn.fresh(SeqId(1))).expect_err("no device");
    assert!(error.to_string().contains("host memory"), "{error}");
}

#[test]
fn an_error_between_begin_and_commit_leaves_no_trace() {
    let mut cache = in_host_memory();
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
