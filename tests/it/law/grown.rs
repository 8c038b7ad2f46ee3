//! Drawn trees as they are grown, judged by `rejection`: every branch of both, exactly.

use std::collections::BTreeMap;

use eyrie::{
    Matrix, SeqId, TokenId,
    accept::{Rejection, Rule},
    draft::{Anchor, Feed, Pick, Shape, Tip, grow},
    error::Result,
    sample::{Chain, Counts, Dist, Draws, History, Key, RawParams},
    tree::{DraftTree, Law},
};
use eyrie_verifier::every::{Walk, every};

use super::{Rows, chain};

const VOCAB: usize = 3;

/// Logits by a mix of a seed and the path.
fn logits(seed: u32, path: &[TokenId]) -> Vec<f32> {
    let mix = |h: u32, t: &TokenId| (h ^ (t + 1)).wrapping_mul(0x9E37_79B1).rotate_left(9);
    let mut state = path.iter().fold(seed.wrapping_mul(0x85EB_CA6B), mix);
    let mut logit = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap()) / 16_384.0
    };
    (0..VOCAB).map(|_| logit()).collect()
}

/// A drafter with these logits.
struct Table {
    seed: u32,
    paths: Vec<Vec<TokenId>>,
}

impl Feed for Table {
    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        let mut rows = Vec::new();
        for tip in tips {
            let path = match tip.parent {
                None => Vec::new(),
                Some(parent) => [self.paths[parent].as_slice(), &[tip.token]].concat(),
            };
            rows.extend(logits(self.seed, &path));
            self.paths.push(path);
        }
        Ok(Some(Matrix::new(VOCAB, rows)))
    }
}

/// Draws that go through every branch.
struct Branches<'a>(&'a mut Walk);

impl Draws for Branches<'_> {
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

/// A target and a drafter, by their seeds, and the sizes of a tree.
struct Setting {
    target: u32,
    drafter: u32,
    topk: usize,
    depth: usize,
    nodes: usize,
    q: Chain,
    p: Chain,
}

impl Setting {
    fn p(&self, path: &[TokenId]) -> Dist {
        let history = History {
            counts: &Counts::new(&[0]),
            tokens: &[0],
            path,
        };
        self.p.law(&logits(self.target, path), &history).unwrap()
    }

    fn q(&self, path: &[TokenId]) -> Dist {
        let history = History {
            counts: &Counts::new(&[0]),
            tokens: &[0],
            path,
        };
        self.q.law(&logits(self.drafter, path), &history).unwrap()
    }

    fn tree(&self, draws: &mut dyn Draws) -> DraftTree {
        let counts = Counts::new(&[0]);
        let mut anchor = Anchor {
            seq: SeqId(0),
            tokens: &[0],
            round: 0,
            depth: self.depth,
            nodes: self.nodes,
            chain: &self.q,
            counts: &counts,
            draws,
        };
        let shape = Shape {
            pick: Pick::Drawn,
            topk: self.topk,
        };
        let mut feed = Table {
            seed: self.drafter,
            paths: Vec::new(),
        };
        let mut tree = DraftTree::new();
        let chains = [self.q.clone()];
        grow(
            &mut [&mut anchor],
            &mut [&mut tree],
            &chains,
            shape,
            &mut feed,
        )
        .unwrap();
        tree
    }

    /// The largest difference between the law of `depth + 1` tokens and the target's, where the
    /// target continues what a round emits. Trees go through `change` before they are judged.
    fn error(&self, change: fn(DraftTree) -> DraftTree) -> f64 {
        let mut law = BTreeMap::new();
        let round = |walk: &mut Walk| {
            let mut draws = Branches(walk);
            let tree = change(self.tree(&mut draws));
            let mut rows = Rows {
                tree: &tree,
                law: |path: &[TokenId]| Ok(self.p(path)),
            };
            let verdict = Rejection.decide(&tree, &mut rows, 0, &mut draws);
            let path = verdict.path.iter().map(|node| tree.token(*node));
            path.chain([verdict.next.unwrap()]).collect::<Vec<_>>()
        };
        every(round, |tokens, weight| {
            self.extend(tokens, weight, 1.0, &mut law)
        });
        self.extend(Vec::new(), 1.0, -1.0, &mut law);
        law.values()
            .fold(0.0, |most, error: &f64| most.max(error.abs()))
    }

