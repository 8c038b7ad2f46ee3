//! The settings that the exact laws are computed for: processings of both laws, chains and trees.

use super::exact::{Model, Planned, Setting};
use crate::sample::RawParams;

/// Parameters at temperature 1 with one change.
#[must_use]
pub fn warm(change: impl FnOnce(&mut RawParams)) -> RawParams {
    let mut raw = RawParams {
        temperature: 1.0,
        ..RawParams::default()
    };
    change(&mut raw);
    raw
}

/// What may be done to the laws of target and drafter.
fn processings() -> Vec<RawParams> {
    vec![
        warm(|_| {}),
        warm(|raw| raw.temperature = 0.6),
        warm(|raw| raw.top_k = 2),
        warm(|raw| raw.top_p = 0.7),
        warm(|raw| raw.min_p = 0.4),
        warm(|raw| {
            raw.repetition_penalty = 1.4;
            raw.presence_penalty = 0.5;
            raw.frequency_penalty = 0.7;
        }),
        warm(|raw| raw.logit_bias = [(1, f64::NEG_INFINITY), (0, 1.5)].into()),
        warm(|raw| raw.temperature = 0.0),
    ]
}

/// A chain of so many nodes.
#[must_use]
pub fn chain_of(nodes: u32, drawn: impl Fn(u32) -> bool) -> Vec<Planned> {
    (0..nodes).map(|i| (i.checked_sub(1), drawn(i))).collect()
}

/// Chains of one to three nodes: drawn, points, and both.
#[must_use]
pub fn chains() -> Vec<Vec<Planned>> {
    let mut all = Vec::new();
    for nodes in 1..=3 {
        all.push(chain_of(nodes, |_| true));
        all.push(chain_of(nodes, |_| false));
    }
    all.push(chain_of(3, |i| i % 2 == 0));
    all.push(chain_of(3, |i| i % 2 == 1));
    all
}

/// Trees with siblings: drawn, points, and both; one of them three levels deep.
#[must_use]
pub fn trees() -> Vec<Vec<Planned>> {
    let pair = [None, None, Some(0), Some(0)];
    let deep = [None, None, Some(0), Some(2)];
    let wide = [None, None, None];
    let crossed = [None, None, Some(1), Some(1)];
    let all = |parents: &[Option<u32>], drawn: fn(usize) -> bool| -> Vec<Planned> {
        let node = |(i, parent): (usize, &Option<u32>)| (*parent, drawn(i));
        parents.iter().enumerate().map(node).collect()
    };
    vec![
        all(&pair, |_| true),
        all(&pair, |i| i % 2 == 0),
        all(&deep, |_| true),
        all(&wide, |_| true),
        all(&wide, |_| false),
        all(&crossed, |i| i != 0),
    ]
}

/// Settings over all pairs of processings of `p` and `q`, for these trees.
///
/// # Panics
/// If there are 2^32 of them or more.
#[must_use]
pub fn settings(vocab: u32, trees: &[Vec<Planned>]) -> Vec<Setting> {
    let mut all = Vec::new();
    for (i, p) in processings().into_iter().enumerate() {
        for (j, q) in processings().into_iter().enumerate() {
            for nodes in trees {
                let seed = u32::try_from(all.len()).expect("few settings");
                // The same law on both sides now and then: everything is accepted then.
                let own = if i == j && seed % 2 == 0 { 0 } else { 1000 };
                let model = |seed, raw: &RawParams| {
                    Model::new(vocab, seed, 4.0, raw.clone()).expect("parameters in range")
                };
                all.push(Setting {
                    target: model(seed, &p),
                    drafter: model(seed + own, &q),
                    nodes: nodes.clone(),
                });
            }
        }
    }
    all
}
