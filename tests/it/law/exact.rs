//! The rules `rejection` and `block`: the exact law of what a round emits, with the drafts drawn
//! inside of the enumeration; the twins; and variants that are wrong.

use std::collections::BTreeMap;

use eyrie::{
    Node, TokenId,
    accept::{Block, Match, Rejection, Rule},
    mutant::Mutant,
    sample::{self, Dist, Keyed},
    tree::DraftTree,
};

use super::{
    Rows,
    mutants::lacking,
    naive::{self, Fault},
    walk::{Decide, Setting, chain_of, chains, hard, rule, settings, trees},
};

const EXACT: f64 = 1e-12;

fn worst(settings: &[Setting], decide: Decide<'_>) -> f64 {
    let errors = settings.iter().map(|setting| {
        let exact = setting.exact(decide);
        assert!(exact.error < EXACT, "{exact:?} on {setting:?}");
        exact.error
    });
    errors.fold(0.0, f64::max)
}

#[test]
fn rejection_is_exact_on_chains() {
    assert!(worst(&settings(4, &chains()), &rule(&Rejection)) < EXACT);
}

#[test]
fn rejection_is_exact_on_trees() {
    assert!(worst(&settings(3, &trees()), &rule(&Rejection)) < EXACT);
}

#[test]
fn block_is_exact_on_chains() {
    assert!(worst(&settings(4, &chains()), &rule(&Block)) < EXACT);
}

/// Of a tree it takes one chain, which is as exact.
#[test]
fn block_is_exact_on_trees() {
    assert!(worst(&settings(3, &trees()), &rule(&Block)) < EXACT);
}

/// Probabilities of all verdicts.
fn verdicts(
    setting: &Setting,
    decide: Decide<'_>,
) -> BTreeMap<(Vec<TokenId>, Vec<Node>, TokenId), f64> {
    let mut law = BTreeMap::new();
    setting.branches(
        decide,
        |tree, verdict| {
            let tokens = tree.nodes().map(|node| tree.token(node)).collect();
            (tokens, verdict.path.clone(), verdict.next.clone().unwrap())
        },
        |verdict, weight| *law.entry(verdict).or_insert(0.0) += weight,
    );
    law
}

fn equal_verdicts(settings: &[Setting], a: Decide<'_>, b: Decide<'_>) {
    for setting in settings {
        let (a, b) = (verdicts(setting, a), verdicts(setting, b));
        for cell in a.keys().chain(b.keys()) {
            let at = |law: &BTreeMap<_, f64>| law.get(cell).copied().unwrap_or(0.0);
            let error = (at(&a) - at(&b)).abs();
            assert!(error < EXACT, "{cell:?}: {error:e} on {setting:?}");
        }
    }
}

/// Not only the tokens: every verdict on every drawn tree has the twin's probability.
#[test]
fn rejection_equals_its_twin() {
    equal_verdicts(
        &settings(4, &chains()),
        &rule(&Rejection),
        &naive::rejection(Fault::None, 4),
    );
    equal_verdicts(
        &settings(3, &trees()),
        &rule(&Rejection),
        &naive::rejection(Fault::None, 3),
    );
}

#[test]
fn block_equals_its_twin() {
    equal_verdicts(
        &settings(4, &chains()),
        &rule(&Block),
        &naive::block(Fault::None, 4),
    );
}

/// Mean length of the accepted path.
fn accepted(setting: &Setting, decide: Decide<'_>) -> f64 {
    let mut mean = 0.0;
    setting.branches(
        decide,
        |_, verdict| verdict.path.len(),
        |length, weight| mean += f64::from(u32::try_from(length).unwrap()) * weight,
    );
    mean
}

#[test]
fn block_accepts_no_less_than_rejection_and_as_much_of_points() {
    let mut more = 0;
    for setting in settings(4, &chains()) {
        let points = setting.nodes.iter().all(|(_, drawn)| !drawn);
        let (block, rejection) = (
            accepted(&setting, &rule(&Block)),
            accepted(&setting, &rule(&Rejection)),
        );
        assert!(
            block > rejection - EXACT,
            "{block} < {rejection} on {setting:?}"
        );
        assert!(!points || (block - rejection).abs() < EXACT, "{setting:?}");
        more += usize::from(block > rejection + 1e-3);
    }
    assert!(more > 50, "more in {more} settings only");
}

