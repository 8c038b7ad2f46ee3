//! Cases 12 to 17: what the rules accept, and what they are given.

use std::sync::Arc;

use eyrie::{
    Node, TokenId,
    accept::{Block, Match, Rejection, Rule, TargetRows},
    draft::{Anchor, Drafter, Pick, Script},
    error::Result,
    request::Request,
    sample::{
        Chain, Counts, Dist, Draws, Fault, History, Key, Keyed, Purpose, RawParams, SamplingParams,
    },
    tree::DraftTree,
};
use eyrie_verifier::every::{Walk, every};

use super::{N, RULES, assert_law, assert_not_law, choices, lab};
use crate::support::{Always, Lab, at, drafter, drawn, logs, params, prompts, request, tt_target};

/// A law with these probabilities, up to the rounding of a logit to f32.
pub(super) fn law_of(p: &[f64]) -> Dist {
    let zero = (0..).zip(p).filter(|(_, p)| **p == 0.0);
    let params = params(|raw| {
        raw.temperature = 1.0;
        raw.logit_bias = zero.map(|(id, _)| (id, f64::NEG_INFINITY)).collect();
    });
    let chain = Chain::new(params, p.len(), p.len(), vec![]).unwrap();
    let history = History {
        counts: &Counts::new(&[]),
        tokens: &[],
        path: &[],
    };
    chain.law(&logs(p), &history).unwrap()
}

/// One law at every row.
struct Constant(Dist);

impl TargetRows for Constant {
    fn law(&mut self, _: Option<Node>) -> Result<Dist, Fault> {
        Ok(self.0.clone())
    }
}

/// Goes through every branch of a decision.
struct Walked<'a>(&'a mut Walk);

impl Draws for Walked<'_> {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        panic!("noise asked for at {at:?}")
    }

    fn pick(&mut self, _: Key, w: &[f64]) -> usize {
        self.0.pick(w)
    }

    fn accept(&mut self, _: Key, p: f64) -> bool {
        self.0.accept(p)
    }
}

/// The exact law of the first token that `rule` emits for these drafts where the target says `p`.
pub(super) fn emitted(rule: &dyn Rule, tree: &DraftTree, p: &[f64]) -> Vec<f64> {
    let mut law = vec![0.0; p.len()];
    let first = |walk: &mut Walk| {
        let verdict = rule.decide(tree, &mut Constant(law_of(p)), 1, &mut Walked(walk));
        let drafted = verdict.path.first().map(|node| tree.token(*node));
        drafted.or(verdict.next.ok()).unwrap()
    };
    every(first, |token, weight| law[token as usize] += weight);
    law
}

/// Equal but for the rounding of logits to f32.
pub(super) fn assert_near(got: &[f64], want: &[f64]) {
    let near = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(near && got.len() == want.len(), "{got:?}, not {want:?}");
}

/// A random number generator that says one number; coins are strict or, as in other engines, not.
pub(super) struct Coin {
    u: f64,
    strict: bool,
}

impl Coin {
    pub(super) fn at(u: f64) -> Self {
        Self { u, strict: true }
    }
}

impl Draws for Coin {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        panic!("noise asked for at {at:?}")
    }

    fn pick(&mut self, _: Key, w: &[f64]) -> usize {
        let mut left = self.u * w.iter().sum::<f64>();
        let above = |w: &f64| {
            left -= w;
            left < 0.0
        };
        w.iter().position(above).unwrap_or(w.len() - 1)
    }

    fn accept(&mut self, _: Key, p: f64) -> bool {
        if self.strict { self.u < p } else { self.u <= p }
    }
}

/// Proposes these tokens as children of the anchor, in this order.
#[derive(Debug)]
struct Siblings(Vec<TokenId>);

impl Drafter for Siblings {
    fn name(&self) -> &'static str {
        "siblings"
    }

    fn propose(&mut self, _: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        trees.fill(siblings(&self.0)?);
        Ok(())
    }
}

fn siblings(tokens: &[TokenId]) -> Result<DraftTree> {
    let mut tree = DraftTree::new();
    for token in tokens {
        tree.point(None, *token)?;
    }
    Ok(tree)
}

