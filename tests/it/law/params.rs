//! Every sampling parameter against the twin, and the order of the chain by examples.

use std::collections::BTreeMap;

use eyrie::{
    TokenId,
    sample::{Chain, Counts, Dist, Fault, History, RawParams, SamplingParams},
};
use proptest::{prelude::*, sample::subsequence};

use super::twin::{self, Row};

pub(super) fn production(raw: &RawParams, row: &Row) -> Result<Dist, Fault> {
    with(raw, row, Chain::law)
}

type Read = fn(&Chain, &[f32], &History<'_>) -> Result<Dist, Fault>;

fn with(raw: &RawParams, row: &Row, read: Read) -> Result<Dist, Fault> {
    let params = SamplingParams::new(raw.clone()).unwrap();
    let chain = Chain::new(params, row.logits.len(), row.valid, row.ends.clone()).unwrap();
    let mut counts = Counts::new(&row.prompt);
    row.output.iter().for_each(|&token| counts.push(token));
    let history = History {
        counts: &counts,
        tokens: &[row.prompt.as_slice(), &row.output].concat(),
        path: &row.path,
    };
    read(&chain, &row.logits, &history)
}

/// A row of these logits with nothing before it.
pub(super) fn bare(logits: &[f32]) -> Row {
    Row {
        logits: logits.to_vec(),
        prompt: vec![],
        output: vec![],
        path: vec![],
        valid: logits.len(),
        ends: vec![],
    }
}

/// Logits of a law, near enough to tell what was kept.
pub(super) fn logits(p: &[f32]) -> Vec<f32> {
    p.iter().map(|p| p.ln()).collect()
}

pub(super) fn warm() -> RawParams {
    RawParams {
        temperature: 1.0,
        ..RawParams::default()
    }
}

pub(super) fn assert_law(raw: &RawParams, row: &Row, expected: &[f64]) {
    let law = production(raw, row).unwrap();
    let p: Vec<_> = (0..).take(expected.len()).map(|id| law.p(id)).collect();
    assert!(
        p.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6),
        "{p:?}, not {expected:?}"
    );
    assert_eq!(
        law.len(),
        expected.iter().filter(|p| **p > 0.0).count(),
        "{law:?}"
    );
}

const VOCAB: u32 = 12;

fn tokens(most: usize) -> impl Strategy<Value = Vec<TokenId>> {
    // One id beyond the row: a history may hold what this head cannot say.
    prop::collection::vec(0..=VOCAB, 0..most)
}

pub(super) fn raws() -> impl Strategy<Value = RawParams> {
    let bias = prop_oneof![4 => -3.0..3.0f64, 1 => Just(f64::NEG_INFINITY)];
    let sometimes = |s: std::ops::Range<f64>, off: f64| prop_oneof![Just(off), s];
    (
        prop_oneof![Just(0.0), Just(1e-6), Just(1.0), 0.05..3.0f64],
        0..14usize,
        sometimes(0.01..1.0, 1.0),
        sometimes(0.0..1.0, 0.0),
        sometimes(0.3..3.0, 1.0),
        sometimes(-2.0..2.0, 0.0),
        sometimes(-2.0..2.0, 0.0),
        prop::collection::btree_map(0..8u32, bias, 0..5),
        0..12usize,
    )
        .prop_map(
            |(temperature, top_k, top_p, min_p, r, presence, frequency, logit_bias, min_tokens)| {
                RawParams {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    repetition_penalty: r,
                    presence_penalty: presence,
                    frequency_penalty: frequency,
                    logit_bias,
                    min_tokens,
                    ..RawParams::default()
                }
            },
        )
}

/// Rows with many ties, of both signs of zero, or with hardly any.
pub(super) fn rows() -> impl Strategy<Value = Row> {
    let tied = (-6i8..6).prop_map(|x| f32::from(x) / 2.0);
    let logit = prop_oneof![2 => tied, 1 => Just(-0.0), 1 => -8f32..8.0];
    (
        prop::collection::vec(logit, VOCAB as usize),
        tokens(6),
        tokens(6),
        tokens(5),
        8..=VOCAB as usize,
        subsequence((0..VOCAB).collect::<Vec<_>>(), 0..4),
    )
        .prop_map(|(logits, prompt, output, path, valid, ends)| Row {
            logits,
            prompt,
            output,
            path,
            valid,
            ends,
        })
}

