//! The rule `match`, exhaustively: on every small tree, with *every* function from prefixes to tokens
//! as the target, what is emitted is a prefix of that function's trajectory.
//!
//! That is the whole of the rule's correctness: given the noise, the token that plain decoding takes at
//! a row is a function of the prefix, so a rule that follows every function follows every target,
//! at every temperature. What remains is the law of the function's values, which is a matter of [`choose`](crate::sample::choose)
//! alone.

use std::collections::BTreeMap;

use eyrie_verifier::every::{Walk, every};

use super::rows::Rows;
use crate::{
    Node, TokenId,
    accept::{TargetRows, Verdict},
    sample::Dist,
    tree::DraftTree,
};

/// Size of the vocabulary.
pub const TOKENS: u32 = 3;

/// Most levels of a tree.
pub const DEPTH: usize = 3;

/// The decision on a tree of the real rule, or of a broken one.
pub type Decide<'a> = &'a (dyn Fn(&DraftTree, &mut dyn TargetRows) -> Verdict + Sync);

/// Runs a rule on `tree` with every function from prefixes to tokens as the target, and compares with
/// the function's trajectory; the number of runs.
///
/// A function is made lazily: its value at a prefix is a question of the walk when the prefix first
/// occurs, and stays. So a run stands for all functions that agree where the rule looked, and since the
/// weights of the runs sum to 1, all 3^40 functions are covered.
///
/// # Errors
/// What differed first, in words.
pub fn with_every_function(tree: &DraftTree, decide: Decide<'_>) -> Result<usize, String> {
    let (mut covered, mut first) = (0.0f64, Ok(()));
    let runs = every(
        |walk| one_function(tree, decide, walk),
        |outcome, weight| {
            covered += weight;
            if first.is_ok() {
                first = outcome;
            }
        },
    );
    first?;
    if (covered - 1.0).abs() > 1e-9 {
        return Err(format!("{covered} of all functions were covered"));
    }
    Ok(runs)
}

fn one_function(tree: &DraftTree, decide: Decide<'_>, walk: &mut Walk) -> Result<(), String> {
    let mut function = BTreeMap::<Vec<TokenId>, TokenId>::new();
    let mut rows = Rows {
        tree,
        law: |prefix: &[TokenId]| {
            let mut ask = || (0..TOKENS).nth(walk.pick(&[1.0; TOKENS as usize]));
            let token = match function.get(prefix) {
                Some(token) => *token,
                None => ask().unwrap_or_default(),
            };
            function.insert(prefix.to_vec(), token);
            Ok(Dist::one_hot(token))
        },
    };
    let Verdict { path, next } = decide(tree, &mut rows);

    let mut emitted: Vec<_> = path.iter().map(|&n| tree.token(n)).collect();
    emitted.push(next.map_err(|fault| fault.to_string())?);
    for t in 0..emitted.len() {
        // A prefix that was never asked for is missing here.
        if function.get(&emitted[..t]) != Some(&emitted[t]) {
            return Err(format!("token {t} of {emitted:?} on {tree:?}"));
        }
    }
    // The path goes down one level a step, into the lowest of equal children.
    let mut at = None;
    for (&node, &token) in path.iter().zip(&emitted) {
        let lowest = first_child(tree, at, token);
        if lowest != Some(node) {
            return Err(format!(
                "{lowest:?} is the child, not {node:?} of {path:?} on {tree:?}"
            ));
        }
        at = Some(node);
    }
    // It stops only where it must.
    match first_child(tree, at, emitted[path.len()]) {
        None => Ok(()),
        Some(node) => Err(format!("{path:?} stops before {node:?} on {tree:?}")),
    }
}

fn first_child(tree: &DraftTree, of: Option<Node>, token: TokenId) -> Option<Node> {
    tree.nodes()
        .find(|&n| tree.parent(n) == of && tree.token(n) == token)
}

/// Every tree of at most `nodes` nodes over [`TOKENS`] tokens and of at most [`DEPTH`] levels, in every
/// numbering and with every repetition of siblings.
#[must_use]
pub fn small_trees(nodes: usize) -> Vec<DraftTree> {
    let mut all = vec![DraftTree::new()];
    let mut last = all.clone();
    for _ in 0..nodes {
        last = last.iter().flat_map(grown).collect();
        all.extend_from_slice(&last);
    }
    all
}

/// The tree with one more node, by every choice of parent and token.
fn grown(tree: &DraftTree) -> Vec<DraftTree> {
    let parents = std::iter::once(None).chain(tree.nodes().map(Some));
    let open = parents.filter(|parent| parent.is_none_or(|p| tree.depth(p) < DEPTH));
    let with = |(parent, token)| {
        let mut grown = tree.clone();
        grown.point(parent, token).ok().map(|_| grown)
    };
    open.flat_map(|parent| (0..TOKENS).map(move |token| (parent, token)))
        .filter_map(with)
        .collect()
}