    /// Lets the target continue `tokens`, and adds the cells times `sign`.
    fn extend(
        &self,
        tokens: Vec<TokenId>,
        weight: f64,
        sign: f64,
        law: &mut BTreeMap<Vec<TokenId>, f64>,
    ) {
        if tokens.len() == self.depth + 1 {
            *law.entry(tokens).or_insert(0.0) += sign * weight;
            return;
        }
        for (id, ln_p) in self.p(&tokens).iter() {
            let more = [tokens.as_slice(), &[id]].concat();
            self.extend(more, weight * ln_p.exp(), sign, law);
        }
    }
}

fn settings() -> Vec<Setting> {
    let warm = |top_k| RawParams {
        temperature: 1.0,
        top_k,
        ..RawParams::default()
    };
    let sizes = [
        (2, 1, 2),
        (3, 1, 3),
        (2, 2, 4),
        (2, 2, 3),
        (3, 2, 5),
        (1, 3, 3),
        (2, 3, 5),
    ];
    let mut all = Vec::new();
    for (seed, (topk, depth, nodes)) in (0..).zip(sizes) {
        for (p, q) in [(0, 0), (2, 0), (0, 2)] {
            all.push(Setting {
                target: seed,
                drafter: seed + 100,
                topk,
                depth,
                nodes,
                q: chain(warm(q), VOCAB),
                p: chain(warm(p), VOCAB),
            });
        }
    }
    all
}

#[test]
fn grown_trees_of_drawn_nodes_keep_the_law() {
    for setting in settings() {
        let error = setting.error(|tree| tree);
        let Setting {
            topk, depth, nodes, ..
        } = setting;
        assert!(error < 1e-12, "{topk}x{depth}x{nodes}: {error}");
    }
}

/// Siblings that are equal must both stay: without the second, what is left after the first is
/// another law, unless it is a single token.
#[test]
fn siblings_that_are_merged_are_caught() {
    let merge = |tree: DraftTree| {
        let mut merged = DraftTree::new();
        let twin = |node| {
            let mut before = tree.children(tree.parent(node)).take_while(|n| *n < node);
            before.any(|n| tree.token(n) == tree.token(node))
        };
        // Depth 1, so that a node's parent is the anchor.
        for node in tree.nodes().filter(|node| !twin(*node)) {
            let Law::Drawn(q) = tree.law(node).clone() else {
                panic!("a drawn node");
            };
            let at = Key::node(0, node.0, eyrie::sample::Purpose::Draft);
            let place = q.ids().iter().position(|id| *id == tree.token(node));
            let mut draws = Forced(place.unwrap());
            merged.drawn(None, q, at, &mut draws).unwrap();
        }
        merged
    };
    let above = |setting: &Setting| {
        let (p, q) = (setting.p(&[]), setting.q(&[]));
        p.iter().filter(|(id, ln_p)| *ln_p > q.ln_p(*id)).count()
    };
    let seen = |setting: &Setting| setting.depth == 1 && above(setting) > 1;
    let errors: Vec<f64> = settings()
        .iter()
        .filter(|s| seen(s))
        .map(|s| s.error(merge))
        .collect();
    assert!(
        errors.len() > 2 && errors.iter().all(|error| *error > 1e-3),
        "{errors:?}"
    );
}

/// Draws the token at one place of a law.
struct Forced(usize);

impl Draws for Forced {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        panic!("noise asked for at {at:?}")
    }
    fn pick(&mut self, _: Key, _: &[f64]) -> usize {
        self.0
    }
    fn accept(&mut self, _: Key, _: f64) -> bool {
        false
    }
}
