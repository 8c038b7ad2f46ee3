//! Against the slice decoder on the same weights.

use candle_core::Device;
use eyrie::{
    Matrix,
    model::{Forward, Rows, Target, Wanted},
};
use eyrie_fixtures::{Dtype, Fixture, Quant, Rope, tt};

use super::{TOLERANCE, difference, pair, pair_at, pass, seq, test_device, tokens};

test_device!(
    chunks_trees_and_batches_are_the_slice_decoders,
    stored_types_are_the_slice_decoders,
    a_masked_row_is_not_seen,
    what_drafters_ask_for_is_the_slice_decoders,
);

/// Two layers: more amplify the last bits of a long context.
fn fixtures() -> Vec<(&'static str, Fixture)> {
    let two = Fixture { layers: 2, ..tt() };
    let llama3 = Rope::Llama3 {
        factor: 8.0,
        low: 1.0,
        high: 4.0,
        original: 32,
    };
    let with = |change: fn(&mut Fixture)| {
        let mut fixture = two.clone();
        change(&mut fixture);
        fixture
    };
    vec![
        ("grouped heads", two.clone()),
        ("tied", with(|f| f.tied = true)),
        ("one key head", with(|f| (f.kv_heads, f.seed) = (1, 3))),
        ("a key head each", with(|f| (f.kv_heads, f.seed) = (4, 4))),
        (
            "llama3 rope",
            Fixture {
                rope: llama3,
                ..two.clone()
            },
        ),
        (
            "wide",
            with(|f| {
                (f.hidden, f.intermediate) = (96, 200);
                (f.heads, f.kv_heads, f.head_dim) = (3, 1, 32);
            }),
        ),
    ]
}

/// Prompts in chunks by turns, a shared prefix, a tree beside chains in one pass, a commit of
/// scattered rows, a cut, and what follows on each: all outputs in order.
fn program(target: &dyn Target) -> Vec<Forward> {
    let mut cache = target.new_cache(256);
    let all_taps: Vec<usize> = (0..=target.layers()).rev().collect();
    let mut out = Vec::new();
    let (a, b, c) = (tokens(1, 64), tokens(2, 9), tokens(3, 20));

    let mut at = 0;
    for size in [1, 7, 16, 40] {
        let mut rows = Rows::new();
        rows.chain(seq(1), at, &a[at..at + size], Wanted::All)
            .unwrap();
        if at == 1 {
            rows.chain(seq(2), 0, &b, Wanted::Last).unwrap();
        }
        let keep: Vec<usize> = (0..size).collect();
        let others: Vec<usize> = (0..b.len()).collect();
        let keep = [&keep[..], &others];
        out.push(pass(target, &mut cache, &rows, &all_taps, &keep));
        at += size;
    }
    cache.fork(seq(1), seq(3), 30).unwrap();
    cache.fork(seq(2), seq(4), 9).unwrap();
    cache.truncate(seq(2), 5).unwrap();

    let parents = [
        None,
        Some(0),
        Some(0),
        Some(2),
        Some(1),
        Some(2),
        Some(5),
        None,
    ];
    let mut rows = Rows::new();
    rows.chain(seq(1), 64, &c[..1], Wanted::All).unwrap();
    rows.span(seq(3), 30, &c[1..9], &parents, Wanted::All)
        .unwrap();
    rows.chain(seq(2), 5, &c[9..14], Wanted::Last).unwrap();
    rows.chain(seq(4), 9, &c[14..16], Wanted::None).unwrap();
    let keep: [&[usize]; 4] = [&[0], &[0, 2, 5, 6], &[], &[0, 1]];
    out.push(pass(target, &mut cache, &rows, &all_taps, &keep));

    for (id, base) in [(1, 65), (3, 34), (2, 5), (4, 11)] {
        let mut rows = Rows::new();
        rows.chain(seq(id), base, &c[16..19], Wanted::All).unwrap();
        out.push(pass(target, &mut cache, &rows, &[0], &[&[0, 1, 2]]));
    }
    let mut rows = Rows::new();
    for (id, base) in [(4, 14), (2, 8), (3, 37), (1, 68)] {
        rows.chain(seq(id), base, &c[19..], Wanted::All).unwrap();
    }
    out.push(pass(target, &mut cache, &rows, &[], &[&[0][..]; 4]));
    out
}

/// The largest difference of logits, the largest of taps beside the largest tap, and the largest logit.
#[derive(Debug, Default)]
struct Worst {
    logits: f32,
    taps: f32,
    spread: f32,
}

