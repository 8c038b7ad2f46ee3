//! The rule `match`, exhaustively, and against plain decoding with the whole chain.

use std::cell::RefCell;

use eyrie::{
    Node, TokenId,
    accept::{Match, Rule, TargetRows, Verdict},
    judge::trajectory::{DEPTH, Decide, TOKENS, small_trees, with_every_function},
    sample::{Chain, Counts, Dist, Fault, History, Keyed, RawParams, SamplingParams, choose},
    tree::DraftTree,
};
use proptest::prelude::*;

use super::Rows;

/// The decision of the real rule.
fn real(tree: &DraftTree, rows: &mut dyn TargetRows) -> Verdict {
    Match.decide(tree, rows, 0, &mut Keyed::new(0))
}

/// Every tree of at most 5 nodes over 3 tokens, of depth at most 3, in every numbering and with every
/// repetition of siblings.
#[test]
fn every_small_tree_and_every_function() {
    let trees = small_trees(5);
    let runs = trees.iter().map(|tree| with_every_function(tree, &real));
    let runs: Result<usize, String> = runs.sum();
    assert_eq!((trees.len(), runs), (27_805, Ok(292_059)));
}

/// What hangs under a node: for each token the subtree of that child, if there is one.
#[derive(Clone, Default)]
struct Under([Option<Box<Self>>; TOKENS as usize]);

/// All of depth at most `depth`, siblings distinct: 1, 8, 729, ...
fn all_under(depth: usize) -> Vec<Under> {
    if depth == 0 {
        return vec![Under::default()];
    }
    let below = all_under(depth - 1);
    let options: Vec<_> = std::iter::once(None)
        .chain(below.into_iter().map(|u| Some(Box::new(u))))
        .collect();
    let mut out = Vec::new();
    for a in &options {
        for b in &options {
            for c in &options {
                out.push(Under([a.clone(), b.clone(), c.clone()]));
            }
        }
    }
    out
}

fn plant(under: &Under, parent: Option<Node>, tree: &mut DraftTree) {
    for (token, below) in (0..).zip(&under.0) {
        if let Some(below) = below {
            let node = tree.point(parent, token).unwrap();
            plant(below, Some(node), tree);
        }
    }
}

/// Trees whose siblings are distinct, of depth at most 3, however many nodes (up to 39).
///
/// There are 730^3 = 389,017,000 of them, but for one function the rule enters one subtree under
/// the anchor. So it is enough that under one child of the anchor hangs each of the 729 trees of depth
/// 2, while each of the other two is absent, a leaf, or has everything below it: every pair of a tree
/// and a function agrees with a pair tried here in the anchor's children and in the subtree entered.
#[test]
fn every_distinct_tree_and_every_function() {
    let subtrees = all_under(DEPTH - 1);
    assert_eq!(subtrees.len(), 729);
    let others = [None, Some(Under::default()), subtrees.last().cloned()];
    let (mut trees, mut runs) = (0, 0);
    for place in 0..TOKENS as usize {
        for subtree in std::iter::once(None).chain(subtrees.iter().map(Some)) {
            for a in &others {
                for b in &others {
                    let mut rest = [a, b].into_iter();
                    let under = Under(std::array::from_fn(|i| {
                        let here = if i == place {
                            subtree
                        } else {
                            rest.next()?.as_ref()
                        };
                        here.cloned().map(Box::new)
                    }));
                    let mut tree = DraftTree::new();
                    plant(&under, None, &mut tree);
                    trees += 1;
                    runs += with_every_function(&tree, &real).unwrap();
                }
            }
        }
    }
    assert_eq!((trees, runs), (3 * 730 * 9, 728_856));
}

/// A walk like the rule's, with a choice of child of its own.
fn walk_down(
    tree: &DraftTree,
    rows: &mut dyn TargetRows,
    child: impl Fn(Vec<Node>, TokenId) -> Option<Node>,
) -> Verdict {
    let mut path = Vec::<Node>::new();
    loop {
        let at = path.last().copied();
        let next = rows.law(at).unwrap().argmax();
        match child(tree.children(at).collect(), next) {
            Some(node) => path.push(node),
            None => {
                return Verdict {
                    path,
                    next: Ok(next),
                };
            }
        }
    }
}

