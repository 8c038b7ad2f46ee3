//! Processors of scores: they change the law as they say, at every width of row, and the rules keep it.

use std::sync::Arc;

use eyrie::{
    TokenId,
    accept::{Block, Rejection},
    judge::exact::Model,
    sample::{Chain, Counts, Dist, Fault, History, Processor, RawParams, SamplingParams},
};
use proptest::{prelude::*, sample::subsequence};

use super::{
    params::{assert_same, raws, rows},
    twin::{self, Row},
    walk::{Setting, chain_of, rule, warm},
};
use crate::processors::Only;

/// Bans these ids.
#[derive(Debug)]
struct Bans(Vec<TokenId>);

impl Processor for Bans {
    fn process(&self, scores: &mut [f64], _: &History<'_>) -> Result<(), Fault> {
        for id in &self.0 {
            if let Some(score) = scores.get_mut(*id as usize) {
                *score = f64::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

/// Notes that it saw as many scores as the target has.
#[derive(Debug)]
struct Full(usize);

impl Processor for Full {
    fn process(&self, scores: &mut [f64], _: &History<'_>) -> Result<(), Fault> {
        if scores.len() == self.0 {
            return Ok(());
        }
        Err(Fault::Refused(format!("{} scores", scores.len()).into()))
    }
}

fn law(chain: &Chain, columns: &[f32], row: &Row) -> Result<Dist, Fault> {
    let mut counts = Counts::new(&row.prompt);
    row.output.iter().for_each(|token| counts.push(*token));
    let history = History {
        counts: &counts,
        tokens: &[row.prompt.as_slice(), &row.output].concat(),
        path: &row.path,
    };
    chain.law(columns, &history)
}

fn chain(raw: &RawParams, row: &Row, banned: Vec<TokenId>) -> Chain {
    let params = SamplingParams::new(raw.clone()).unwrap();
    let chain = Chain::new(params, row.logits.len(), row.valid, row.ends.clone()).unwrap();
    chain.with_processors(vec![Arc::new(Full(row.valid)), Arc::new(Bans(banned))])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// A ban by a processor is a ban by the bias, in rows of every width; the processor always sees
    /// the target's.
    #[test]
    fn a_ban_is_a_ban(
        raw in raws(), row in rows(),
        banned in subsequence((0..8).collect::<Vec<TokenId>>(), 0..8),
        columns in subsequence((0..12).collect::<Vec<TokenId>>(), 1..12),
        width in 1..20usize,
    ) {
        let mut biased = raw.clone();
        biased.logit_bias.extend(banned.iter().map(|id| (*id, f64::NEG_INFINITY)));
        let chain = chain(&raw, &row, banned);
        assert_same(law(&chain, &row.logits, &row), twin::law(&biased, &row))?;

        let params = SamplingParams::new(biased).unwrap();
        let plain = Chain::new(params, row.logits.len(), row.valid, row.ends.clone()).unwrap();
        let some: Vec<f32> = columns.iter().map(|id| row.logits[*id as usize]).collect();
        let ids: Arc<[TokenId]> = columns.into();
        let mapped = law(&chain.mapped(Arc::clone(&ids)), &some, &row);
        prop_assert_eq!(mapped, law(&plain.mapped(ids), &some, &row));

        let padded: Vec<f32> = row.logits.iter().copied().chain([9.0; 8]).take(width).collect();
        let narrow = law(&chain.narrowed(width), &padded, &row);
        prop_assert_eq!(narrow, law(&plain.narrowed(width), &padded, &row));
    }
}

/// By enumeration of all drafts and decisions: the constrained law comes out, whether the drafter
/// knows of the constraint or not.
#[test]
fn a_constrained_law_is_exact() {
    let only = || vec![Arc::new(Only { keep: 2, of: 3 }) as Arc<dyn Processor>];
    let siblings = vec![(None, true), (None, true), (Some(0), true)];
    for seed in 0..6 {
        let model = |seed| Model::new(4, seed, 3.0, warm(|_| {})).unwrap();
        for (knows, nodes) in [
            (true, chain_of(3, |_| true)),
            (false, chain_of(3, |_| true)),
            (true, chain_of(3, |i| i != 1)),
            (true, siblings.clone()),
            (false, siblings.clone()),
        ] {
            let drafter = model(seed + 100);
            let drafter = if knows {
                drafter.with_processors(only())
            } else {
                drafter
            };
            let setting = Setting {
                target: model(seed).with_processors(only()),
                drafter,
                nodes,
            };
            let some = (0..4).filter(|id| setting.p(&[1]).p(*id) > 0.0).count();
            assert!((1..4).contains(&some));
            for decide in [rule(&Rejection), rule(&Block)] {
                let exact = setting.exact(&decide);
                assert!(exact.error < 1e-12, "{exact:?} on {setting:?}");
            }
        }
    }
}
