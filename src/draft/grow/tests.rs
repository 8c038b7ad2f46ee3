//! Growth against an obvious twin, and what it asks of a feed.

use proptest::prelude::*;

use super::*;
use crate::{
    Node, SeqId,
    draft::Anchor,
    error::ErrorKind,
    sample::{Counts, Draws, History, Key, Keyed, Purpose, RawParams, SamplingParams, choose},
    tree::Law,
};

const VOCAB: usize = 7;

/// A drafter whose logits are a mix of a seed and the path, and what was fed to it.
#[derive(Debug, Default)]
struct Mixed {
    seed: u32,
    /// Logits are multiples of 1/8 of this size: small ones have ties.
    spread: u8,
    /// Rows after this token are no numbers.
    poison: Option<TokenId>,
    /// Tokens from here on cannot be fed.
    limit: Option<TokenId>,
    /// The call with this number has no room, or fails.
    stop: Option<(usize, bool)>,
    /// Paths by anchor and slot.
    paths: Vec<Vec<Vec<TokenId>>>,
    /// Rows of each call.
    calls: Vec<usize>,
}

impl Mixed {
    fn row(&self, path: &[TokenId]) -> Vec<f32> {
        let mix = |h: u32, t: &TokenId| (h ^ (t + 1)).wrapping_mul(0x9E37_79B1).rotate_left(9);
        let mut state = path.iter().fold(self.seed.wrapping_mul(0x85EB_CA6B), mix);
        let mut logit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from((state >> 24) as u8 % self.spread.max(1)) / 8.0
        };
        let mut row: Vec<f32> = (0..VOCAB).map(|_| logit()).collect();
        if path.last().is_some_and(|token| Some(*token) == self.poison) {
            row[3] = f32::NAN;
        }
        row
    }
}

impl Feed for Mixed {
    fn can_feed(&self, tip: &Tip) -> bool {
        tip.depth == 0 || self.limit.is_none_or(|limit| tip.token < limit)
    }

    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        match self.stop {
            Some((call, true)) if call == self.calls.len() => {
                return Err(ErrorKind::Draft("broken".to_owned()).into());
            }
            Some((call, false)) if call == self.calls.len() => return Ok(None),
            _ => self.calls.push(tips.len()),
        }
        let mut data = Vec::new();
        for tip in tips {
            if self.paths.len() <= tip.anchor {
                self.paths.resize(tip.anchor + 1, Vec::new());
            }
            let paths = &mut self.paths[tip.anchor];
            assert_eq!(tip.slot, paths.len(), "slots count up");
            let path = match tip.parent {
                None => Vec::new(),
                Some(parent) => [paths[parent].as_slice(), &[tip.token]].concat(),
            };
            assert_eq!(path.len(), tip.depth, "a row follows its parent");
            paths.push(path.clone());
            data.extend(self.row(&path));
        }
        Ok(Some(Matrix::new(VOCAB, data)))
    }
}

/// What an anchor is made of.
#[derive(Clone, Debug)]
struct Setting {
    shape: Shape,
    depth: usize,
    nodes: usize,
    temperature: f64,
    top_k: usize,
    penalty: f64,
    seed: u64,
}

impl Setting {
    fn chain(&self) -> Chain {
        let raw = RawParams {
            temperature: self.temperature,
            top_k: self.top_k,
            presence_penalty: self.penalty,
            ..RawParams::default()
        };
        let params = SamplingParams::new(raw).expect("in range");
        Chain::new(params, VOCAB, VOCAB, Vec::new()).expect("no bias")
    }

    fn cold(&self) -> bool {
        self.temperature == 0.0
    }
}

/// Before every anchor here: a prompt of two, and three tokens of output.
const TOKENS: [TokenId; 5] = [1, 2, 4, 4, 0];

fn counts() -> Counts {
    let mut counts = Counts::new(&TOKENS[..2]);
    TOKENS[2..].iter().for_each(|token| counts.push(*token));
    counts
}

