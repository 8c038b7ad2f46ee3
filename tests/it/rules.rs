//! The rules `rejection` and `block` in the whole engine. Their law is exact by enumeration
//! (`law::exact`); here it is the keys, the rounds and the drafters that are judged.
//!
//! N = 4,000 a test, alpha 1e-6 for each of at most 8 comparisons of 64 cells.

use std::sync::Arc;

use eyrie::{
    TokenId,
    accept::{Block, Match, Rejection, Rule},
    draft::{Anchor, Drafter, Pick, Script},
    error::{ErrorKind, Result},
    model::Target,
    report::RoundTrace,
    request::Request,
    sample::History,
    tree::DraftTree,
};
use eyrie_verifier::chi2;

use crate::support::{Lab, Run, drafter, drawn, params, prompts, request, table_target, tt_target};

const ALPHA: f64 = 1e-6;
const N: usize = 4_000;
const RULES: [fn() -> Box<dyn Rule>; 2] = [|| Box::new(Rejection), || Box::new(Block)];

/// Logits of the next token, by the last.
pub(crate) const TARGET: [[f32; 4]; 4] = [
    [1.2, 0.1, -0.7, 0.4],
    [-0.3, 0.9, 0.8, -1.0],
    [0.0, -1.2, 0.5, 1.1],
    [0.6, 0.6, -0.9, 0.2],
];

fn table_of(rows: &[[f32; 4]], sign: f32) -> Arc<dyn Target> {
    let rows: Vec<Vec<f32>> = rows
        .iter()
        .map(|row| row.iter().map(|x| x * sign).collect())
        .collect();
    table_target(&rows)
}

/// Probabilities of the token after `last` at this temperature, of the `top_k` most likely.
fn row(last: usize, temperature: f64, top_k: usize) -> [f64; 4] {
    let mut p = TARGET[last].map(|x| (f64::from(x) / temperature).exp());
    let mut sorted = p;
    sorted.sort_by(|a, b| b.total_cmp(a));
    p = p.map(|x| if x >= sorted[top_k - 1] { x } else { 0.0 });
    let total: f64 = p.iter().sum();
    p.map(|x| x / total)
}

/// The law of the first three tokens after token 0, by `16 a + 4 b + c`.
pub(crate) fn joint(temperature: f64, top_k: usize) -> Vec<f64> {
    let mut cells = Vec::new();
    for a in 0..4 {
        for b in 0..4 {
            for c in 0..4 {
                let row = |last| row(last, temperature, top_k);
                cells.push(row(0)[a] * row(a)[b] * row(b)[c]);
            }
        }
    }
    cells
}

/// How often each triple begins a choice.
fn cells(run: &Run) -> Vec<u64> {
    let mut counts = vec![0; 64];
    for tokens in run.tokens() {
        let cell = tokens[..3].iter().fold(0, |cell, token| cell * 4 + token);
        counts[cell as usize] += 1;
    }
    counts
}

/// Fails unless the first three tokens of each choice have the target's joint law.
fn judge(run: &Run, law: &[f64], what: &str) {
    let counts = cells(run);
    for (cell, (count, p)) in counts.iter().zip(law).enumerate() {
        assert!(*p > 0.0 || *count == 0, "{what}: cell {cell} has no mass");
    }
    let fit = chi2::goodness_of_fit(&counts, law).expect("counts");
    assert!(!fit.rejects(ALPHA), "{what}: {fit:?}");
    let tv = fit.excluded_tv(ALPHA, 0.99);
    assert!(tv < 0.15, "{what}: only {tv} would have been seen");
}

fn lab(rule: fn() -> Box<dyn Rule>) -> Lab {
    Lab::new(table_of(&TARGET, 1.0)).with(|lab| lab.rule = rule)
}

/// Drafters of the table target: itself, the opposite, another law, and a script.
fn drafters(lab: &Lab) -> Vec<(&'static str, Box<dyn Drafter>)> {
    let mut td = TARGET;
    td.rotate_left(1);
    let drawn = |model| lab.model_drafter(model, Pick::Drawn);
    vec![
        ("self", drawn(Arc::clone(&lab.target))),
        ("minus", drawn(table_of(&TARGET, -1.0))),
        ("td", drawn(table_of(&td, 1.0))),
        ("script", Box::new(Script::new(vec![vec![0, 3, 1]; 9]))),
    ]
}

