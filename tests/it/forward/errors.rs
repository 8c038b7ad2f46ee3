//! What a pass refuses, and what loading does.

use eyrie::{
    SeqId,
    cache::{KvCache, Txn},
    model::{Llama, LoadOptions, Rows, Target, Wanted, load::Checkpoint},
};
use eyrie_fixtures::{Dtype, Fixture, tt};

use super::{bits, feed, llama, tokens};

/// The message of a pass over `tokens` of sequence 1 at `base` in `cache`.
fn refused(model: &Llama, cache: &mut KvCache, base: usize, tokens: &[u32], tap: usize) -> String {
    let mut rows = Rows::new();
    rows.chain(SeqId(1), base, tokens, Wanted::Last)
        .expect("a chain");
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let error = model.forward(&rows, &mut txn, &[tap]).expect_err("refused");
    error.to_string()
}

#[test]
fn a_pass_names_what_does_not_exist() {
    let model = llama(
        &Fixture {
            max_position: 8,
            ..tt()
        },
        "f32",
        1,
    );
    let mut cache = model.new_cache(32);
    feed(&model, &mut cache, SeqId(1), &[1, 2, 3], &[]);
    let mut case = |base, tokens: &[u32], tap, expected: &str| {
        assert_eq!(refused(&model, &mut cache, base, tokens, tap), expected);
    };
    case(3, &[5, 64], 0, "rows: token 64, accepted are ids below 64");
    case(
        3,
        &[5],
        8,
        "tap 8: accepted are 0 (embeddings) to 7 (after the last layer)",
    );
    case(
        2,
        &[5],
        0,
        "rows: sequence 1: base 2, accepted are the 3 committed tokens",
    );
    case(
        3,
        &[5; 6],
        0,
        "rows: sequence 1: position 8, accepted are positions below 8",
    );
    feed(&model, &mut cache, SeqId(1), &[5; 5], &[7]);

    let mut other = KvCache::new(7, 12, 8);
    let text = refused(&model, &mut other, 0, &[1], 0);
    assert_eq!(
        text,
        "cache: keys of 12 values, accepted are the network's 16"
    );

    let mut rows = Rows::new();
    rows.chain(SeqId(9), 0, &[1, 2], Wanted::All)
        .expect("a chain");
    let mut txn = Txn::begin(&mut cache, &[(SeqId(9), 3)]).expect("room");
    let error = model
        .forward(&rows, &mut txn, &[])
        .expect_err("three slots for two rows");
    assert_eq!(
        error.to_string(),
        "rows: sequence 9: 2 rows, accepted are the 3 of the transaction"
    );
}

#[test]
fn a_type_whose_blocks_do_not_fit_is_refused_by_tensor() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tt().write_dir(dir.path()).expect("written");
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    let options = LoadOptions {
        dtype: "q4_k".parse().expect("a dtype"),
        ..LoadOptions::default()
    };
    let error = Llama::load(&checkpoint, &options).expect_err("32 is no multiple of 256");
    assert_eq!(
        error.to_string(),
        "tensor model.embed_tokens.weight: rows of 32 values cannot become q4_k, accepted are multiples of 256"
    );
}

#[test]
fn stored_floats_convert_exactly_and_every_tensor_is_counted() {
    for dtype in [Dtype::F16, Dtype::BF16] {
        let fixture = Fixture { dtype, ..tt() };
        let (stored, single) = (llama(&fixture, "as-stored", 1), llama(&fixture, "f32", 1));
        let run = |model: &Llama| {
            let logits = feed(
                model,
                &mut model.new_cache(32),
                SeqId(1),
                &tokens(1, 30),
                &[],
            )
            .logits;
            bits(logits.as_slice())
        };
        assert_eq!(run(&stored), run(&single));
    }

    let dir = tempfile::tempdir().expect("a temporary directory");
    let fixture = Fixture { tied: true, ..tt() };
    fixture.write_dir(dir.path()).expect("written");
    let checkpoint = Checkpoint::open(dir.path()).expect("opens");
    let mut seen = Vec::new();
    let options = LoadOptions {
        head_dtype: Some("q8_0".parse().expect("a dtype")),
        ..LoadOptions::default()
    };
    let model = Llama::load_with(&checkpoint, &options, &mut |done, all| {
        seen.push((done, all))
    });
    assert_eq!(
        seen.last(),
        Some(&(65, 65)),
        "7 layers of 9, embedding and norm"
    );
    assert_eq!(
        model.expect("loads").describe(),
        "llama, 7 layers of 32, 64 tokens, matrices 50 x f32 (0.2 MB), 1 x q8_0 (0.0 MB)"
    );
}
