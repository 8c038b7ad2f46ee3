//! Every branch of a whole round: the drafts drawn, judged, and the exact law of what comes out.

use std::collections::{BTreeMap, BTreeSet};

use eyrie::{
    Node, TokenId,
    accept::{Rule, TargetRows, Verdict},
    sample::{Counts, Dist, Draws, History, Key, Purpose, RawParams},
    tree::DraftTree,
};
use eyrie_verifier::every::{Walk, every};

use super::{Rows, chain};

/// The index of the token that the anchor's row chooses, in every test here.
const FIRST: u64 = 1;

/// A rule, or something that is not one.
pub(super) type Decide<'a> = &'a dyn Fn(&DraftTree, &mut dyn TargetRows, &mut dyn Draws) -> Verdict;

/// Decides as a rule of the crate.
pub(super) fn rule(
    rule: &dyn Rule,
) -> impl Fn(&DraftTree, &mut dyn TargetRows, &mut dyn Draws) -> Verdict {
    move |tree, rows, draws| rule.decide(tree, rows, FIRST, draws)
}

/// Draws that go through every branch, and refuse a key that was asked for before.
pub(super) struct Branches<'a> {
    walk: &'a mut Walk,
    asked: BTreeSet<Key>,
}

impl Branches<'_> {
    fn ask(&mut self, at: Key) {
        assert!(!at.is_token(), "{at:?} is for noise");
        assert!(self.asked.insert(at), "{at:?} asked twice");
    }
}

impl Draws for Branches<'_> {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        panic!("noise asked for at {at:?}")
    }
    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        self.ask(at);
        self.walk.pick(w)
    }
    fn accept(&mut self, at: Key, p: f64) -> bool {
        self.ask(at);
        self.walk.accept(p)
    }
}

/// One node of a plan: its parent, and whether it is drawn.
pub(super) type Planned = (Option<u32>, bool);

/// A target and a drafter, each a function of the tokens after the anchor, and the drafter's tree.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) vocab: u32,
    pub(super) target: Model,
    pub(super) drafter: Model,
    pub(super) nodes: Vec<Planned>,
}

/// Logits by a mix of a seed and the prefix, through a chain with these parameters.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) seed: u32,
    pub(super) spread: f32,
    pub(super) raw: RawParams,
}

impl Model {
    fn law(&self, vocab: u32, path: &[TokenId]) -> Dist {
        let mix = |h: u32, &t: &TokenId| (h ^ (t + 1)).wrapping_mul(0x9E37_79B1).rotate_left(9);
        let mut state = path.iter().fold(self.seed.wrapping_mul(0x85EB_CA6B), mix);
        let mut logit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(u16::try_from(state >> 16).unwrap()) / 65_536.0 * self.spread
        };
        let logits: Vec<f32> = (0..vocab).map(|_| logit()).collect();
        let history = History {
            counts: &Counts::new(&[0]),
            path,
        };
        let chain = chain(self.raw.clone(), vocab as usize);
        chain.law(&logits, &history).unwrap()
    }
}

impl Setting {
    pub(super) fn p(&self, path: &[TokenId]) -> Dist {
        self.target.law(self.vocab, path)
    }

    pub(super) fn q(&self, path: &[TokenId]) -> Dist {
        self.drafter.law(self.vocab, path)
    }

    /// The drafter's tree: a drawn node from its law at the parent, a point at its argmax there
    /// (the `i`-th child that is a point at the `i`-th best token).
    pub(super) fn draft(&self, draws: &mut dyn Draws) -> DraftTree {
        let mut tree = DraftTree::new();
        for &(parent, drawn) in &self.nodes {
            let parent = parent.map(Node);
            let path = parent.map_or_else(Vec::new, |node| tree.path(node));
            let path: Vec<_> = path.into_iter().map(|node| tree.token(node)).collect();
            let q = self.q(&path);
            if drawn {
                let at = Key::in_round(FIRST, Node::at(tree.len()), Purpose::Draft);
                tree.drawn(parent, q, at, draws).unwrap();
            } else {
                let rank = tree.children(parent).count() % q.len();
                tree.point(parent, q.top(rank + 1)[rank].0).unwrap();
            }
        }
        tree
    }

    /// Runs every branch of drafting and deciding; what each verdict means is up to `outcome`.
    pub(super) fn branches<T>(
        &self,
        decide: Decide<'_>,
        mut run: impl FnMut(&DraftTree, &Verdict) -> T,
        outcome: impl FnMut(T, f64),
    ) -> usize {
        let round = |walk: &mut Walk| {
            let mut draws = Branches {
                walk,
                asked: BTreeSet::new(),
            };
            let tree = self.draft(&mut draws);
            let mut asked = BTreeSet::new();
            let mut rows = Rows {
                tree: &tree,
                law: |path: &[TokenId]| {
                    assert!(asked.insert(path.to_vec()), "row {path:?} asked for twice");
                    Ok(self.p(path))
                },
            };
            let verdict = decide(&tree, &mut rows, &mut draws);
            run(&tree, &verdict)
        };
        every(round, outcome)
    }