/// A single draft is accepted with the overlap of the two laws, the most that any rule can.
#[test]
fn one_draft_is_accepted_with_the_overlap() {
    for setting in settings(4, &[chain_of(1, |_| true)]) {
        let (p, q) = (setting.p(&[]), setting.q(&[]));
        let overlap: f64 = (0..4).map(|id| p.p(id).min(q.p(id))).sum();
        for decide in [&rule(&Rejection) as Decide<'_>, &rule(&Block)] {
            assert!(
                (accepted(&setting, decide) - overlap).abs() < EXACT,
                "{setting:?}"
            );
        }
    }
}

/// The trees and chains on which variants are judged.
fn hard_ones() -> [Setting; 2] {
    let siblings = vec![(None, true), (None, true), (Some(0), true)];
    [hard(chain_of(3, |_| true)), hard(siblings)]
}

fn caught(decide: Decide<'_>, setting: &Setting) {
    let error = setting.error(decide);
    assert!(error > 1e-4, "{error:e}");
}

/// The exact error of broken variants, by setting.
#[test]
fn variants_are_caught_by_enumeration() {
    let [chain, tree] = hard_ones();
    let everywhere = [
        Mutant::AlwaysAccept,
        Mutant::InverseRatio,
        Mutant::ResampleFromP,
        Mutant::DraftedZeroed,
        Mutant::DroppedByValue,
        Mutant::StaleQ,
    ];
    let between_siblings = [Mutant::SiblingLeftIn, Mutant::SiblingUnnormalised];
    let mut lines = Vec::new();
    for mutant in everywhere.into_iter().chain(between_siblings) {
        let drawing = ["rejection", "block"]
            .iter()
            .filter(|rule| mutant.rules().contains(rule));
        for rule_name in drawing {
            let (honest, setting): (Box<dyn Rule>, _) = match *rule_name {
                "block" => (Box::new(Block), &chain),
                _ if between_siblings.contains(&mutant) => (Box::new(Rejection), &tree),
                _ => (Box::new(Rejection), &chain),
            };
            let error = setting.error(&rule(&*mutant.rule(honest)));
            assert!(error > 1e-4, "{error:e}: {mutant:?} of {rule_name}");
            let test = "law::exact::variants_are_caught_by_enumeration";
            let name = mutant.name();
            lines.push(format!(
                "| `{name}` | {rule_name} | `{test}` | exact | error {error:.3} |"
            ));
        }
    }
    lacking(&lines);
}

/// Faults between siblings do not show on chains.
#[test]
fn faults_between_siblings_are_caught_on_trees_alone() {
    let [chain, tree] = hard_ones();
    for mutant in [Mutant::SiblingLeftIn, Mutant::SiblingUnnormalised] {
        let broken = mutant.rule(Box::new(Rejection));
        assert!(chain.error(&rule(&*broken)) < EXACT, "{mutant:?}");
        caught(&rule(&*broken), &tree);
    }
    let first_law = naive::rejection(Fault::FirstLaw, 4);
    assert!(chain.error(&first_law) < EXACT);
    caught(&first_law, &tree);
}

/// What the rule's own parts would have to get wrong.
#[test]
fn faults_of_block_are_caught() {
    let [chain, _] = hard_ones();
    for fault in [Fault::Uncut, Fault::Unweighted, Fault::Flat] {
        caught(&naive::block(fault, 4), &chain);
    }
}

/// A point that was in truth drawn from q: exact, at the price of acceptance; a node that claims q
/// and is a point is not.
#[test]
fn a_point_that_claims_a_law_is_caught() {
    let [chain, _] = hard_ones();
    let argmax = |q: &Dist| Dist::one_hot(q.argmax());
    for honest in [&rule(&Rejection) as Decide<'_>, &rule(&Block)] {
        let claiming: Decide<'_> = &|tree, rows, draws| {
            let q = chain.q(&[]);
            let mut other = DraftTree::new();
            let at = sample::Key::node(77, 0, sample::Purpose::Draft);
            // The drafter says q and draws the argmax of it.
            let liar = q
                .ids()
                .iter()
                .position(|id| *id == argmax(&q).ids()[0])
                .unwrap();
            other.drawn(None, q, at, &mut Fixed(liar)).unwrap();
            assert!(!tree.is_empty());
            honest(&other, rows, draws)
        };
        caught(claiming, &chain);
    }
}