/// Case 12: siblings are judged by what the rejected ones left, and the last residual is drawn
/// from. Judging each by the target's own law and then drawing from that is seen, exactly and in
/// the engine.
#[test]
fn c12_a_rejected_sibling_is_taken_out_before_the_next() {
    let (p, wrong) = ([0.5, 0.3, 0.2], [0.525, 0.405, 0.07]);
    let tree = siblings(&[1, 0]).unwrap();
    for rule in [&Rejection as &dyn Rule, &Block] {
        let exact = emitted(rule, &tree, &p);
        let target = law_of(&p);
        for (id, got) in (0..).zip(&exact) {
            assert!((got - target.p(id)).abs() < 1e-12, "{exact:?}");
        }
    }
    let mut shared = vec![0.0; 3];
    let stale = |walk: &mut Walk| {
        let tried = [1, 0].into_iter().find(|id| walk.accept(p[*id]));
        tried.unwrap_or_else(|| walk.pick(&p))
    };
    every(stale, |token, weight| shared[token] += weight);
    assert_near(&shared, &wrong);
    for (seed, rule) in (12..).zip(RULES) {
        let lab = lab(&p, rule);
        let request = Request {
            max_tokens: 4,
            ..drawn(&[0], 1.0, seed)
        };
        let tokens = choices(&lab, Box::new(Siblings(vec![1, 0])), request, N);
        for index in 1..4 {
            assert_law(&tokens, index, &p);
            assert_not_law(&tokens, index, &wrong);
        }
    }
}

/// The largest and the smallest noise there is, for chosen tokens.
#[derive(Debug)]
struct Extreme(TokenId);

impl Draws for Extreme {
    fn gumbel(&self, _: Key, token: TokenId) -> f64 {
        if token == self.0 { 36.8 } else { -3.7 }
    }

    fn pick(&mut self, _: Key, _: &[f64]) -> usize {
        unreachable!("`match` asks for noise only")
    }

    fn accept(&mut self, _: Key, _: f64) -> bool {
        unreachable!("`match` asks for noise only")
    }
}

/// Case 13: a token without mass is never emitted, whatever the noise or the coin; one with all the
/// mass always is; and a uniform number of the crate is never 0 or 1.
#[test]
fn c13_no_boundary_lets_a_massless_token_through() {
    let law = law_of(&[0.0, 1.0, 0.0]);
    for draft in [2, 0] {
        let tree = DraftTree::chain(&[draft]);
        let verdict = Match.decide(&tree, &mut Constant(law.clone()), 0, &mut Extreme(draft));
        assert_eq!((verdict.path.len(), verdict.next), (0, Ok(1)));
    }
    let sure = DraftTree::chain(&[1]);
    let verdict = Match.decide(&sure, &mut Constant(law.clone()), 0, &mut Extreme(2));
    assert_eq!(verdict.path.len(), 1);
    let thirds = |u| {
        let (mut tree, at) = (DraftTree::new(), Key::node(0, 0, Purpose::Draft));
        let q = law_of(&[1.0 / 3.0; 3]);
        tree.drawn(None, q, at, &mut Coin::at(u)).unwrap();
        tree
    };
    for u in [0.0, 1.0 - 2f64.powi(-24)] {
        for rule in [&Rejection as &dyn Rule, &Block] {
            let decide = |tree: &DraftTree, strict| {
                let mut rows = Constant(law.clone());
                rule.decide(tree, &mut rows, 0, &mut Coin { u, strict })
            };
            for tree in [DraftTree::chain(&[2]), thirds(0.9)] {
                assert_eq!(tree.token(Node(0)), 2);
                let verdict = decide(&tree, true);
                assert_eq!((verdict.path.len(), verdict.next), (0, Ok(1)), "{u}");
                // What the strict coin is for; `block` does not toss one that cannot win.
                let loose = decide(&tree, false).path.len();
                assert_eq!(loose, usize::from(u == 0.0 && rule.name() == "rejection"));
            }
            for tree in [DraftTree::chain(&[1]), thirds(0.5)] {
                assert_eq!(decide(&tree, true).path, [Node(0)], "{u}");
            }
        }
    }
    for seed in 0..2000 {
        let mut draws = Keyed::new(seed);
        let key = Key::node(seed, 1, Purpose::Accept);
        assert!(!draws.accept(key, 0.0) && draws.accept(key, 1.0));
        assert!(draws.gumbel(Key::token(seed), 3).is_finite());
    }
}