fn compare(ours: &[Forward], theirs: &[Forward]) -> Worst {
    assert_eq!(ours.len(), theirs.len());
    let largest = |m: &Matrix| {
        m.as_slice()
            .iter()
            .fold(0.0f32, |most, x| most.max(x.abs()))
    };
    let mut worst = Worst::default();
    for (ours, theirs) in ours.iter().zip(theirs) {
        worst.logits = worst.logits.max(difference(&ours.logits, &theirs.logits));
        worst.spread = worst.spread.max(largest(&theirs.logits));
        assert_eq!(ours.taps.is_some(), theirs.taps.is_some());
        if let (Some(ours), Some(theirs)) = (&ours.taps, &theirs.taps) {
            let relative = difference(ours, theirs) / largest(theirs);
            worst.taps = worst.taps.max(relative);
        }
    }
    worst
}

fn chunks_trees_and_batches_are_the_slice_decoders(device: &Device) {
    for (name, fixture) in fixtures() {
        let (tensors, slices) = pair(&fixture, device);
        let worst = compare(&program(&tensors), &program(&slices));
        crate::support::say(&format!("{name}: {worst:?}; {}", tensors.describe()));
        assert!(
            worst.logits < TOLERANCE && worst.taps < TOLERANCE,
            "{name}: {worst:?}"
        );
        assert!(worst.spread > 1.0, "{name}: {worst:?} compares nothing");
    }
}

/// Floats as stored and quantised matrices unpacked. On a GPU products of 16-bit matrices round
/// their inputs to 8 (bf16) or 11 bits; the slice decoder's of quantised ones to 16, with a scale.
fn stored_types_are_the_slice_decoders(device: &Device) {
    let two = Fixture { layers: 2, ..tt() };
    let of = |dtype| Fixture {
        dtype,
        ..two.clone()
    };
    let rounded = |tolerance| match device {
        Device::Cpu => TOLERANCE,
        _ => tolerance,
    };
    for (dtype, tolerance) in [(Dtype::F16, rounded(0.03)), (Dtype::BF16, rounded(0.25))] {
        let (tensors, slices) = pair(&of(dtype), device);
        let worst = compare(&program(&tensors), &program(&slices));
        assert!(
            worst.logits < tolerance && worst.taps < tolerance,
            "{dtype:?}: {worst:?}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for quant in [Quant::Q8_0, Quant::Q4_1] {
        two.write_gguf(&path, quant).unwrap();
        let (tensors, slices) = pair_at(&path, device);
        let worst = compare(&program(&tensors), &program(&slices));
        assert!(
            worst.logits < 0.01 && worst.taps < 0.002,
            "{quant:?}: {worst:?}"
        );
    }
}

/// Logits of a node that has a sibling are those of its path alone; without the mask they are not.
fn a_masked_row_is_not_seen(device: &Device) {
    let (tensors, _) = pair(&Fixture { layers: 2, ..tt() }, device);
    let run = |tokens: &[u32], parents: &[Option<u32>]| {
        let mut rows = Rows::new();
        rows.span(seq(1), 0, tokens, parents, Wanted::Last).unwrap();
        pass(&tensors, &mut tensors.new_cache(8), &rows, &[], &[&[]]).logits
    };
    let straight = run(&[5, 9, 11], &[None, Some(0), Some(1)]);
    let beside = run(&[5, 40, 9, 11], &[None, Some(0), Some(0), Some(2)]);
    let after = run(&[5, 40, 9, 11], &[None, Some(0), Some(1), Some(2)]);
    assert!(difference(&straight, &beside) < TOLERANCE);
    assert!(difference(&straight, &after) > 100.0 * TOLERANCE);
}

fn what_drafters_ask_for_is_the_slice_decoders(device: &Device) {
    let (tensors, slices) = pair(&Fixture { tied: true, ..tt() }, device);
    let ask = |target: &dyn Target| {
        let embedded = target.embed(&[3, 63, 0]);
        let mut normed = embedded.clone();
        target.final_norm(&mut normed);
        let logits = target.head(&normed);
        (embedded, normed, logits)
    };
    assert_eq!(ask(&tensors), ask(&slices));
    let sizes = |target: &dyn Target| {
        let (vocab, context) = (target.vocab(), target.context());
        (vocab, context, target.layers(), target.hidden())
    };
    assert_eq!(sizes(&tensors), sizes(&slices));
}