/// Grows one tree for each setting, together.
fn grown(settings: &[Setting], feed: &mut Mixed) -> (Vec<DraftTree>, Result<()>) {
    let chains: Vec<_> = settings.iter().map(Setting::chain).collect();
    let mut draws: Vec<_> = settings.iter().map(|s| Keyed::new(s.seed)).collect();
    let counts = counts();
    let parts = settings.iter().zip(&chains).zip(&mut draws);
    let mut anchors: Vec<_> = parts
        .map(|((setting, chain), draws)| Anchor {
            seq: SeqId(0),
            tokens: &TOKENS,
            round: 0,
            depth: setting.depth,
            nodes: setting.nodes,
            chain,
            counts: &counts,
            draws,
        })
        .collect();
    let mut trees = vec![DraftTree::new(); settings.len()];
    let mut anchors: Vec<_> = anchors.iter_mut().collect();
    let mut refs: Vec<_> = trees.iter_mut().collect();
    let done = grow(&mut anchors, &mut refs, &chains, settings[0].shape, feed);
    (trees, done)
}

/// A candidate of the twin, by its whole path.
#[derive(Clone, Debug)]
struct Found {
    path: Vec<TokenId>,
    value: f64,
}

/// Growth as it is told: all children of all rows, sorted, and every candidate kept to the end.
fn naive(setting: &Setting, feed: &Mixed) -> Vec<Vec<TokenId>> {
    let (chain, counts, draws) = (setting.chain(), counts(), Keyed::new(setting.seed));
    let children = |path: &[TokenId]| -> Vec<(TokenId, f64)> {
        let history = History {
            counts: &counts,
            tokens: &TOKENS,
            path,
        };
        let logits = feed.row(path);
        let (Ok(law), Ok(plain)) = (
            chain.law(&logits, &history),
            chain.report_law(&logits, &history),
        ) else {
            return Vec::new();
        };
        let mut all: Vec<(TokenId, f64)> = if setting.cold() {
            plain.iter().collect()
        } else if setting.shape.pick == Pick::Greedy || law.len() == 1 {
            law.iter().collect()
        } else {
            let at = Key::token(3 + path.len() as u64);
            let noisy = law.iter().map(|(id, ln)| (id, ln + draws.gumbel(at, id)));
            let noisy: Vec<_> = noisy.collect();
            let total: f64 = noisy.iter().map(|(_, s)| s.exp()).sum();
            noisy
                .into_iter()
                .map(|(id, s)| (id, s - total.ln()))
                .collect()
        };
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(setting.shape.topk);
        all
    };
    let by_value = |all: &[Found], among: std::ops::Range<usize>, count: usize| -> Vec<usize> {
        let mut order: Vec<usize> = among.collect();
        order.sort_by(|a, b| all[*b].value.total_cmp(&all[*a].value).then(a.cmp(b)));
        order.truncate(count);
        order.sort_unstable();
        order
    };
    let mut all: Vec<Found> = Vec::new();
    let root = Found {
        path: Vec::new(),
        value: 0.0,
    };
    let mut frontier = vec![root];
    for _ in 0..setting.depth {
        let from = all.len();
        for above in frontier {
            for (token, ln) in children(&above.path) {
                all.push(Found {
                    path: [above.path.as_slice(), &[token]].concat(),
                    value: above.value + ln,
                });
            }
        }
        let next = by_value(&all, from..all.len(), setting.shape.topk);
        let open = |found: &Found| feed.limit.is_none_or(|l| found.path.iter().all(|t| *t < l));
        frontier = next
            .into_iter()
            .map(|i| all[i].clone())
            .filter(open)
            .collect();
    }
    let chosen = by_value(&all, 0..all.len(), setting.nodes);
    chosen.into_iter().map(|i| all[i].path.clone()).collect()
}

/// The paths of a tree's nodes, in order.
fn paths(tree: &DraftTree) -> Vec<Vec<TokenId>> {
    let tokens = |node| tree.path(node).into_iter().map(|n| tree.token(n)).collect();
    tree.nodes().map(tokens).collect()
}

