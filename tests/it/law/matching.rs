//! The rule `match`, exhaustively, and against plain decoding with the whole chain.

use std::{cell::RefCell, collections::BTreeMap};

use eyrie::{
    Node, TokenId,
    accept::{Match, Rule, TargetRows, Verdict},
    sample::{Chain, Counts, Dist, Fault, History, Keyed, RawParams, SamplingParams, choose},
    tree::DraftTree,
};
use eyrie_verifier::every::{Walk, every};
use proptest::prelude::*;

use super::Rows;

const TOKENS: u32 = 3;
const DEPTH: usize = 3;

/// The decision on a tree of the real rule, or of a broken one.
type Decide = fn(&DraftTree, &mut dyn TargetRows) -> Verdict;

fn real(tree: &DraftTree, rows: &mut dyn TargetRows) -> Verdict {
    Match.decide(tree, rows, 0, &mut Keyed::new(0))
}

/// Runs a rule on `tree` with *every* function from prefixes to tokens as the target, and compares
/// with the function's trajectory; returns the number of runs.
///
/// A function is made lazily: its value at a prefix is a question of the walk when the prefix first
/// occurs, and stays. So a run stands for all functions that agree where the rule looked, and since the
/// weights of the runs sum to 1, all 3^40 functions are covered.
fn with_every_function(tree: &DraftTree, decide: Decide) -> usize {
    let mut covered = 0.0;
    let runs = every(
        |walk| one_function(tree, decide, walk),
        |(), weight| covered += weight,
    );
    assert!((covered - 1.0).abs() < 1e-9, "{covered} of all functions");
    runs
}

fn one_function(tree: &DraftTree, decide: Decide, walk: &mut Walk) {
    let mut function = BTreeMap::<Vec<TokenId>, TokenId>::new();
    let mut rows = Rows {
        tree,
        law: |prefix: &[TokenId]| {
            let ask = || u32::try_from(walk.pick(&[1.0; TOKENS as usize])).unwrap();
            Ok(Dist::one_hot(
                *function.entry(prefix.to_vec()).or_insert_with(ask),
            ))
        },
    };
    let Verdict { path, next } = decide(tree, &mut rows);

    let mut emitted: Vec<_> = path.iter().map(|&n| tree.token(n)).collect();
    emitted.push(next.unwrap());
    for t in 0..emitted.len() {
        // A prefix that was never asked for would be missing here.
        assert_eq!(
            function[&emitted[..t]],
            emitted[t],
            "token {t} of {emitted:?} on {tree:?}"
        );
    }
    // The path goes down one level a step, into the lowest of equal children.
    let mut at = None;
    for (&node, &token) in path.iter().zip(&emitted) {
        assert_eq!(
            first_child(tree, at, token),
            Some(node),
            "{path:?} on {tree:?}"
        );
        at = Some(node);
    }
    // It stops only where it must.
    assert_eq!(
        first_child(tree, at, emitted[path.len()]),
        None,
        "{path:?} on {tree:?}"
    );
}

fn first_child(tree: &DraftTree, of: Option<Node>, token: TokenId) -> Option<Node> {
    tree.nodes()
        .find(|&n| tree.parent(n) == of && tree.token(n) == token)
}

/// Calls `f` with every tree of exactly `left` more nodes, by every choice of parent and token.
fn grow(tree: &DraftTree, left: usize, f: &mut impl FnMut(&DraftTree)) {
    if left == 0 {
        return f(tree);
    }
    for parent in std::iter::once(None).chain(tree.nodes().map(Some)) {
        if parent.is_some_and(|p| tree.depth(p) == DEPTH) {
            continue;
        }
        for token in 0..TOKENS {
            let mut grown = tree.clone();
            grown.point(parent, token).unwrap();
            grow(&grown, left - 1, f);
        }
    }
}

/// Every tree of at most 5 nodes over 3 tokens, of depth at most 3, in every numbering and with every
/// repetition of siblings.
#[test]
fn every_small_tree_and_every_function() {
    let (mut trees, mut runs) = (0, 0);
    for nodes in 0..=5 {
        grow(&DraftTree::new(), nodes, &mut |tree| {
            trees += 1;
            runs += with_every_function(tree, real);
        });
    }
    assert_eq!((trees, runs), (27_805, 292_059));
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
                    runs += with_every_function(&tree, real);
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

/// Accepts an only child unseen.
#[test]
#[should_panic(expected = "token 0 of")]
fn a_rule_that_trusts_an_only_child_is_caught() {
    let trusting: Decide = |tree, rows| {
        walk_down(tree, rows, |children, next| match children[..] {
            [only] => Some(only),
            _ => children.into_iter().find(|&n| tree.token(n) == next),
        })
    };
    with_every_function(&DraftTree::chain(&[1]), trusting);
}

/// Right tokens, but fewer than the tree allows.
#[test]
#[should_panic(expected = "left: Some(Node(0))")]
fn a_rule_that_stops_early_is_caught() {
    with_every_function(&DraftTree::chain(&[1]), |tree, rows| {
        walk_down(tree, rows, |_, _| None)
    });
}

/// Right tokens, through the higher of two twins.
#[test]
#[should_panic(expected = "right: Some(Node(1))")]
fn a_rule_that_takes_the_higher_twin_is_caught() {
    let mut twins = DraftTree::chain(&[1]);
    twins.point(None, 1).unwrap();
    with_every_function(&twins, |tree, rows| {
        walk_down(tree, rows, |children, next| {
            children.into_iter().rev().find(|&n| tree.token(n) == next)
        })
    });
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
    let all = [prompt, output, path].concat();
    chain.law(&logits(&all), &History { counts, path }).unwrap()
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