#[test]
fn the_first_three_tokens_have_the_targets_law() {
    let settings = [(1.0, 4, 101), (0.7, 3, 102)];
    for (which, rule) in RULES.into_iter().enumerate() {
        let lab = lab(rule);
        for (temperature, top_k, seed) in settings {
            let law = joint(temperature, top_k);
            for (i, (name, drafter)) in drafters(&lab).into_iter().enumerate() {
                let request = Request {
                    params: params(|raw| (raw.temperature, raw.top_k) = (temperature, top_k)),
                    max_tokens: 6,
                    n: N,
                    seed: seed * 100 + 10 * which as u64 + i as u64,
                    ..request(&[0])
                };
                let run = lab.run(drafter, &[request]);
                let (drafted, accepted) = run.drafted_accepted();
                let what = format!("{} with {name} at {temperature}", rule().name());
                if name == "self" {
                    assert_eq!(accepted, drafted, "{what}");
                } else {
                    assert!(0 < accepted && accepted < drafted, "{what}");
                }
                judge(&run, &law, &what);
            }
        }
    }
}

/// Trees under `rejection`: drawn ones, and those of points.
#[test]
fn trees_keep_the_law() {
    let mut td = TARGET;
    td.rotate_left(1);
    let law = joint(1.0, 4);
    let picks = [Pick::Drawn, Pick::Greedy, Pick::Coupled];
    let mut seed = 500;
    for (depth, topk, nodes) in [(3, 2, 6), (2, 3, 5)] {
        let lab = lab(RULES[0]).with(|lab| {
            (lab.options.depth, lab.options.nodes) = (depth, Some(nodes));
        });
        for (name, rows, sign) in [("minus", TARGET, -1.0), ("td", td, 1.0)] {
            for pick in picks {
                seed += 1;
                let request = Request {
                    max_tokens: 6,
                    n: N,
                    ..drawn(&[0], 1.0, seed)
                };
                let drafter = lab.tree_drafter(table_of(&rows, sign), pick, topk);
                let run = lab.run(drafter, &[request]);
                let siblings =
                    |trace: &RoundTrace| trace.parents.iter().filter(|p| **p == -1).count();
                assert!(run.traces.iter().any(|trace| siblings(trace) == topk));
                judge(
                    &run,
                    &law,
                    &format!("{name}, {pick:?}, {topk}x{depth}x{nodes}"),
                );
            }
        }
    }
}

/// What is accepted of one draft a round is the overlap of the two laws under `rejection` and
/// `block`, and the chance of two equal draws under `match`.
#[test]
fn the_rate_is_that_of_the_named_rule() {
    let laws: fn(usize) -> [f64; 4] = |last| row(last, 1.0, 4);
    let q = |last: usize| laws((last + 1) % 4);
    let mut td = TARGET;
    td.rotate_left(1);
    // Of the tokens after which a draft is made, by the target's law: the first one, after token 0.
    let rate = |share: fn(f64, f64) -> f64, q: &dyn Fn(usize) -> [f64; 4]| -> f64 {
        let after = |last| {
            laws(last)
                .iter()
                .zip(q(last))
                .map(|(p, q)| share(*p, q))
                .sum::<f64>()
        };
        (0..4).map(|last| laws(0)[last] * after(last)).sum()
    };
    let overlap: fn(f64, f64) -> f64 = f64::min;
    let equal: fn(f64, f64) -> f64 = |p, q| p * q;
    let matching: fn() -> Box<dyn Rule> = || Box::new(Match);
    for (rule, share) in [(RULES[0], overlap), (RULES[1], overlap), (matching, equal)] {
        let lab = lab(rule).with(|lab| lab.options.depth = 1);
        let own = (Arc::clone(&lab.target), rate(share, &laws));
        let other = (table_of(&td, 1.0), rate(share, &q));
        for (model, want) in [own, other] {
            let request = Request {
                max_tokens: 3,
                n: N,
                ..drawn(&[0], 1.0, 77)
            };
            let run = lab.run(lab.model_drafter(model, Pick::Drawn), &[request]);
            // One draft for each choice, since the third token cannot be drafted for after the second.
            let first: Vec<_> = run.traces.iter().filter(|trace| trace.round == 0).collect();
            let accepted = first.iter().filter(|trace| trace.accepted == 1).count();
            assert_eq!(first.len(), N);
            let seen = float(accepted) / float(N);
            let five_sigma = 5.0 * (want * (1.0 - want) / float(N)).sqrt() + 1e-12;
            let what = rule().name();
            assert!(
                (seen - want).abs() <= five_sigma,
                "{what}: {seen}, expected {want}"
            );
        }
    }
}