/// What is found wrong with a rule on `tree`.
fn wrong(tree: &DraftTree, decide: Decide<'_>) -> String {
    with_every_function(tree, decide).expect_err("a broken rule")
}

/// Accepts an only child unseen.
#[test]
fn a_rule_that_trusts_an_only_child_is_caught() {
    let trusting: Decide<'_> = &|tree, rows| {
        walk_down(tree, rows, |children, next| match children[..] {
            [only] => Some(only),
            _ => children.into_iter().find(|&n| tree.token(n) == next),
        })
    };
    let found = wrong(&DraftTree::chain(&[1]), trusting);
    assert!(found.starts_with("token 0 of"), "{found}");
}

/// Right tokens, but fewer than the tree allows.
#[test]
fn a_rule_that_stops_early_is_caught() {
    let early: Decide<'_> = &|tree, rows| walk_down(tree, rows, |_, _| None);
    let found = wrong(&DraftTree::chain(&[1]), early);
    assert!(found.starts_with("[] stops before Node(0)"), "{found}");
}

/// Right tokens, through the higher of two twins.
#[test]
fn a_rule_that_takes_the_higher_twin_is_caught() {
    let mut twins = DraftTree::chain(&[1]);
    twins.point(None, 1).unwrap();
    let higher: Decide<'_> = &|tree, rows| {
        walk_down(tree, rows, |children, next| {
            children.into_iter().rev().find(|&n| tree.token(n) == next)
        })
    };
    let found = wrong(&twins, higher);
    assert!(
        found.starts_with("Some(Node(0)) is the child, not Node(1)"),
        "{found}"
    );
}

#[test]
fn a_fault_keeps_the_path_before_it() {
    let tree = DraftTree::chain(&[1, 1, 1]);
    for depth in 0..=3 {
        let law = |prefix: &[TokenId]| match prefix.len() {
            n if n == depth => Err(Fault::NonFinite),
            _ => Ok(Dist::one_hot(1)),
        };
        let verdict = Match.decide(&tree, &mut Rows { tree: &tree, law }, 0, &mut Keyed::new(0));
        assert_eq!(verdict.path.len(), depth);
        assert_eq!(verdict.next, Err(Fault::NonFinite));
    }
}

/// Rows off the path are never asked for, a row on it once.
#[test]
fn laws_are_asked_for_along_the_path_only() {
    let mut tree = DraftTree::chain(&[0, 0]);
    tree.point(None, 2).unwrap();
    tree.point(Some(Node(0)), 2).unwrap();
    let asked = RefCell::new(Vec::new());
    let law = |prefix: &[TokenId]| {
        asked.borrow_mut().push(prefix.to_vec());
        Ok(Dist::one_hot(0))
    };
    Match.decide(&tree, &mut Rows { tree: &tree, law }, 0, &mut Keyed::new(0));
    assert_eq!(*asked.borrow(), [vec![], vec![0], vec![0, 0]]);
}

const VOCAB: usize = 6;

/// A target of no particular kind: logits from a mix of the last three tokens.
fn logits(tokens: &[TokenId]) -> Vec<f32> {
    let mut state = tokens
        .iter()
        .rev()
        .take(3)
        .fold(17, |h: u32, &t| (h ^ t).wrapping_mul(0x9E37_79B1));
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap()) / 16_384.0
    };
    (0..VOCAB).map(|_| next() - 2.0).collect()
}

/// A request and what its drafter does.
#[derive(Clone, Debug)]
struct Case {
    raw: RawParams,
    seed: u64,
    prompt: Vec<TokenId>,
    /// Of each round, (parent, token); parents out of range fall to the anchor. Tokens equal to the
    /// vocabulary stand for nonsense.
    drafts: Vec<Vec<(u32, TokenId)>>,
    /// Of each round, how many coupled picks follow as a chain.
    coupled: Vec<usize>,
}

