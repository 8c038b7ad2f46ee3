//! The parameters as the host means them, against a twin by the letter and by hand.

use std::collections::BTreeMap;

use eyrie::{
    TokenId,
    sample::{Fault, RawParams, SamplingParams, Semantics},
};
use proptest::prelude::*;

use super::{
    params::{assert_law, assert_same, bare, logits, production, raws, rows, warm},
    twin::Row,
};

/// Probabilities by id; `None` is outside of the support.
pub(super) fn law(raw: &RawParams, row: &Row) -> Result<Vec<Option<f64>>, Fault> {
    let context = [row.prompt.as_slice(), &row.output, &row.path].concat();
    let generated = row.output.len() + row.path.len();
    let mut z = Vec::new();
    for (id, &logit) in (0..).zip(&row.logits) {
        let mut x = f64::from(logit) + raw.logit_bias.get(&id).unwrap_or(&0.0);
        let masked = x == f64::NEG_INFINITY
            || id as usize >= row.valid
            || (generated < raw.min_tokens && row.ends.contains(&id));
        let mut count = 0.0;
        context
            .iter()
            .filter(|token| **token == id)
            .for_each(|_| count += 1.0);
        x -= count * raw.frequency_penalty;
        if count > 0.0 {
            x -= raw.presence_penalty;
            x = if x > 0.0 {
                x / raw.repetition_penalty
            } else {
                x * raw.repetition_penalty
            };
        }
        z.push((!masked).then_some(x));
    }
    let mut order: Vec<usize> = (0..z.len()).filter(|i| z[*i].is_some()).collect();
    order.sort_by(|a, b| z[*b].partial_cmp(&z[*a]).unwrap()); // stable: ties by the lower id
    let Some(&best) = order.first() else {
        return Err(Fault::Masked);
    };
    if raw.temperature < 1e-5 {
        return Ok((0..z.len()).map(|i| (i == best).then_some(1.0)).collect());
    }
    let peak = z[best].unwrap();
    let weigh = |x: f64| ((x - peak) / raw.temperature).exp();
    let mut p: Vec<_> = z.iter().map(|x| x.map(weigh)).collect();
    normalise(&mut p);
    if raw.top_k > 0 {
        order.iter().skip(raw.top_k).for_each(|id| p[*id] = None);
    }
    if raw.top_p > 0.0 && raw.top_p < 1.0 {
        let mut before = 0.0;
        for id in &order {
            let own = p[*id].unwrap_or(0.0);
            if before >= raw.top_p {
                p[*id] = None;
            }
            before += own;
        }
    }
    if raw.min_p > 0.0 && raw.min_p < 1.0 {
        let least = raw.min_p * p[best].unwrap();
        p.iter_mut().for_each(|x| *x = x.filter(|x| *x > least));
    }
    normalise(&mut p);
    Ok(p)
}

fn normalise(p: &mut [Option<f64>]) {
    let sum: f64 = p.iter().flatten().sum();
    p.iter_mut().flatten().for_each(|x| *x /= sum);
}

fn host(raw: RawParams) -> RawParams {
    RawParams {
        semantics: Semantics::Host,
        ..raw
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_chain_is_its_twin(raw in raws(), row in rows(), wide in -1.5..2.5f64) {
        // Also what only the host accepts: filters that are off, negative temperatures.
        let raw = host(match wide {
            x if x < -1.0 => RawParams { temperature: x, ..raw },
            x if x < 0.0 => RawParams { top_p: x, ..raw },
            x if x > 2.0 => RawParams { min_p: x, presence_penalty: 3.0 * x, ..raw },
            x if x > 1.0 => RawParams { top_p: x, frequency_penalty: -3.0 * x, ..raw },
            _ => raw,
        });
        assert_same(production(&raw, &row), law(&raw, &row))?;
    }
}

proptest! {
    /// Rows of thousands, where filters work in pieces.
    #[test]
    fn wide_rows_are_filtered_as_the_twin_does(seed: u32, spread in 0.1f32..8.0, raw in raws()) {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(u16::try_from(x >> 16).unwrap()) / 65_536.0 * spread
        };
        let row = bare(&(0..5_000).map(|_| next()).collect::<Vec<_>>());
        let raw = host(RawParams { top_k: raw.top_k * 150, ..raw });
        assert_same(production(&raw, &row), law(&raw, &row))?;
    }
}

