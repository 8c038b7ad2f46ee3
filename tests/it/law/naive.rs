//! The rules `rejection` and `block` by the letter of the papers, on dense tables, and with faults
//! that no seam of the production code can have.

use eyrie::{
    Node,
    accept::{TargetRows, Verdict},
    sample::{Dist, Draws, Key, Purpose},
    tree::{DraftTree, Law},
};

use super::table;

/// What is wrong with a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing: the twin.
    None,
    /// The second sibling is judged by the target's law instead of what the first left.
    FirstLaw,
    /// Block: the weight of a prefix is not cut at 1.
    Uncut,
    /// Block: the residual forgets the weight of the prefix.
    Unweighted,
    /// Block: prefixes of the middle are judged by their weight, as the last one is.
    Flat,
}

fn q_of(tree: &DraftTree, node: Node, vocab: u32) -> Vec<f64> {
    match tree.law(node) {
        Law::Drawn(q) => table(q, vocab),
        Law::Point => table(&Dist::one_hot(tree.token(node)), vocab),
    }
}

fn normalised(w: &[f64]) -> Option<Vec<f64>> {
    let sum: f64 = w.iter().sum();
    (sum > 0.0).then(|| w.iter().map(|x| x / sum).collect())
}

fn above(p: &[f64], scale: f64, q: &[f64]) -> Vec<f64> {
    let excess = |(p, q): (&f64, &f64)| (scale * p - q).max(0.0);
    p.iter().zip(q).map(excess).collect()
}

/// Other keys than production's; they have to be unique, that is all.
fn key(node: usize, purpose: Purpose) -> Key {
    Key::node(0, u32::try_from(node).unwrap(), purpose)
}

fn pick(w: &[f64], node: usize, draws: &mut dyn Draws) -> u32 {
    u32::try_from(draws.pick(key(1000 + node, Purpose::Residual), w)).unwrap()
}

/// Recursive rejection.
pub(super) fn rejection(
    fault: Fault,
    vocab: u32,
) -> impl Fn(&DraftTree, &mut dyn TargetRows, &mut dyn Draws) -> Verdict {
    move |tree, rows, draws| {
        let mut path = Vec::<Node>::new();
        'down: loop {
            let at = path.last().copied();
            let p = table(&rows.law(at).unwrap(), vocab);
            let mut left = p.clone();
            for child in tree.nodes().filter(|&node| tree.parent(node) == at) {
                let (x, q) = (tree.token(child) as usize, q_of(tree, child, vocab));
                let judge = if fault == Fault::FirstLaw { &p } else { &left };
                if draws.accept(key(child.index(), Purpose::Accept), judge[x] / q[x]) {
                    path.push(child);
                    continue 'down;
                }
                if let Some(rest) = normalised(&above(&left, 1.0, &q)) {
                    left = rest;
                }
            }
            let next = Ok(pick(&left, path.len(), draws));
            return Verdict { path, next };
        }
    }
}

/// Block verification; tests every prefix with its coin, then takes the longest that passed.
pub(super) fn block(
    fault: Fault,
    vocab: u32,
) -> impl Fn(&DraftTree, &mut dyn TargetRows, &mut dyn Draws) -> Verdict {
    move |tree, rows, draws| {
        let n = tree.len();
        let mut weights = vec![1.0];
        let mut p = vec![table(&rows.law(None).unwrap(), vocab)];
        let q: Vec<_> = tree.nodes().map(|node| q_of(tree, node, vocab)).collect();
        for (i, node) in tree.nodes().enumerate() {
            let x = tree.token(node) as usize;
            let weight = weights[i] * p[i][x] / q[i][x];
            weights.push(if fault == Fault::Uncut {
                weight
            } else {
                f64::min(weight, 1.0)
            });
            p.push(table(&rows.law(Some(node)).unwrap(), vocab));
        }
        let mut best = 0;
        for i in 1..=n {
            let chance = if i == n || fault == Fault::Flat {
                weights[i]
            } else {
                let s: f64 = above(&p[i], weights[i], &q[i]).iter().sum();
                let chance = s / (s + 1.0 - weights[i]);
                if chance.is_nan() { 0.0 } else { chance }
            };
            if draws.accept(key(i, Purpose::Accept), chance) {
                best = i;
            }
        }
        let law = if best == n {
            p[n].clone()
        } else {
            let scale = match fault {
                Fault::Unweighted => 1.0,
                _ => weights[best],
            };
            normalised(&above(&p[best], scale, &q[best])).unwrap_or_else(|| p[best].clone())
        };
        Verdict {
            path: tree.nodes().take(best).collect(),
            next: Ok(pick(&law, 0, draws)),
        }
    }
}
