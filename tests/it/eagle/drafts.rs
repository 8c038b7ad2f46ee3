//! What heads draft: never the text, and as much of it as they know.

use std::{collections::BTreeMap, sync::Arc};

use eyrie::{
    Matrix, SeqId, TokenId,
    cache::Txn,
    draft::{Drafter, eagle::Version},
    model::{Rows, Wanted},
    request::Request,
};

use super::{
    heads::{Made, e3, ids, random, table_head},
    network::taps,
    state::heads,
};
use crate::support::{Lab, drawn, params, prompts, table_target, tt_target};

/// A random table of 64 tokens, in which the likeliest successor of each leads by at least `lead`.
fn table(lead: f32) -> Vec<Vec<f32>> {
    let value = |i: u32, v: u32| {
        let mixed = (i * 64 + v).wrapping_mul(2_654_435_761) >> 16;
        f32::from(u16::try_from(mixed % 3000).expect("small")) / 100.0 - 15.0
    };
    let row = |i: u32| -> Vec<f32> {
        let mut row: Vec<f32> = (0..64).map(|v| value(i, v)).collect();
        let best = (0..64).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        row[best.expect("a row")] += lead;
        row
    };
    (0..64).map(row).collect()
}

fn requests(batch: usize, t: f64) -> Vec<Request> {
    let request = |(prompt, seed): (&Vec<TokenId>, u64)| Request {
        id: seed.to_string(),
        max_tokens: 60,
        ..drawn(prompt, t, seed)
    };
    prompts(64)
        .iter()
        .take(batch)
        .zip(0..)
        .map(request)
        .collect()
}

/// The lab of a table, with trees of `topk` (1: chains) and depth 4. Trees rank by value, and so
/// hold the likeliest path for certain only if it leads.
pub(crate) fn table_lab(topk: usize) -> Lab {
    Lab::new(table_target(&table(if topk > 1 { 8.0 } else { 0.0 }))).with(|lab| {
        lab.options.nodes = (topk > 1).then_some(24);
    })
}

/// Children of a row, requests at once and temperatures.
fn sizes<const N: usize>(topk: [usize; N]) -> impl Iterator<Item = (usize, usize, f64)> {
    let batches = |topk| [1, 5].into_iter().map(move |batch| (topk, batch));
    let all = topk.into_iter().flat_map(batches);
    all.flat_map(|(topk, batch)| [0.0, 1.0].map(|t| (topk, batch, t)))
}

#[test]
fn the_oracle_is_accepted_whole_and_the_adversary_never() {
    for version in [Version::Eagle1, Version::Eagle3] {
        for (topk, batch, t) in sizes([1, 2, 4, 8]) {
            let lab = table_lab(topk);
            let (requests, about) = (
                requests(batch, t),
                format!("{version:?} {topk} {batch} {t}"),
            );
            let base = lab.base(&requests);
            for sign in [1.0, -1.0] {
                let made = table_head(version, 64, sign);
                let run = lab.run(Box::new(made.drafter(&lab.target, topk, 4096)), &requests);
                assert_eq!(run.tokens(), base, "{about}");
                for choice in &run.choices {
                    let mut left = 59;
                    for round in &choice.rounds {
                        let depth = 4.min(left - 1);
                        assert!(round.drafted >= depth, "{about}: {round:?}");
                        let accepted = if sign > 0.0 { depth } else { 0 };
                        assert_eq!(round.accepted, accepted, "{about}: {round:?}, {left} left");
                        left -= round.emitted;
                    }
                }
            }
        }
    }
}

/// A head for the table of [`table_lab`] that after every fourth token prefers another to the right one.
pub(crate) fn planted() -> Made {
    let mut made = table_head(Version::Eagle1, 64, 1.0);
    let mut table = table(8.0);
    for row in table.iter_mut().step_by(4) {
        let best = row.iter().copied().fold(f32::MIN, f32::max);
        let right = row.iter().position(|x| *x == best).expect("there");
        row[(right + 1) % 64] = best + 0.5;
    }
    made.config.own_head = true;
    let root = 8.0;
    let lm_head = (0..64).flat_map(|v| table.iter().map(move |row| row[v] / root));
    made.tensors
        .insert("lm_head.weight".to_owned(), lm_head.collect());
    made
}