pub(super) fn assert_same(
    law: Result<Dist, Fault>,
    twin: Result<Vec<Option<f64>>, Fault>,
) -> Result<(), TestCaseError> {
    let (law, twin) = match (law, twin) {
        (Ok(law), Ok(twin)) => (law, twin),
        (law, twin) => {
            prop_assert_eq!(law.err(), twin.err());
            return Ok(());
        }
    };
    let support: Vec<TokenId> = (0..)
        .zip(&twin)
        .filter_map(|(id, p)| p.map(|_| id))
        .collect();
    prop_assert_eq!(law.ids(), &support[..]);
    for (id, ln_p) in law.iter() {
        let expected = twin[id as usize].unwrap().ln();
        prop_assert!(
            (ln_p - expected).abs() < 1e-9,
            "{}: {} for {}",
            id,
            ln_p,
            expected
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// All parameters at once, in their order.
    #[test]
    fn the_chain_is_its_twin(raw in raws(), row in rows()) {
        assert_same(production(&raw, &row), twin::law(&raw, &row))?;
    }

    /// What is reported at temperature 0 is the law at temperature 1 without filters; above 0 it
    /// is the law itself.
    #[test]
    fn the_reported_law_is_its_twin(raw in raws(), row in rows()) {
        let greedy = raw.temperature < 1e-5;
        let as_reported = RawParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..raw.clone() };
        let expected = twin::law(if greedy { &as_reported } else { &raw }, &row);
        assert_same(with(&raw, &row, Chain::report_law), expected)?;
    }
}

proptest! {
    /// Rows of thousands, where filters work in pieces.
    #[test]
    fn wide_rows_are_filtered_as_the_twin_does(
        seed: u32, spread in 0.1f32..8.0, steps in prop_oneof![Just(65_536.0f32), Just(64.0)],
        raw in raws(),
    ) {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f32::from(u16::try_from(x >> 16).unwrap()) / 65_536.0 * steps).floor() / steps * spread
        };
        let row = bare(&(0..5_000).map(|_| next()).collect::<Vec<_>>());
        let raw = RawParams { top_k: raw.top_k * 150, ..raw };
        assert_same(production(&raw, &row), twin::law(&raw, &row))?;
    }
}

/// Temperature before top-p: of [3, 2, 1] at temperature 0.5 and top-p 0.8 one token is left; an
/// engine with temperature last keeps two.
#[test]
fn temperature_comes_before_the_filters() {
    let raw = RawParams {
        temperature: 0.5,
        top_p: 0.8,
        ..RawParams::default()
    };
    assert_law(&raw, &bare(&[3.0, 2.0, 1.0]), &[1.0, 0.0, 0.0]);
    let after = RawParams {
        temperature: 1.0,
        ..raw
    };
    assert_eq!(
        production(&after, &bare(&[3.0, 2.0, 1.0])).unwrap().ids(),
        [0, 1]
    );
}

/// top-k renormalises before top-p: [4/9, 3/9, 2/9] reaches 0.75 with two tokens. Without, candle's
/// TopKThenTopP keeps three.
#[test]
fn top_p_sees_what_top_k_left() {
    let raw = RawParams {
        top_k: 3,
        top_p: 0.75,
        ..warm()
    };
    assert_law(
        &raw,
        &bare(&logits(&[0.4, 0.3, 0.2, 0.1])),
        &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0],
    );
}

/// min-p compares within what top-p left, which changes nothing, and against the largest.
#[test]
fn min_p_is_relative_to_the_largest() {
    let raw = RawParams {
        min_p: 0.25,
        ..warm()
    };
    assert_law(
        &raw,
        &bare(&logits(&[0.6, 0.3, 0.1])),
        &[2.0 / 3.0, 1.0 / 3.0, 0.0],
    );
}

#[test]
fn top_p_keeps_the_token_that_crosses() {
    let row = bare(&logits(&[0.6, 0.25, 0.1, 0.05]));
    let raw = |top_p| RawParams { top_p, ..warm() };
    assert_law(&raw(0.8), &row, &[12.0 / 17.0, 5.0 / 17.0, 0.0, 0.0]);
    assert_law(&raw(0.5), &row, &[1.0, 0.0, 0.0, 0.0]);
    assert_law(&raw(1e-300), &row, &[1.0, 0.0, 0.0, 0.0]);
    // Exactly reached is reached: four equal tokens, exact in binary.
    assert_law(&raw(0.5), &bare(&[1.0; 4]), &[0.5, 0.5, 0.0, 0.0]);
}

