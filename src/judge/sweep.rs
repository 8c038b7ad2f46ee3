//! The section exact: one rule over all settings.

use rayon::prelude::*;

use super::{
    conclude::{Evidence, Section},
    exact::{Setting, by},
    settings::{chains, settings, trees},
    subject::{Kind, Subject},
    trajectory::{small_trees, with_every_function},
};
use crate::{accept::Rule, sample::Keyed, tree::DraftTree};

/// Above this a difference is none of rounding.
pub(super) const ROUNDING: f64 = 1e-12;

/// Nodes of the largest tree for the rule `match`.
const NODES: usize = 4;

/// Enumerates what `kind` does, on chains and then on trees.
pub(super) fn sweep(subject: &dyn Subject, kind: Kind, take: &mut dyn FnMut(Evidence)) {
    let rule = subject.rule(kind.rule());
    if kind == Kind::Match {
        let is_chain = |tree: &DraftTree| {
            let mut nodes = tree.nodes();
            nodes.all(|node| {
                tree.parent(node).map_or(0, |parent| parent.index() + 1) == node.index()
            })
        };
        let (chains, trees): (Vec<_>, Vec<_>) = small_trees(NODES).into_iter().partition(is_chain);
        take(trajectories(rule.as_ref(), "chains", &chains));
        take(trajectories(rule.as_ref(), "trees", &trees));
        return;
    }
    take(laws(rule.as_ref(), kind, "chains", &settings(4, &chains())));
    if kind.shapes() > 1 {
        take(laws(rule.as_ref(), kind, "trees", &settings(3, &trees())));
    }
}

fn laws(rule: &dyn Rule, kind: Kind, shape: &str, settings: &[Setting]) -> Evidence {
    let found: Vec<_> = settings.par_iter().map(|s| s.exact(&by(rule))).collect();
    let error = found.iter().map(|exact| exact.error).fold(0.0, f64::max);
    let branches: usize = found.iter().map(|exact| exact.branches).sum();
    let name = format!("{}, {shape}", kind.name());
    let evidence = Evidence::fact(Section::Exact, name, settings.len(), error < ROUNDING);
    let evidence = evidence.statistic(error);
    match found.into_iter().find_map(|exact| exact.problem) {
        Some(problem) => evidence.failed(problem),
        None => evidence.note(format!("largest error over {branches} branches")),
    }
}

fn trajectories(rule: &dyn Rule, shape: &str, trees: &[DraftTree]) -> Evidence {
    let one = |tree: &DraftTree| {
        with_every_function(tree, &|tree, rows| {
            rule.decide(tree, rows, 0, &mut Keyed::new(0))
        })
    };
    let runs: Result<Vec<usize>, String> = trees.par_iter().map(one).collect();
    let name = format!("match, {shape}");
    let evidence = Evidence::fact(Section::Exact, name, trees.len(), runs.is_ok());
    match runs {
        Ok(runs) => evidence.note(format!(
            "follows every function of prefixes: {} runs",
            runs.iter().sum::<usize>()
        )),
        Err(what) => evidence.failed(what),
    }
}