/// Answers every question with one number.
struct Fixed(usize);

impl sample::Draws for Fixed {
    fn gumbel(&self, _: sample::Key, _: TokenId) -> f64 {
        0.0
    }
    fn pick(&mut self, _: sample::Key, _: &[f64]) -> usize {
        self.0
    }
    fn accept(&mut self, _: sample::Key, _: f64) -> bool {
        false
    }
}

/// At temperature 0 every rule gives the verdict of `match`, on chains; on trees too but `block`,
/// which sees one chain of them.
#[test]
fn at_temperature_0_the_rules_are_one() {
    for seed in 0..300u32 {
        let law = |path: &[TokenId]| {
            let mix = |h: u32, t: &TokenId| (h ^ (t + 1)).wrapping_mul(0x9E37_79B1) >> 7;
            Ok(Dist::one_hot(path.iter().fold(seed, mix) % 3))
        };
        let mut state = seed;
        let mut number = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        let chain = DraftTree::chain(&[number(3), number(3), number(3)]);
        let mut tree = DraftTree::new();
        for i in 0..8 {
            let parent = Some(Node(number(9))).filter(|node| node.0 < i);
            tree.point(parent, number(4)).unwrap();
        }
        let decide = |rule: &dyn Rule, tree: &DraftTree| {
            rule.decide(
                tree,
                &mut Rows { tree, law },
                7,
                &mut Keyed::new(u64::from(seed)),
            )
        };
        let want = decide(&Match, &chain);
        assert_eq!(decide(&Rejection, &chain), want);
        assert_eq!(decide(&Block, &chain), want);
        assert_eq!(decide(&Rejection, &tree), decide(&Match, &tree));
    }
}

/// A row without a law ends the round there: what came before is kept, as often as the target
/// emits it.
#[test]
fn a_fault_keeps_the_path_before_it() {
    let tree = DraftTree::chain(&[1, 1, 1]);
    for rule in [&Rejection as &dyn Rule, &Block] {
        for depth in 0..=3 {
            let law = |prefix: &[TokenId]| match prefix.len() {
                n if n == depth => Err(sample::Fault::NonFinite),
                _ => Ok(Dist::one_hot(1)),
            };
            let verdict = rule.decide(&tree, &mut Rows { tree: &tree, law }, 0, &mut Keyed::new(0));
            assert_eq!(verdict.path.len(), depth);
            assert_eq!(verdict.next, Err(sample::Fault::NonFinite));
        }
    }
}

/// With `q` far from `p`, a prefix in front of a row without a law is emitted with the target's
/// probability.
#[test]
fn a_prefix_before_a_fault_is_as_likely_as_in_plain_decoding() {
    let [chain, _] = hard_ones();
    for honest in [&rule(&Rejection) as Decide<'_>, &rule(&Block)] {
        let failing: Decide<'_> = &|tree, _, draws| {
            let law = |path: &[TokenId]| match path {
                [_, _] => Err(sample::Fault::Masked),
                _ => Ok(chain.p(path)),
            };
            honest(tree, &mut Rows { tree, law }, draws)
        };
        let mut pairs = BTreeMap::<Vec<TokenId>, f64>::new();
        chain.branches(
            failing,
            |tree, verdict| {
                let path = verdict.path.iter().map(|&node| tree.token(node));
                path.chain(verdict.next.as_ref().ok().copied())
                    .collect::<Vec<_>>()
            },
            |tokens, weight| {
                let rest = if tokens.len() == 1 {
                    chain.p(&tokens)
                } else {
                    Dist::one_hot(9)
                };
                for (id, ln_p) in rest.iter() {
                    let pair = [tokens[0], tokens.get(1).copied().unwrap_or(id)];
                    *pairs.entry(pair.to_vec()).or_insert(0.0) += weight * ln_p.exp();
                }
            },
        );
        for (pair, got) in pairs {
            let want = chain.p(&[]).p(pair[0]) * chain.p(&pair[..1]).p(pair[1]);
            assert!((got - want).abs() < EXACT, "{pair:?}: {got}, target {want}");
        }
    }
}