#[test]
fn ties_go_to_the_lower_id() {
    let row = bare(&[1.0, 2.0, -0.0, 2.0, 0.0, 2.0]);
    assert_law(&RawParams::default(), &row, &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_law(
        &RawParams { top_k: 2, ..warm() },
        &row,
        &[0.0, 0.5, 0.0, 0.5, 0.0, 0.0],
    );
    // Minus zero and zero tie, whichever way they came about.
    assert_law(&RawParams::default(), &bare(&[-0.0, 0.0]), &[1.0, 0.0]);
    assert_law(
        &RawParams { top_k: 1, ..warm() },
        &bare(&[-0.0, 0.0]),
        &[1.0, 0.0],
    );
    let penalised = RawParams {
        repetition_penalty: 2.0,
        top_k: 1,
        ..warm()
    };
    let row = Row {
        prompt: vec![0],
        ..bare(&[-0.0, 0.0])
    };
    assert_law(&penalised, &row, &[1.0, 0.0]);
}

/// Bias first: it decides on which side of zero the repetition penalty finds a logit.
#[test]
fn bias_comes_before_penalties() {
    let raw = RawParams {
        logit_bias: BTreeMap::from([(0, 3.0)]),
        repetition_penalty: 2.0,
        ..warm()
    };
    let row = Row {
        prompt: vec![0],
        ..bare(&[-1.0, 1.0])
    };
    // (-1 + 3) / 2 = 1, not -1 * 2 + 3.
    assert_law(&raw, &row, &[0.5, 0.5]);
}

/// Repetition before the subtractive penalties.
#[test]
fn repetition_comes_before_presence_and_frequency() {
    let raw = RawParams {
        repetition_penalty: 2.0,
        presence_penalty: 1.0,
        frequency_penalty: 0.5,
        ..warm()
    };
    // 8 / 2 - 2 * 0.5 - 1 = 2, not (8 - 2) / 2.
    let row = Row {
        output: vec![0],
        path: vec![0],
        ..bare(&[8.0, 2.0])
    };
    assert_law(&raw, &row, &[0.5, 0.5]);
}

/// Both signs of every penalty: the prompt counts for repetition only, once whatever the number.
#[test]
fn penalties_of_both_signs() {
    let row = Row {
        prompt: vec![0, 0, 1],
        output: vec![1, 1, 2],
        ..bare(&[2.0, -2.0, 1.0, 0.0])
    };
    let score = |raw: RawParams, id: TokenId| {
        let law = with(&raw, &row, Chain::report_law).unwrap();
        law.ln_p(id) - law.ln_p(3) // token 3 never occurred and stays at 0
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a}, not {b}");
    for r in [0.5, 2.0] {
        let raw = || RawParams {
            repetition_penalty: r,
            ..RawParams::default()
        };
        close(score(raw(), 0), 2.0 / r);
        close(score(raw(), 1), -2.0 * r);
        close(score(raw(), 2), 1.0 / r);
    }
    for x in [-1.5, 1.5] {
        let presence = || RawParams {
            presence_penalty: x,
            ..RawParams::default()
        };
        let frequency = || RawParams {
            frequency_penalty: x,
            ..RawParams::default()
        };
        close(score(presence(), 0), 2.0);
        close(score(frequency(), 0), 2.0);
        close(score(presence(), 1), -2.0 - x);
        close(score(frequency(), 1), -2.0 - 2.0 * x);
        close(score(presence(), 2), 1.0 - x);
    }
}

/// Drafts on the path count as generated tokens: with min_tokens 4 the end is open from t = 4 on, on
/// whatever side of the anchor the tokens before it lie.
#[test]
fn min_tokens_counts_the_drafts_on_the_path() {
    let raw = RawParams {
        min_tokens: 4,
        ..RawParams::default()
    };
    for t in 0..7 {
        for drafted in 0..=t {
            let row = Row {
                output: vec![1; t - drafted],
                path: vec![1; drafted],
                ends: vec![0],
                ..bare(&[5.0, 1.0])
            };
            let expected = if t < 4 { [0.0, 1.0] } else { [1.0, 0.0] };
            assert_law(&raw, &row, &expected);
        }
    }
}

#[test]
fn ids_beyond_the_tokenizer_are_masked() {
    let row = Row {
        valid: 2,
        ..bare(&[1.0, 1.0, 9.0])
    };
    assert_law(&warm(), &row, &[0.5, 0.5, 0.0]);
    assert_law(&RawParams::default(), &row, &[1.0, 0.0, 0.0]);
}

#[test]
fn faults_are_told_apart() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in 0..40 {
            let mut row = bare(&[0.0; 40]);
            row.logits[at] = bad;
            for raw in [RawParams::default(), warm()] {
                assert_eq!(
                    production(&raw, &row),
                    Err(Fault::NonFinite),
                    "{bad} at {at}"
                );
            }
        }
    }
    let logit_bias = BTreeMap::from([(0, f64::NEG_INFINITY), (1, f64::NEG_INFINITY)]);
    for raw in [
        RawParams::default(),
        RawParams { top_k: 1, ..warm() },
        warm(),
    ] {
        let banned = RawParams {
            logit_bias: logit_bias.clone(),
            ..raw.clone()
        };
        assert_eq!(production(&banned, &bare(&[1.0, 2.0])), Err(Fault::Masked));
        assert_eq!(
            with(&banned, &bare(&[1.0, 2.0]), Chain::report_law),
            Err(Fault::Masked)
        );
        let row = Row {
            valid: 0,
            ..bare(&[1.0, 2.0])
        };
        assert_eq!(production(&raw, &row), Err(Fault::Masked));
    }
}

