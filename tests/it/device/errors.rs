//! What is refused, and what it leaves.

use candle_core::Device;
use eyrie::{
    cache::{KvCache, Txn},
    model::{Rows, Target, TensorLlama, Wanted, load::Checkpoint},
};
use eyrie_fixtures::{Fixture, tt};

use super::{options, pair, pass, seq, test_device};

test_device!(
    a_refused_pass_leaves_nothing,
    caches_are_not_exchanged,
    quantised_types_are_refused_by_name,
);

/// A pass over `tokens` of sequence 1 at `base`, and its message.
fn refused(target: &dyn Target, cache: &mut KvCache, base: usize, tokens: &[u32]) -> String {
    let mut rows = Rows::new();
    rows.chain(seq(1), base, tokens, Wanted::Last).unwrap();
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let error = target.forward(&rows, &mut txn, &[]).expect_err("refused");
    error.to_string()
}

fn a_refused_pass_leaves_nothing(device: &Device) {
    let short = Fixture {
        max_position: 8,
        ..tt()
    };
    let (tensors, _) = pair(&short, device);
    let mut cache = tensors.new_cache(32);
    let mut rows = Rows::new();
    rows.chain(seq(1), 0, &[1, 2, 3], Wanted::All).unwrap();
    pass(&tensors, &mut cache, &rows, &[], &[&[0, 1, 2]]);
    for (base, tokens, expected) in [
        (3, &[5, 64][..], "rows: token 64, accepted are ids below 64"),
        (2, &[5], "base 2, accepted are the 3 committed tokens"),
        (3, &[5; 6], "position 8, accepted are positions below 8"),
    ] {
        let text = refused(&tensors, &mut cache, base, tokens);
        assert!(text.contains(expected), "{text}");
        assert_eq!((cache.committed(seq(1)), cache.free()), (3, 29));
    }
    let mut txn = Txn::begin(&mut cache, &[(seq(1), 1)]).expect("room");
    let mut rows = Rows::new();
    rows.chain(seq(1), 3, &[4], Wanted::All).unwrap();
    let error = tensors.forward(&rows, &mut txn, &[8]).expect_err("no tap");
    assert!(
        error.to_string().starts_with("tap 8: accepted are 0"),
        "{error}"
    );
    assert!(txn.places(&[31]).is_err(), "a slot of nobody is no place");
}

fn caches_are_not_exchanged(device: &Device) {
    let (tensors, slices) = pair(&tt(), device);
    let text = refused(&tensors, &mut slices.new_cache(8), 0, &[1]);
    assert!(
        text.starts_with("cache: keys in host memory, accepted are the network's on "),
        "{text}"
    );
    let text = refused(&slices, &mut tensors.new_cache(8), 0, &[1]);
    assert!(
        text.ends_with("accepted are the network's in host memory"),
        "{text}"
    );
}

fn quantised_types_are_refused_by_name(device: &Device) {
    let dir = tempfile::tempdir().unwrap();
    tt().write_dir(dir.path()).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let error = TensorLlama::load(&checkpoint, &options("q8_0"), device).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "dtype q8_0: accepted on a device are f32, bf16, f16 and as-stored (quantised matrices become f32)"
    );
}
