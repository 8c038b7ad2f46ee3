//! The cache against a plain list of tokens, for any program of passes, cuts, forks and releases.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use eyrie::{
    SeqId,
    cache::{KvCache, Txn},
};
use libfuzzer_sys::{Corpus, fuzz_target};

const SLOTS: usize = 20;
const WIDTH: usize = 2;

#[derive(Arbitrary, Debug)]
enum Op {
    /// Rows of some sequences, and by sequence the rows that are kept, if it is committed.
    Pass(Vec<(u8, u8, Option<Vec<u8>>)>),
    Truncate(u8, u8),
    Fork(u8, u8, u8),
    Release(u8),
}

#[derive(Arbitrary, Debug)]
struct Case {
    ops: Vec<Op>,
}

fn seq(id: u8) -> SeqId {
    SeqId(u64::from(id % 4))
}

fn read(cache: &mut KvCache, id: SeqId) -> Vec<f32> {
    let txn = Txn::begin(cache, &[]).expect("no rows always fit");
    let (k, _) = txn.layer(0);
    let slots = txn.prefix(id).iter();
    slots.map(|slot| k[*slot as usize * WIDTH]).collect()
}

fn pass(
    cache: &mut KvCache,
    model: &mut BTreeMap<SeqId, Vec<f32>>,
    rows: &[(u8, u8, Option<Vec<u8>>)],
    next: &mut f32,
) {
    let want: Vec<_> = rows
        .iter()
        .map(|(id, n, _)| (seq(*id), usize::from(*n % 8)))
        .collect();
    let total: usize = want.iter().map(|(_, n)| n).sum();
    let free = cache.free();
    let Some(mut txn) = Txn::begin(cache, &want) else {
        assert!(total > free);
        return;
    };
    let mut written: BTreeMap<SeqId, Vec<f32>> = BTreeMap::new();
    for id in want.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>() {
        let list = written.entry(id).or_default();
        for slot in txn.fresh(id).to_vec() {
            *next += 1.0;
            list.push(*next);
            txn.write(0, slot, &[*next; WIDTH], &[0.0; WIDTH]);
        }
    }
    for (id, _, kept) in rows {
        let Some(kept) = kept else { continue };
        let kept: Vec<usize> = kept.iter().map(|row| usize::from(*row % 8)).collect();
        let fresh = written.get(&seq(*id));
        let legal = kept.windows(2).all(|pair| pair[0] < pair[1])
            && fresh.is_some_and(|fresh| kept.iter().all(|row| *row < fresh.len()));
        assert_eq!(txn.commit(seq(*id), &kept).is_ok(), legal);
        if legal && let Some(fresh) = written.remove(&seq(*id)) {
            let tokens = model.entry(seq(*id)).or_default();
            tokens.extend(kept.iter().map(|row| fresh[*row]));
        }
    }
}

fuzz_target!(|case: Case| -> Corpus {
    if case.ops.len() > 200 {
        return Corpus::Reject;
    }
    let mut cache = KvCache::new(1, WIDTH, SLOTS);
    let mut model: BTreeMap<SeqId, Vec<f32>> = BTreeMap::new();
    let mut next = 0.0;
    for op in &case.ops {
        match op {
            Op::Pass(rows) => pass(&mut cache, &mut model, rows, &mut next),
            Op::Truncate(id, len) => {
                let tokens = model.entry(seq(*id)).or_default();
                let legal = usize::from(*len) <= tokens.len();
                assert_eq!(cache.truncate(seq(*id), usize::from(*len)).is_ok(), legal);
                if legal {
                    tokens.truncate(usize::from(*len));
                }
            }
            Op::Fork(from, to, len) => {
                let source = model.get(&seq(*from)).cloned().unwrap_or_default();
                let empty = model.get(&seq(*to)).is_none_or(Vec::is_empty);
                let legal = empty && usize::from(*len) <= source.len();
                let done = cache.fork(seq(*from), seq(*to), usize::from(*len));
                assert_eq!(done.is_ok(), legal);
                if legal {
                    model.insert(seq(*to), source[..usize::from(*len)].to_vec());
                }
            }
            Op::Release(id) => {
                cache.release(seq(*id));
                model.remove(&seq(*id));
            }
        }
        for id in (0..4).map(SeqId) {
            let want = model.get(&id).cloned().unwrap_or_default();
            assert_eq!(read(&mut cache, id), want);
        }
    }
    for id in (0..4).map(SeqId) {
        cache.release(id);
    }
    assert_eq!(cache.free(), SLOTS);
    Corpus::Keep
});