fn cases() -> impl Strategy<Value = Case> {
    let vocab = u32::try_from(VOCAB).unwrap();
    let raw = (
        prop_oneof![Just(0.0), Just(0.7), Just(1.0), Just(1.6)],
        0..4usize,
        prop_oneof![Just(1.0), 0.3..1.0],
        prop_oneof![Just(1.0), 0.5..2.0],
        -2.0..2.0f64,
        -2.0..2.0f64,
        0..8usize,
    )
        .prop_map(
            |(temperature, top_k, top_p, repetition, presence, frequency, min_tokens)| RawParams {
                temperature,
                top_k,
                top_p,
                repetition_penalty: repetition,
                presence_penalty: presence,
                frequency_penalty: frequency,
                min_tokens,
                ..RawParams::default()
            },
        );
    let round = prop::collection::vec((0..8u32, 0..=vocab), 0..8);
    (
        raw,
        any::<u64>(),
        prop::collection::vec(0..vocab, 1..5),
        prop::collection::vec(round, 1..6),
        prop::collection::vec(0..4usize, 6),
    )
        .prop_map(|(raw, seed, prompt, drafts, coupled)| Case {
            raw,
            seed,
            prompt,
            drafts,
            coupled,
        })
}

fn law(
    chain: &Chain,
    prompt: &[TokenId],
    counts: &Counts,
    output: &[TokenId],
    path: &[TokenId],
) -> Dist {
    let tokens = &[prompt, output].concat();
    let history = History {
        counts,
        tokens,
        path,
    };
    let all = [tokens.as_slice(), path].concat();
    chain.law(&logits(&all), &history).unwrap()
}

fn index(counts: &Counts) -> u64 {
    counts.output_len() as u64
}

fn plain(case: &Case, chain: &Chain, tokens: usize) -> Vec<TokenId> {
    let (mut counts, mut output) = (Counts::new(&case.prompt), Vec::new());
    while output.len() < tokens {
        let law = law(chain, &case.prompt, &counts, &output, &[]);
        let token = choose(&law, index(&counts), &Keyed::new(case.seed));
        counts.push(token);
        output.push(token);
    }
    output
}

fn tree_of(drafts: &[(u32, TokenId)]) -> DraftTree {
    let mut tree = DraftTree::new();
    for &(parent, token) in drafts {
        let parent = Some(Node(parent)).filter(|p| p.index() < tree.len());
        tree.point(parent, token).unwrap();
    }
    tree
}

/// The output of rounds with the case's drafts.
fn speculative(case: &Case, chain: &Chain) -> Vec<TokenId> {
    let mut keyed = Keyed::new(case.seed);
    let (mut counts, mut output) = (Counts::new(&case.prompt), Vec::<TokenId>::new());
    for (drafts, &coupled) in case.drafts.iter().zip(&case.coupled) {
        let mut tree = tree_of(drafts);
        let (mut parent, mut path) = (None, Vec::new());
        for _ in 0..coupled {
            let q = law(chain, &case.prompt, &counts, &output, &path);
            let token = choose(&q, index(&counts) + path.len() as u64, &keyed);
            parent = Some(tree.point(parent, token).unwrap());
            path.push(token);
        }
        let mut rows = Rows {
            tree: &tree,
            law: |path: &[TokenId]| Ok(law(chain, &case.prompt, &counts, &output, path)),
        };
        let verdict = Match.decide(&tree, &mut rows, index(&counts), &mut keyed);
        // Other drafts may stand lower in the tree and lead elsewhere; alone, the drafter that is
        // the target is always right.
        if drafts.is_empty() {
            assert_eq!(verdict.path.len(), coupled);
        }
        let accepted = verdict.path.iter().map(|&n| tree.token(n));
        for token in accepted.chain([verdict.next.unwrap()]).collect::<Vec<_>>() {
            counts.push(token);
            output.push(token);
        }
    }
    output
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is drafted, the rounds emit plain decoding's tokens, with every parameter that
    /// looks at the history.
    #[test]
    fn rounds_emit_the_plain_trajectory(case in cases()) {
        let params = SamplingParams::new(case.raw.clone()).unwrap();
        let chain = Chain::new(params, VOCAB, VOCAB, vec![2]).unwrap();
        let output = speculative(&case, &chain);
        prop_assert!(output.len() >= case.drafts.len());
        prop_assert_eq!(&output, &plain(&case, &chain, output.len()));
    }
}
