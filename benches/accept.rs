//! The rule `match` over ready laws: the walk itself, by size of the tree.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use eyrie::{
    Node, TokenId,
    accept::{Match, Rule, TargetRows, Verdict},
    sample::{Dist, Fault, Keyed, choose},
    tree::DraftTree,
};

/// A target that always says 0, so that the walk goes as deep as the tree does.
struct Zero;

impl TargetRows for Zero {
    fn law(&mut self, _: Option<Node>) -> Result<Dist, Fault> {
        Ok(Dist::one_hot(0))
    }
}

/// `width` children a level under the last of the level above; only the last child carries 0.
fn comb(width: TokenId, depth: usize) -> DraftTree {
    let mut tree = DraftTree::new();
    let mut parent = None;
    for _ in 0..depth {
        let level: Vec<_> = (0..width)
            .map(|i| {
                tree.point(parent, width - 1 - i)
                    .expect("the parent is there")
            })
            .collect();
        parent = level.last().copied();
    }
    tree
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/match");
    for (width, depth) in [(1, 4), (1, 16), (1, 64), (4, 5), (10, 8), (16, 64)] {
        let tree = comb(width, depth);
        let shape = if width == 1 { "chain" } else { "tree" };
        group.throughput(Throughput::Elements(tree.len() as u64));
        group.bench_function(format!("{shape}/{}", tree.len()), |b| {
            b.iter(|| Match.decide(black_box(&tree), &mut Zero, 0, &mut Keyed::new(0)));
        });
        group.bench_function(format!("{shape}-naive/{}", tree.len()), |b| {
            b.iter(|| naive(black_box(&tree), &mut Zero, &mut Keyed::new(0)));
        });
    }
    group.finish();
}

/// Looks at every node of the tree at every level.
fn naive(tree: &DraftTree, rows: &mut dyn TargetRows, draws: &mut Keyed) -> Verdict {
    let mut path: Vec<Node> = Vec::new();
    loop {
        let at = path.last().copied();
        let next = match rows.law(at) {
            Ok(law) => choose(&law, path.len() as u64, draws),
            Err(fault) => {
                return Verdict {
                    path,
                    next: Err(fault),
                };
            }
        };
        let fits = |n: &Node| tree.parent(*n) == at && tree.token(*n) == next;
        match tree.nodes().find(fits) {
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

criterion_group!(benches, decide);