/// Case 14: short, empty and out-of-range drafts are harmless, under every rule.
#[test]
fn c14_placeholder_ids_are_rejected_drafts() {
    let p = [0.4, 0.3, 0.2, 0.1];
    for (i, rule) in (140..).zip(RULES) {
        let same = rule().name() == "match";
        let t = if same { 0.8 } else { 0.0 };
        let lab = Lab::new(tt_target()).with(|lab| lab.rule = rule);
        let requests: Vec<_> = prompts(64).iter().map(|p| drawn(p, t, 4)).collect();
        let base = lab.base(&requests);
        for drafts in [
            vec![],
            vec![64],
            vec![u32::MAX; 4],
            vec![1, u32::MAX, 2, 3],
            vec![70, 1, 1],
        ] {
            let count = drafts.len();
            let run = lab.run(Box::new(Always(drafts.clone())), &requests);
            assert_eq!(run.tokens(), base);
            let deepest = run.traces.iter().map(|trace| trace.drafted.len()).max();
            assert_eq!(deepest, Some(count));
            let small = super::lab(&p, rule);
            let request = Request {
                max_tokens: 4,
                ..drawn(&[0], 1.0, i)
            };
            let tokens = choices(&small, Box::new(Always(drafts)), request, N);
            for index in 1..4 {
                assert_law(&tokens, index, &p);
            }
        }
        assert_eq!(lab.run(drafter(&lab, "broken"), &requests).tokens(), base);
        let long = Script::new(vec![vec![1; 500]; 50]);
        assert_eq!(lab.run(Box::new(long), &requests).tokens(), base);
    }
}

/// Case 15: no temperature breaks drafting; impossible ones are refused when the request is read.
#[test]
fn c15_temperatures_at_the_edge() {
    let lab = Lab::new(tt_target());
    let greedy = lab.base(&[request(&[1, 2])]);
    for t in [0.0, 1e-9] {
        assert_eq!(
            lab.run(lab.self_drafter(), &[drawn(&[1, 2], t, 9)])
                .tokens(),
            greedy
        );
    }
    let tiny = drawn(&[1, 2], 1e-4, 9);
    let run = lab.run(lab.self_drafter(), std::slice::from_ref(&tiny));
    assert_eq!(run.tokens(), lab.base(&[tiny]));
    for t in [-1.0, f64::NAN, f64::INFINITY, 100.5] {
        let error = SamplingParams::new(RawParams {
            temperature: t,
            ..RawParams::default()
        });
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("temperature") && message.contains("100"),
            "{message}"
        );
    }
}

/// Case 16: where target and drafter say one law, the rate of one draft is that of the rule and
/// the pick that are named, and of no other line of the table. Five standard deviations on either
/// side of it at N = 4,000 are at most 0.04.
#[test]
fn c16_the_rate_is_that_of_the_named_rule_and_pick() {
    let p = [0.5, 0.3, 0.2];
    let rates = [
        ("match", Pick::Coupled, 1.0),
        ("match", Pick::Greedy, 0.5),
        ("match", Pick::Drawn, 0.38),
        ("rejection", Pick::Coupled, 0.38),
        ("rejection", Pick::Greedy, 0.5),
        ("rejection", Pick::Drawn, 1.0),
        ("block", Pick::Greedy, 0.5),
        ("block", Pick::Drawn, 1.0),
    ];
    let deviations = |seen: f64, rate: f64| {
        let deviation = (rate * (1.0 - rate) / f64::from(4_000)).sqrt();
        (seen - rate).abs() / deviation.max(1e-9)
    };
    for (name, pick, rate) in rates {
        let rule = RULES.into_iter().find(|rule| rule().name() == name);
        let lab = lab(&p, rule.unwrap()).with(|lab| lab.options.depth = 1);
        let drafter = lab.model_drafter(Arc::clone(&lab.target), pick);
        let request = Request {
            max_tokens: 3,
            n: N,
            ..drawn(&[0], 1.0, 16)
        };
        let run = lab.run(drafter, &[request]);
        let first: Vec<_> = run.traces.iter().filter(|trace| trace.round == 0).collect();
        assert_eq!(first.len(), N);
        let accepted = first.iter().filter(|trace| trace.accepted == 1).count();
        let seen = f64::from(at(accepted)) / f64::from(at(N));
        let what = format!("{name} with {pick:?}: {seen}");
        assert!(deviations(seen, rate) < 5.0, "{what}, not {rate}");
        for (_, _, other) in rates.iter().filter(|(_, _, other)| *other != rate) {
            assert!(deviations(seen, *other) > 5.0, "{what} could be {other}");
        }
    }
    crate::cli::flags::the_rules_run();
}

/// Case 17: every flag changes the resolved configuration, and none is missing from that test.
#[test]
fn c17_no_flag_is_ignored() {
    crate::cli::flags::every_flag_changes_the_configuration();
    crate::cli::flags::no_flag_is_left_out();
}