/// A token of the prompt counts, each time; frequency and presence come before repetition.
#[test]
fn penalties_count_prompt_and_output() {
    let raw = host(RawParams {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        ..warm()
    });
    let row = Row {
        prompt: vec![0, 0],
        output: vec![1],
        path: vec![1, 2],
        ..bare(&[2.0, 0.75, 1.0, -0.5])
    };
    // (2 - 2/4 - 1/2) / 2 = 0.5; (0.75 - 1) * 2 = -0.5; (1 - 0.75) / 2 = 0.125; untouched.
    let z: [f64; 4] = [0.5, -0.5, 0.125, -0.5];
    let total: f64 = z.iter().map(|z| z.exp()).sum();
    assert_law(&raw, &row, &z.map(|z| z.exp() / total));
}

/// Of [.4, .3, .2, .1] with k = 3, p = 0.75 the host keeps three: .4 + .3 is below 0.75. It keeps
/// all that top-k left when that does not reach p.
#[test]
fn top_p_sums_what_was_before_top_k() {
    let row = bare(&logits(&[0.4, 0.3, 0.2, 0.1]));
    let raw = |top_k, top_p| {
        host(RawParams {
            top_k,
            top_p,
            ..warm()
        })
    };
    assert_law(&raw(3, 0.75), &row, &[4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 0.0]);
    assert_law(&raw(2, 0.75), &row, &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
    assert_law(&raw(3, 0.65), &row, &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
}

/// Exactly the fraction is dropped by the host and kept by this crate.
#[test]
fn min_p_is_strict() {
    let raw = RawParams {
        min_p: (-1f64).exp(),
        ..warm()
    };
    let row = bare(&[3.0, 2.0, 1.0]);
    let two = 1.0 / (1.0 + (-1f64).exp());
    assert_law(&raw, &row, &[two, 1.0 - two, 0.0]);
    assert_law(&host(raw), &row, &[1.0, 0.0, 0.0]);
}

/// Everything finite but a repetition penalty that cannot divide; the message names parameter, value
/// and what would be accepted.
#[test]
fn ranges_are_the_hosts() {
    type Set = fn(&mut RawParams, f64);
    let any: [(&str, Set); 5] = [
        ("temperature", |r, x| r.temperature = x),
        ("top_p", |r, x| r.top_p = x),
        ("min_p", |r, x| r.min_p = x),
        ("presence_penalty", |r, x| r.presence_penalty = x),
        ("frequency_penalty", |r, x| r.frequency_penalty = x),
    ];
    let row = Row {
        prompt: vec![0, 0, 1],
        output: vec![1],
        ..bare(&[f32::MAX, 1.0, f32::MIN, 0.0])
    };
    for (name, set) in any {
        let make = |x| {
            let mut raw = host(warm());
            set(&mut raw, x);
            raw
        };
        for x in [-f64::MAX, -3.0, 0.0, 5e-324, 1.0, 1000.0, f64::MAX] {
            let law = production(&make(x), &row).unwrap();
            assert!(law.iter().all(|(_, ln_p)| ln_p.is_finite()), "{name} {x}");
        }
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = SamplingParams::new(make(x)).unwrap_err().to_string();
            assert_eq!(error, format!("{name} {x}: must be a finite number"));
        }
    }
    let repetition = |x| {
        SamplingParams::new(host(RawParams {
            repetition_penalty: x,
            ..warm()
        }))
    };
    for x in [5e-324, 1.0, f64::MAX] {
        assert!(repetition(x).is_ok(), "{x}");
    }
    for x in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = repetition(x).unwrap_err().to_string();
        let expected = format!("repetition_penalty {x}: must be a finite number above 0");
        assert_eq!(error, expected);
    }
    let bias = |x| {
        let logit_bias = BTreeMap::from([(1, x)]);
        SamplingParams::new(host(RawParams {
            logit_bias,
            ..warm()
        }))
    };
    for x in [-f64::MAX, 101.0, f64::MAX, f64::NEG_INFINITY] {
        let raw = (*bias(x).unwrap()).clone();
        let law = production(&raw, &row).unwrap();
        assert!(law.iter().all(|(_, ln_p)| ln_p.is_finite()), "{x}");
        assert_eq!(law.ids().contains(&1), x > f64::NEG_INFINITY);
    }
    for x in [f64::NAN, f64::INFINITY] {
        let error = bias(x).unwrap_err().to_string();
        let expected = format!("logit_bias 1={x}: the value must be a finite number or be -inf");
        assert_eq!(error, expected);
    }
}

/// A temperature below 0 is the argmax, as 0 is.
#[test]
fn negative_temperatures_are_greedy() {
    for temperature in [-5.0, -1e-9, 0.0, 9e-6] {
        let raw = host(RawParams {
            temperature,
            ..warm()
        });
        let law = production(&raw, &bare(&[0.0, 1.0, 1.0])).unwrap();
        assert_eq!(law.ids(), [1 as TokenId], "{temperature}");
    }
}