/// Draws chains from one law, and errs when one begins with token 1.
#[derive(Debug)]
struct Erring {
    logits: [f32; 4],
    /// Whether an error takes what was drawn with it: the fault.
    drops: bool,
}

impl Drafter for Erring {
    fn name(&self) -> &'static str {
        "erring"
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        for i in 0..anchors.len() {
            let (mut above, mut path) = (None, Vec::new());
            for _ in 0..anchors[i].depth {
                let history = History {
                    counts: anchors[i].counts,
                    tokens: anchors[i].tokens,
                    path: &path,
                };
                let q = anchors[i].chain.law(&self.logits, &history);
                let q = q.expect("finite logits");
                let node = Pick::Drawn.add(&mut trees[i], above, q, &mut anchors[i])?;
                let token = trees[i].token(node);
                if path.is_empty() && token == 1 {
                    if self.drops {
                        trees.fill(DraftTree::new());
                    }
                    return Err(ErrorKind::Draft("drew a 1".to_owned()).into());
                }
                path.push(token);
                above = Some(node);
            }
        }
        Ok(())
    }
}

/// A drafter may fail because of what it drew. What was drawn before is judged all the same; dropping
/// it would be seen.
#[test]
fn an_error_after_a_draw_does_not_bias_the_law() {
    let law = joint(1.0, 4);
    for (rule, seed) in RULES.into_iter().zip(60..) {
        let lab = lab(rule).with(|lab| lab.options.max_batch = 1);
        let run = |drops| {
            let logits = [0.2, 0.8, -0.3, 0.3];
            let request = Request {
                max_tokens: 6,
                n: N,
                ..drawn(&[0], 1.0, seed)
            };
            lab.run(Box::new(Erring { logits, drops }), &[request])
        };
        let honest = run(false);
        let drafted: Vec<_> = honest.traces.iter().map(|trace| &trace.drafted).collect();
        let erred = drafted.iter().filter(|drafts| ***drafts == [1]);
        assert!(erred.count() > N / 4);
        judge(&honest, &law, rule().name());
        let fit = chi2::goodness_of_fit(&cells(&run(true)), &law).expect("counts");
        assert!(fit.rejects(ALPHA), "{}: {fit:?}", rule().name());
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}

/// At temperature 0 the rules emit plain decoding's tokens.
#[test]
fn at_temperature_0_the_tokens_are_the_plain_ones() {
    let requests: Vec<_> = prompts(64)[..6]
        .iter()
        .map(|prompt| request(prompt))
        .collect();
    let plain = Lab::new(tt_target()).base(&requests);
    for rule in RULES {
        let lab = Lab::new(tt_target()).with(|lab| lab.rule = rule);
        for name in ["none", "self-drawn", "td-drawn", "self", "ngram", "script"] {
            let run = lab.run(drafter(&lab, name), &requests);
            assert_eq!(run.tokens(), plain, "{} with {name}", rule().name());
        }
    }
}

/// A request's tokens depend on nothing but itself, here too, as long as its rounds are the same:
/// not on its neighbours, nor on when their rows are fed.
#[test]
fn neighbours_do_not_change_a_request() {
    let requests: Vec<_> = prompts(64)[..6]
        .iter()
        .zip(0..)
        .map(|(prompt, seed)| drawn(prompt, 0.9, seed))
        .collect();
    for rule in RULES {
        let lab = Lab::new(tt_target()).with(|lab| lab.rule = rule);
        let together = lab.run(drafter(&lab, "td-drawn"), &requests).tokens();
        let mut alone = Vec::<Vec<TokenId>>::new();
        for request in &requests {
            alone.extend(
                lab.run(drafter(&lab, "td-drawn"), std::slice::from_ref(request))
                    .tokens(),
            );
        }
        assert_eq!(together, alone, "{}", rule().name());
    }
}