/// Finite is enough: no size of logit, penalty or temperature makes a law that is not one.
#[test]
fn huge_values_stay_finite() {
    let all = RawParams {
        presence_penalty: -2.0,
        frequency_penalty: 2.0,
        logit_bias: BTreeMap::from([(1, 100.0)]),
        ..RawParams::default()
    };
    for temperature in [0.0, 1e-5, 1e-4, 1.0, 100.0] {
        for repetition_penalty in [f64::MIN_POSITIVE, 1.0, f64::MAX] {
            let raw = RawParams {
                temperature,
                repetition_penalty,
                ..all.clone()
            };
            let row = Row {
                output: vec![0, 1, 2],
                ..bare(&[f32::MAX, f32::MAX, f32::MIN, 0.0])
            };
            let law = production(&raw, &row).unwrap();
            let sum: f64 = law.iter().map(|(_, ln_p)| ln_p.exp()).sum();
            assert!(
                (sum - 1.0).abs() < 1e-9 && law.iter().all(|x| x.1.is_finite()),
                "{raw:?}: {law:?}"
            );
            assert!(temperature > 0.0 || law.len() == 1);
            assert!(temperature == 0.0 || law.len() == 4, "{raw:?}: {law:?}");
        }
    }
}

/// A score so large that nothing near it can be told apart has a nucleus all the same.
#[test]
fn the_largest_token_survives_every_filter() {
    let raw = RawParams {
        top_p: 0.5,
        min_p: 0.5,
        ..warm()
    };
    assert_law(&raw, &bare(&[0.0, f32::MAX, 1.0]), &[0.0, 1.0, 0.0]);
}

/// Each range at its ends and beyond; the message names parameter and value.
#[test]
fn values_out_of_range_are_refused() {
    type Set = fn(&mut RawParams, f64);
    let cases: [(&str, Set, &[f64], &[f64]); 6] = [
        (
            "temperature",
            |r, x| r.temperature = x,
            &[0.0, 1e-9, 1e-4, 100.0],
            &[-1.0, 100.1],
        ),
        (
            "top_p",
            |r, x| r.top_p = x,
            &[1e-9, 1.0],
            &[0.0, -0.1, 1.001],
        ),
        ("min_p", |r, x| r.min_p = x, &[0.0, 0.999], &[-0.1, 1.0]),
        (
            "repetition_penalty",
            |r, x| r.repetition_penalty = x,
            &[1e-9, 50.0],
            &[0.0, -1.0],
        ),
        (
            "presence_penalty",
            |r, x| r.presence_penalty = x,
            &[-2.0, 2.0],
            &[-2.1, 2.1],
        ),
        (
            "frequency_penalty",
            |r, x| r.frequency_penalty = x,
            &[-2.0, 2.0],
            &[-2.1, 2.1],
        ),
    ];
    let refused = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for (name, set, good, bad) in cases {
        let make = |x| {
            let mut raw = RawParams::default();
            set(&mut raw, x);
            SamplingParams::new(raw)
        };
        for &x in good {
            assert!(make(x).is_ok(), "{name} {x}");
        }
        for &x in bad.iter().chain(&refused) {
            let message = make(x).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("{name} {x}: must ")),
                "{message}"
            );
        }
    }
    let bias = |x| {
        let raw = RawParams {
            logit_bias: BTreeMap::from([(7, x)]),
            ..RawParams::default()
        };
        SamplingParams::new(raw)
    };
    for x in [-100.0, 0.0, 100.0, f64::NEG_INFINITY] {
        assert!(bias(x).is_ok(), "{x}");
    }
    for x in [-100.5, 101.0, f64::NAN, f64::INFINITY] {
        let message = bias(x).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("logit_bias 7={x}: ")),
            "{message}"
        );
    }
    let beyond = Chain::new(bias(1.0).unwrap(), 9, 7, vec![]).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "logit_bias 7=1: the token id must be below 7"
    );
}