#[test]
pub(crate) fn a_right_token_that_is_not_the_first_sibling_is_found() {
    let made = planted();
    let mut through = 0;
    for (topk, batch, t) in sizes([2, 4, 8]) {
        let lab = table_lab(topk);
        let requests = requests(batch, t);
        let run = lab.run(Box::new(made.drafter(&lab.target, topk, 4096)), &requests);
        let about = format!("top {topk}, batch {batch}, {t}");
        assert_eq!(run.tokens(), lab.base(&requests), "{about}");
        let whole: BTreeMap<_, _> = (requests.iter().zip(run.tokens()))
            .map(|(request, output)| (&request.id, [&request.prompt[..], &output].concat()))
            .collect();
        // The children of the anchor come first in a tree.
        let mut second = 0;
        for trace in &run.traces {
            let right = whole[&trace.request].get(trace.position + 1);
            if trace.accepted > 0 && trace.drafted.first() != right {
                second += 1;
                through += usize::from(trace.accepted == 4);
            }
        }
        assert!(second > 0, "{about}: the right token was always the first");
    }
    assert!(through > 0, "no path went on to its end after such a token");
}

#[test]
fn heads_that_know_nothing_cost_no_token() {
    let lab = Lab::new(tt_target());
    for (made, topk) in heads().iter().zip([1, 4, 2]) {
        for (batch, t) in [(1, 1.0), (5, 0.0), (5, 1.0)] {
            let lab = Lab::new(Arc::clone(&lab.target)).with(|lab| {
                lab.options.nodes = (topk > 1).then_some(12);
                lab.options.prefill_chunk = 5;
            });
            let requests = requests(batch, t);
            let run = lab.run(Box::new(made.drafter(&lab.target, topk, 4096)), &requests);
            assert_eq!(
                run.tokens(),
                lab.base(&requests),
                "top {topk}, batch {batch}, {t}"
            );
            assert!(run.drafted_accepted().0 > 0);
        }
    }
}

/// Drafts a chain of `depth` after `tokens` by hand: the head row by row, its best token each time.
pub(crate) fn chain(made: &Made, lab: &Lab, tokens: &[TokenId], depth: usize) -> Vec<TokenId> {
    let head = made.head(&lab.target);
    let ids = ids(head.config());
    let mut cache = head.new_cache(256);
    let mut features = head.fuse(taps(&lab.target, &tokens[..tokens.len() - 1], head.taps()));
    let mut next = tokens[1..].to_vec();
    let mut drafted = Vec::new();
    for _ in 0..depth {
        let mut rows = Rows::new();
        let base = cache.committed(SeqId(1));
        rows.chain(SeqId(1), base, &next, Wanted::Last)
            .expect("rows");
        let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
        let o = head.forward(&rows, &features, &mut txn).expect("a pass");
        txn.commit_all(SeqId(1)).expect("rows");
        let last: Matrix = o.gather([o.rows() - 1]);
        let logits = head.logits(&last);
        let row = logits.row(0);
        let best = (0..row.len())
            .rev()
            .max_by(|a, b| row[*a].total_cmp(&row[*b]));
        drafted.push(ids[best.expect("a row")]);
        next = drafted[drafted.len() - 1..].to_vec();
        features = head.fed_back(last);
    }
    drafted
}

#[test]
fn drafts_are_the_best_tokens_of_the_head_by_their_own_ids() {
    let lab = Lab::new(tt_target());
    for made in heads() {
        let prompt = &prompts(64)[0];
        let requests = [Request {
            params: params(|_| ()),
            ..drawn(prompt, 0.0, 1)
        }];
        let run = lab.run(Box::new(made.drafter(&lab.target, 1, 512)), &requests);
        let whole = [&prompt[..], &run.tokens()[0]].concat();
        for trace in &run.traces {
            let tokens = &whole[..=trace.position];
            let by_hand = chain(&made, &lab, tokens, trace.drafted.len());
            assert_eq!(trace.drafted, by_hand, "round {}", trace.round);
        }
    }
}