fn settings(pick: impl Strategy<Value = Pick>) -> impl Strategy<Value = Setting> {
    let temperature = prop_oneof![Just(0.0), Just(0.8), Just(1.3)];
    let sizes = (1usize..5, 1usize..6, 1usize..30);
    let other = (0usize..5, prop_oneof![Just(0.0), Just(0.7)], any::<u64>());
    (pick, temperature, sizes, other).prop_map(
        |(pick, temperature, (topk, depth, nodes), (top_k, penalty, seed))| Setting {
            shape: Shape { pick, topk },
            // As a plan has it: a level needs a node.
            depth: depth.min(nodes),
            nodes,
            temperature,
            top_k,
            penalty,
            seed,
        },
    )
}

fn points() -> impl Strategy<Value = Pick> {
    prop_oneof![Just(Pick::Coupled), Just(Pick::Greedy)]
}

fn feeds() -> impl Strategy<Value = Mixed> {
    let token = || prop::option::weighted(0.2, 0u32..7);
    (any::<u32>(), 1u8..40, token(), token()).prop_map(|(seed, spread, poison, limit)| Mixed {
        seed,
        spread,
        poison,
        limit,
        ..Mixed::default()
    })
}

proptest! {
    /// Dropping what cannot get in, and feeding less, changes no tree; a batch is its members.
    #[test]
    fn points_are_those_of_the_twin(
        all in prop::collection::vec(settings(points()), 1..4),
        mut feed in feeds(),
    ) {
        let all: Vec<_> = all.iter().map(|s| Setting { shape: all[0].shape, ..s.clone() }).collect();
        let (trees, done) = grown(&all, &mut feed);
        prop_assert!(done.is_ok());
        for (i, (setting, tree)) in all.iter().zip(&trees).enumerate() {
            prop_assert_eq!(paths(tree), naive(setting, &feed), "{:?}", setting);
            prop_assert!(tree.nodes().all(|node| *tree.law(node) == Law::Point));
            let rows = feed.paths[i].len() - 1;
            prop_assert!(rows <= setting.shape.rows(setting.depth, setting.nodes), "{rows} rows");
        }
    }

    /// With one child a level, the tokens are those that the target's own choice would make of the
    /// drafter's laws, and nothing else is asked for.
    #[test]
    fn a_chain_is_one_choice_after_the_other(
        setting in settings(prop_oneof![points(), Just(Pick::Drawn)]),
        mut feed in feeds(),
    ) {
        let shape = Shape::chain(setting.shape.pick);
        let setting = Setting { shape, ..setting };
        let (trees, done) = grown(std::slice::from_ref(&setting), &mut feed);
        prop_assert!(done.is_ok());
        let (chain, counts) = (setting.chain(), counts());
        let mut draws = Keyed::new(setting.seed);
        let mut want = DraftTree::new();
        let mut path = Vec::new();
        while path.len() < setting.depth {
            let history = History { counts: &counts, tokens: &TOKENS, path: &path };
            let Ok(law) = chain.law(&feed.row(&path), &history) else { break };
            let above = path.len().checked_sub(1).map(Node::at);
            let node = match shape.pick {
                Pick::Coupled => want.point(above, choose(&law, 3 + path.len() as u64, &draws)),
                Pick::Greedy => want.point(above, law.argmax()),
                Pick::Drawn if setting.cold() => want.point(above, law.argmax()),
                Pick::Drawn => {
                    let at = Key::in_round(3, Node::at(path.len()), Purpose::Draft);
                    want.drawn(above, law, at, &mut draws)
                }
            };
            path.push(want.token(node.expect("a node")));
            if feed.limit.is_some_and(|limit| path[path.len() - 1] >= limit) {
                break;
            }
        }
        prop_assert_eq!(&trees[0], &want);
        prop_assert!(feed.calls.iter().all(|rows| *rows == 1) && feed.calls.len() <= setting.depth);
    }

    /// The sizes of a drawn tree depend on nothing that is drawn, unless a branch is closed; every
    /// node carries the law of its parent's row.
    #[test]
    fn drawn_trees_have_fixed_sizes_and_their_own_laws(
        setting in settings(Just(Pick::Drawn)),
        mut feed in feeds(),
    ) {
        prop_assume!(!setting.cold());
        let (trees, done) = grown(std::slice::from_ref(&setting), &mut feed);
        prop_assert!(done.is_ok());
        let tree = &trees[0];
        let (chain, counts) = (setting.chain(), counts());
        for (node, path) in tree.nodes().zip(paths(tree)) {
            let history = History { counts: &counts, tokens: &TOKENS, path: &path[..path.len() - 1] };
            let q = chain.law(&feed.row(history.path), &history).expect("a law");
            prop_assert_eq!(tree.law(node), &Law::Drawn(q));
        }
        let width = setting.shape.topk.min(setting.nodes);
        let levels = |level: usize| tree.nodes().filter(|n| tree.depth(*n) == level).count();
        for level in 1..=setting.depth {
            let size = width.min(setting.nodes.saturating_sub(width * (level - 1)));
            let closed = feed.limit.is_some() || feed.poison.is_some();
            let seen = levels(level);
            prop_assert!(if closed { seen <= size } else { seen == size }, "{seen} of {size}");
        }
        prop_assert_eq!(levels(setting.depth + 1), 0);
        for above in tree.nodes() {
            prop_assert!(tree.children(Some(above)).count() <= 1);
        }
    }

    /// A pass that fails, or has no room, takes nothing back that was drawn; of points there is the
    /// tree of the levels that were fed.
    #[test]
    fn growth_that_stops_keeps_what_there_is(
        setting in settings(prop_oneof![points(), Just(Pick::Drawn)]),
        seed: u32,
        stop in (0usize..6, any::<bool>()),
    ) {
        let feed = || Mixed { seed, spread: 20, ..Mixed::default() };
        let mut short = Mixed { stop: Some(stop), ..feed() };
        let (trees, done) = grown(std::slice::from_ref(&setting), &mut short);
        let mut all = feed();
        let (whole, _) = grown(std::slice::from_ref(&setting), &mut all);
        prop_assert_eq!(done.is_err(), stop.1 && stop.0 < all.calls.len());
        if setting.shape.pick == Pick::Drawn && !setting.cold() {
            let cut = whole[0].clone().cut(short.calls.len(), usize::MAX);
            prop_assert_eq!(&trees[0], &cut);
        } else {
            let levels = Setting { depth: setting.depth.min(short.calls.len()), ..setting.clone() };
            prop_assert_eq!(paths(&trees[0]), naive(&levels, &feed()));
        }
    }
}

#[test]
fn what_cannot_get_in_is_not_fed() {
    let setting = |topk, depth, nodes| Setting {
        shape: Shape {
            pick: Pick::Coupled,
            topk,
        },
        depth,
        nodes,
        temperature: 1.0,
        top_k: 0,
        penalty: 0.0,
        seed: 9,
    };
    let rows = |setting: Setting| {
        let mut feed = Mixed {
            seed: 5,
            spread: 32,
            ..Mixed::default()
        };
        let (trees, _) = grown(&[setting], &mut feed);
        (feed.calls, trees[0].len())
    };
    assert_eq!(rows(setting(4, 1, 24)), (vec![1], 4));
    assert_eq!(rows(setting(4, 2, 24)), (vec![1, 4], 20));
    assert_eq!(rows(setting(1, 4, 4)), (vec![1, 1, 1, 1], 4));
    assert_eq!(rows(setting(1, 4, 2)), (vec![1, 1], 2));
    let (calls, nodes) = rows(setting(4, 5, 6));
    assert!(calls.iter().sum::<usize>() < 1 + 4 * 4, "{calls:?}");
    assert_eq!(nodes, 6);
}
