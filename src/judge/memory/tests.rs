use super::*;
use crate::{SeqId, model::Wanted};

const TARGET: Memory = Memory { vocab: 4, seed: 11 };

/// Logits after token 0, which follows those of tokens 1, 2 and 3 that are kept.
fn after(keep: &[usize]) -> Vec<f32> {
    let mut cache = TARGET.new_cache(8);
    let seq = SeqId(1);
    let mut rows = Rows::new();
    rows.chain(seq, 0, &[1, 2, 3], Wanted::None).unwrap();
    let mut txn = Txn::begin(&mut cache, &rows.want()).unwrap();
    TARGET.forward(&rows, &mut txn, &[]).unwrap();
    txn.commit(seq, keep).unwrap();
    drop(txn);
    let mut rows = Rows::new();
    rows.chain(seq, keep.len(), &[0], Wanted::Last).unwrap();
    let mut txn = Txn::begin(&mut cache, &rows.want()).unwrap();
    let out = TARGET.forward(&rows, &mut txn, &[]).unwrap();
    out.logits.row(0).to_vec()
}

#[test]
fn a_row_kept_by_mistake_changes_what_follows() {
    assert_eq!(after(&[0, 1, 2]), TARGET.logits(&[1, 2, 3, 0]));
    assert_eq!(after(&[0, 2]), TARGET.logits(&[1, 3, 0]));
    for wrong in [&[0, 1][..], &[0], &[2], &[0, 1, 2]] {
        assert_ne!(after(wrong), TARGET.logits(&[1, 3, 0]), "{wrong:?}");
    }
}

#[test]
fn siblings_do_not_see_each_other() {
    let mut cache = TARGET.new_cache(8);
    let seq = SeqId(1);
    let mut rows = Rows::new();
    let parents = [None, Some(0), Some(0), Some(2)];
    rows.span(seq, 0, &[1, 2, 3, 0], &parents, Wanted::All)
        .unwrap();
    let mut txn = Txn::begin(&mut cache, &rows.want()).unwrap();
    let out = TARGET.forward(&rows, &mut txn, &[0, 1]).unwrap();
    for (row, path) in [&[1][..], &[1, 2], &[1, 3], &[1, 3, 0]].iter().enumerate() {
        let expected = TARGET.logits(path);
        assert_eq!(out.logits.row(row), expected);
        let taps = out.taps.as_ref().unwrap().row(row);
        assert_eq!(taps[4..], expected);
        assert_eq!(taps[..4], *TARGET.embed(&path[path.len() - 1..]).row(0));
    }
}