#[test]
fn bias_and_penalties_of_the_request_apply_to_drafts() {
    let lab = Lab::new(tt_target());
    let made = random(e3(), 12);
    let run = |change: fn(&mut eyrie::sample::RawParams)| {
        let requests = [Request {
            params: params(change),
            ..drawn(&prompts(64)[0], 0.0, 1)
        }];
        let run = lab.run(Box::new(made.drafter(&lab.target, 1, 512)), &requests);
        assert_eq!(run.tokens(), lab.base(&requests));
        let mut drafted = BTreeMap::<TokenId, usize>::new();
        for token in run.traces.iter().flat_map(|trace| &trace.drafted) {
            *drafted.entry(*token).or_default() += 1;
        }
        drafted
    };
    let plain = run(|_| ());
    let (&often, _) = plain.iter().max_by_key(|(_, n)| **n).expect("drafts");
    assert!(ids(&made.config).contains(&often));
    // Half of the ids that the head has, of which all are drafted, are banned.
    let banned = run(|raw| raw.logit_bias = (0..32).map(|id| (id, -100.0)).collect());
    assert!(banned.keys().all(|id| *id >= 32), "{banned:?}");
    assert!(plain.keys().any(|id| *id < 32), "{plain:?}");
    let penal = run(|raw| raw.frequency_penalty = 2.0);
    assert!(penal.len() > plain.len(), "{penal:?} {plain:?}");
}

/// An embedding without numbers: whoever meets the token loses drafts, nobody loses a token.
#[test]
fn numbers_that_are_none_end_their_branch() {
    let lab = Lab::new(tt_target()).with(|lab| lab.options.nodes = Some(12));
    let mut config = e3();
    config.own_embedding = true;
    let made = random(config, 21);
    let requests = requests(5, 1.0);
    let base = lab.base(&requests);
    let run = |made: &Made| {
        let run = lab.run(Box::new(made.drafter(&lab.target, 3, 2048)), &requests);
        assert_eq!(run.tokens(), base);
        run
    };
    let sound = run(&made);
    let mut parents = sound.traces.iter().flat_map(|trace| &trace.parents);
    assert!(parents.any(|parent| *parent >= 0));
    for number in [f32::NAN, f32::INFINITY] {
        let mut made = made.clone();
        let table = made.tensors.get_mut("embed_tokens.weight").expect("own");
        let token = ids(&made.config)[0] as usize;
        table[token * 32..][..32].fill(number);
        let run = run(&made);
        let below_bad = run.traces.iter().any(|trace| {
            let parents = trace.parents.iter();
            let mut tokens = parents.filter_map(|p| trace.drafted.get(usize::try_from(*p).ok()?));
            tokens.any(|parent| *parent as usize == token)
        });
        assert!(!below_bad, "a branch went on below {number}");
        assert!(run.drafted_accepted().0 > 0);
    }
    // A feature without numbers: no drafts at all.
    let mut broken = made;
    let fc = broken.tensors.get_mut("fc.weight").expect("taps are fused");
    fc[5] = f32::NAN;
    assert_eq!(run(&broken).drafted_accepted().0, 0);
}

#[test]
fn a_drafter_gives_back_every_row() {
    let lab = table_lab(4);
    let made = table_head(Version::Eagle3, 64, 1.0);
    let mut drafter = made.drafter(&lab.target, 4, 128);
    let tokens: Vec<TokenId> = (0..20).collect();
    let taps = taps(&lab.target, &tokens, drafter.taps());
    let seen = eyrie::draft::Seen {
        seq: SeqId(9),
        tokens: &tokens,
        taps: Some(&taps),
    };
    drafter.observe(&[seen]).expect("it works");
    assert_eq!(drafter.free(), 128);
    drafter.fork(SeqId(9), SeqId(10));
    drafter.fork(SeqId(9), SeqId(11));
    assert_eq!(drafter.free(), 128 - 19);
    for seq in [9, 10, 11] {
        drafter.forget(SeqId(seq));
    }
    assert_eq!(drafter.free(), 128);
}
