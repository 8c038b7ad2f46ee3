//! The rules over ready laws: the walk of `match` alone, by size of the tree, and every rule with
//! laws over a whole vocabulary.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use eyrie::{
    Node, TokenId,
    accept::{Block, Match, Rejection, Rule, TargetRows, Verdict},
    sample::{
        Chain, Counts, Dist, Fault, History, Key, Keyed, Purpose, RawParams, SamplingParams, choose,
    },
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

fn walk(c: &mut Criterion) {
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

/// The index of the token that the anchor's row chooses.
const FIRST: u64 = 1;
/// Different drafts of a shape, taken in turn.
const TREES: u64 = 4;
/// Of the largest shape.
const MOST_NODES: u64 = 20;

/// A shape: children a node, levels.
type Shape = (&'static str, usize, usize);

/// The law of logits with the spread of a language model's. A drafter at 0 and a target at `apart` 3
/// overlap by about two thirds.
fn law(vocab: usize, row: u64, apart: f32) -> Dist {
    let uniform = |seed: u64| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(u16::try_from(x >> 48).unwrap_or(0)) / 65_536.0
        }
    };
    let (mut shared, mut own) = (uniform(row), uniform(row + 1_000));
    let logits: Vec<f32> = (0..vocab)
        .map(|_| (0..6).map(|_| shared()).sum::<f32>() * 4.0 - 12.0 + apart * own())
        .collect();
    let raw = RawParams {
        temperature: 1.0,
        ..RawParams::default()
    };
    let params = SamplingParams::new(raw).expect("in range");
    let chain = Chain::new(params, vocab, vocab, vec![]).expect("no bias");
    let history = History {
        counts: &Counts::new(&[]),
        tokens: &[],
        path: &[],
    };
    chain.law(&logits, &history).expect("finite logits")
}

/// The target's law at every row, the anchor's first; each can be asked for once.
#[derive(Clone)]
struct Laws(Vec<Option<Dist>>);

impl TargetRows for Laws {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        let law = self.0[at.map_or(0, |node| node.index() + 1)].take();
        Ok(law.expect("asked once"))
    }
}

/// Drafts for `rule`: for `match` points, coupled or the siblings of most mass; else drawn nodes.
fn drafts(rule: &dyn Rule, (_, width, depth): Shape, qs: &[Dist], seed: u64) -> DraftTree {
    let (mut tree, mut level) = (DraftTree::new(), vec![None]);
    let mut draws = Keyed::new(seed);
    for t in FIRST..FIRST + depth as u64 {
        let mut below = Vec::new();
        for parent in level {
            let q = &qs[parent.map_or(0, |node: Node| node.index() + 1)];
            for i in 0..width {
                let at = Key::in_round(FIRST, Node::at(tree.len()), Purpose::Draft);
                let node = match (rule.name(), width) {
                    ("match", 1) => tree.point(parent, choose(q, t, &draws)),
                    ("match", _) => tree.point(parent, q.top(width)[i].0),
                    _ => tree.drawn(parent, q.clone(), at, &mut draws),
                };
                below.push(Some(node.expect("the parent is there")));
            }
        }
        level = below;
    }
    tree
}

/// A decision over laws that were made before it.
fn decide(c: &mut Criterion) {
    let shapes: [Shape; 3] = [("chain-4", 1, 4), ("chain-8", 1, 8), ("tree-4x2", 4, 2)];
    for rule in [&Match as &dyn Rule, &Rejection, &Block] {
        let mut group = c.benchmark_group(format!("cpu/accept-{}", rule.name()));
        for shape in shapes {
            if shape.1 > 1 && rule.name() == "block" {
                continue; // it is for chains
            }
            for vocab in [64, 32_000, 128_000] {
                let laws = |apart| -> Vec<Dist> {
                    (0..=MOST_NODES).map(|row| law(vocab, row, apart)).collect()
                };
                let (qs, ps) = (laws(0.0), laws(3.0));
                let trees: Vec<_> = (0..TREES)
                    .map(|seed| (seed, drafts(rule, shape, &qs, seed)))
                    .collect();
                let rows = trees[0].1.len() + 1;
                let laws = Laws(ps.into_iter().take(rows).map(Some).collect());
                let mut turns = trees.iter().cycle();
                group.throughput(Throughput::Elements(trees[0].1.len() as u64));
                group.bench_function(format!("{}/{vocab}", shape.0), |b| {
                    b.iter_batched(
                        || (turns.next().expect("a cycle"), laws.clone()),
                        |((seed, tree), mut laws)| {
                            let mut draws = Keyed::new(*seed);
                            let verdict = rule.decide(tree, &mut laws, FIRST, &mut draws);
                            (verdict, laws)
                        },
                        BatchSize::PerIteration,
                    );
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, walk, decide);
