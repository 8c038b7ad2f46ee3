//! The penalty on repeated passages, against a twin that tries every length at every place.

use std::collections::{BTreeMap, BTreeSet};

use eyrie::{
    TokenId,
    sample::{Dry, RawParams, Semantics},
};
use proptest::prelude::*;

use super::{
    host,
    params::{assert_law, assert_same, bare, production, raws, rows, warm},
    twin::{self, Row},
};

/// What each token loses.
pub(super) fn lost(dry: &Dry, x: &[TokenId]) -> BTreeMap<TokenId, f64> {
    let n = x.len();
    let mut longest = BTreeMap::<TokenId, usize>::new();
    for i in 0..n.saturating_sub(1) {
        for length in 1..=50.min(i + 1) {
            let (there, here) = (&x[i + 1 - length..=i], &x[n - length..]);
            let broken = here[..length - 1].iter().any(|t| dry.breakers.contains(t));
            if there == here && !broken && !dry.breakers.contains(&x[i + 1]) {
                let most = longest.entry(x[i + 1]).or_default();
                *most = length.max(*most);
            }
        }
    }
    longest.retain(|_, length| *length >= dry.allowed_length);
    let cost = |length: usize| {
        let factors = std::iter::repeat_n(dry.base, length - dry.allowed_length);
        factors.fold(dry.multiplier, |a, b| a * b)
    };
    let costs = longest
        .into_iter()
        .map(|(token, length)| (token, cost(length)));
    costs.collect()
}

/// The parameters without the penalty, which is in the bias.
fn folded(raw: &RawParams, row: &Row) -> RawParams {
    let mut raw = raw.clone();
    let dry = raw.dry.take().expect("a penalty");
    let context = [row.prompt.as_slice(), &row.output, &row.path].concat();
    for (id, penalty) in lost(&dry, &context) {
        if (id as usize) < row.valid {
            *raw.logit_bias.entry(id).or_insert(0.0) -= penalty;
        }
    }
    raw
}

/// Few tokens, so that passages come again.
fn passages() -> impl Strategy<Value = Vec<TokenId>> {
    let some = prop::collection::vec(0u32..3, 0..40);
    let one = (0u32..3, 0..130usize).prop_map(|(token, n)| vec![token; n]);
    prop_oneof![4 => some, 1 => one]
}

fn dries() -> impl Strategy<Value = Dry> {
    // Small, so that the twin has a probability of everything.
    let multiplier = prop_oneof![Just(0.0), Just(0.25), Just(-0.125)];
    (
        multiplier,
        prop_oneof![Just(1.0), Just(1.0625), Just(0.5)],
        0..5usize,
        prop::collection::btree_set(0u32..3, 0..2),
    )
        .prop_map(|(multiplier, base, allowed_length, breakers)| Dry {
            multiplier,
            base,
            allowed_length,
            breakers,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn it_is_its_twin_under_both_semantics(
        raw in raws(), row in rows(), dry in dries(),
        prompt in passages(), output in passages(), path in prop::collection::vec(0u32..3, 0..5),
        host: bool,
    ) {
        let semantics = if host { Semantics::Host } else { Semantics::Eyrie };
        // Warm: a token that the output has 130 times gains more than the twin's probabilities can hold.
        let temperature = 1.0 + raw.temperature;
        let raw = RawParams { temperature, dry: Some(dry), semantics, ..raw };
        let row = Row { prompt, output, path, ..row };
        let plain = folded(&raw, &row);
        let twin = if host { host::law(&plain, &row) } else { twin::law(&plain, &row) };
        assert_same(production(&raw, &row), twin)?;
    }
}

fn dry(allowed_length: usize, breakers: BTreeSet<TokenId>) -> RawParams {
    let dry = Dry {
        multiplier: 2f64.ln(),
        base: 3.0,
        allowed_length,
        breakers,
    };
    RawParams {
        dry: Some(dry),
        ..warm()
    }
}

fn after(prompt: &[TokenId], path: &[TokenId]) -> Row {
    Row {
        prompt: prompt.to_vec(),
        path: path.to_vec(),
        ..bare(&[0.0; 3])
    }
}

/// By hand: each match of length l divides the weight of the token behind it by 2^(3^(l - allowed)).
#[test]
fn matches_by_hand() {
    let law = |weights: [f64; 3]| {
        let total: f64 = weights.iter().sum();
        weights.map(|w| w / total)
    };
    let none = BTreeSet::new();
    // 0 1 was followed by 2, and the context ends with 0 1: length 2.
    let row = after(&[0, 1, 2, 0, 1], &[]);
    assert_law(&dry(2, none.clone()), &row, &law([1.0, 1.0, 0.5]));
    assert_law(&dry(1, none.clone()), &row, &law([1.0, 1.0, 0.125]));
    assert_law(&dry(3, none.clone()), &row, &law([1.0, 1.0, 1.0]));
    // Drafts count as what was said.
    assert_law(
        &dry(2, none.clone()),
        &after(&[0, 1, 2], &[0, 1]),
        &law([1.0, 1.0, 0.5]),
    );
    // A breaker that would come next is free; one on the way back ends the match before it.
    assert_law(&dry(2, [2].into()), &row, &law([1.0, 1.0, 1.0]));
    assert_law(&dry(2, [0].into()), &row, &law([1.0, 1.0, 1.0]));
    assert_law(&dry(1, [0].into()), &row, &law([1.0, 1.0, 0.5]));
    // The last token itself may be one.
    assert_law(&dry(2, [1].into()), &row, &law([1.0, 1.0, 0.5]));
    // The longer of two matches counts.
    let row = after(&[1, 2, 0, 1, 2, 0, 1], &[]);
    assert_law(&dry(3, none.clone()), &row, &law([1.0, 1.0, 1.0 / 8.0]));
    // Nothing before the row, or one token, repeats nothing.
    assert_law(&dry(0, none.clone()), &after(&[], &[]), &law([1.0; 3]));
    assert_law(&dry(0, none), &after(&[1], &[]), &law([1.0; 3]));
}