    /// The largest difference between the law of the first tokens of a round, continued by the
    /// target to one token more than the tree is deep, and the target's own; over all cells.
    pub(super) fn error(&self, decide: Decide<'_>) -> f64 {
        let length = levels(&self.draft(&mut First)) + 1;
        let mut law = BTreeMap::<Vec<TokenId>, f64>::new();
        let mut total = 0.0;
        self.branches(decide, emitted, |tokens, weight| {
            assert!(tokens.len() <= length, "{tokens:?}");
            total += weight;
            *law.entry(tokens).or_insert(0.0) += weight;
        });
        assert!((total - 1.0).abs() < 1e-9, "{total} of all branches");
        let (mut full, mut want) = (BTreeMap::new(), BTreeMap::new());
        for (tokens, weight) in law {
            self.extend(tokens, weight, length, &mut full);
        }
        self.extend(Vec::new(), 1.0, length, &mut want);
        let cells: BTreeSet<_> = full.keys().chain(want.keys()).collect();
        let at = |law: &BTreeMap<Vec<TokenId>, f64>, cell| law.get(cell).copied().unwrap_or(0.0);
        let errors = cells
            .into_iter()
            .map(|cell| (at(&full, cell) - at(&want, cell)).abs());
        errors.fold(0.0, f64::max)
    }

    /// Lets the target continue `tokens` to `length`.
    fn extend(
        &self,
        tokens: Vec<TokenId>,
        weight: f64,
        length: usize,
        law: &mut BTreeMap<Vec<TokenId>, f64>,
    ) {
        if tokens.len() == length {
            *law.entry(tokens).or_insert(0.0) += weight;
            return;
        }
        for (id, ln_p) in self.p(&tokens).iter() {
            let more = [tokens.as_slice(), &[id]].concat();
            self.extend(more, weight * ln_p.exp(), length, law);
        }
    }
}

/// What a verdict emits.
pub(super) fn emitted(tree: &DraftTree, verdict: &Verdict) -> Vec<TokenId> {
    let path = verdict.path.iter().map(|&node| tree.token(node));
    path.chain([verdict.next.unwrap()]).collect()
}

/// The first possible answer to everything.
struct First;

impl Draws for First {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        panic!("noise asked for at {at:?}")
    }
    fn pick(&mut self, _: Key, w: &[f64]) -> usize {
        w.iter().position(|w| *w > 0.0).unwrap()
    }
    fn accept(&mut self, _: Key, p: f64) -> bool {
        p >= 1.0
    }
}

fn levels(tree: &DraftTree) -> usize {
    tree.nodes().map(|node| tree.depth(node)).max().unwrap_or(0)
}

/// Parameters at temperature 1 with one change.
pub(super) fn warm(change: impl FnOnce(&mut RawParams)) -> RawParams {
    let mut raw = RawParams {
        temperature: 1.0,
        ..RawParams::default()
    };
    change(&mut raw);
    raw
}

/// What may be done to the laws of target and drafter.
pub(super) fn processings() -> Vec<RawParams> {
    vec![
        warm(|_| {}),
        warm(|raw| raw.temperature = 0.6),
        warm(|raw| raw.top_k = 2),
        warm(|raw| raw.top_p = 0.7),
        warm(|raw| raw.min_p = 0.4),
        warm(|raw| {
            raw.repetition_penalty = 1.4;
            raw.presence_penalty = 0.5;
            raw.frequency_penalty = 0.7;
        }),
        warm(|raw| raw.logit_bias = [(1, f64::NEG_INFINITY), (0, 1.5)].into()),
        warm(|raw| raw.temperature = 0.0),
    ]
}

/// A chain of so many nodes.
pub(super) fn chain_of(nodes: u32, drawn: impl Fn(u32) -> bool) -> Vec<Planned> {
    (0..nodes).map(|i| (i.checked_sub(1), drawn(i))).collect()
}

/// Settings over all pairs of processings of `p` and `q`, for these trees.
pub(super) fn settings(vocab: u32, trees: &[Vec<Planned>]) -> Vec<Setting> {
    let mut all = Vec::new();
    for (i, p) in processings().into_iter().enumerate() {
        for (j, q) in processings().into_iter().enumerate() {
            for nodes in trees {
                let seed = u32::try_from(all.len()).unwrap();
                let model = |seed, spread, raw: &RawParams| Model {
                    seed,
                    spread,
                    raw: raw.clone(),
                };
                // The same law on both sides now and then: everything is accepted then.
                let own = if i == j && seed % 2 == 0 { 0 } else { 1000 };
                all.push(Setting {
                    vocab,
                    target: model(seed, 4.0, &p),
                    drafter: model(seed + own, 4.0, &q),
                    nodes: nodes.clone(),
                });
            }
        }
    }
    all
}

/// A target and a drafter of one law each, whatever the prefix: for broken variants.
pub(super) fn hard(nodes: Vec<Planned>) -> Setting {
    let model = |seed| Model {
        seed,
        spread: 3.0,
        raw: warm(|_| {}),
    };
    Setting {
        vocab: 4,
        target: model(11),
        drafter: model(29),
        nodes,
    }
}

#[test]
fn settings_differ_between_target_and_drafter() {
    let setting = hard(chain_of(1, |_| true));
    let (p, q) = (setting.p(&[]), setting.q(&[]));
    let shared: f64 = (0..4).map(|id| p.p(id).min(q.p(id))).sum();
    assert!(shared < 0.8, "{shared} accepted");
    assert_ne!(setting.p(&[0]), setting.p(&[1]));
}
