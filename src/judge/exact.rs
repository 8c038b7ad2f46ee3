//! The exact output law of a round: every branch of drafting and deciding, by enumeration.
//!
//! The code that runs is production's; only the [`Draws`] that answer its questions are replaced by
//! a [`Walk`] through every combination of answers. Each branch ends in a verdict and has a
//! probability, and the emitted tokens, weighed by it and continued by the target, must have the target's
//! own law up to rounding. There is no sampling, no alpha and no luck; what enumeration cannot see
//! is how the production draws are keyed, beyond that no key is asked for twice.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use eyrie_verifier::every::{Walk, every};

use super::rows::{Rows, mixed, path};
use crate::{
    Node, TokenId,
    accept::{Rule, TargetRows, Verdict},
    sample::{
        Chain, Counts, Dist, Draws, History, Key, ParamError, Processor, Purpose, RawParams,
        SamplingParams,
    },
    tree::DraftTree,
};

/// The index of the token that the anchor's row chooses, in every setting.
const FIRST: u64 = 1;

/// A rule, or something that is not one.
pub type Decide<'a> =
    &'a (dyn Fn(&DraftTree, &mut dyn TargetRows, &mut dyn Draws) -> Verdict + Sync);

/// Decides as a rule of the crate.
pub fn by(
    rule: &dyn Rule,
) -> impl Fn(&DraftTree, &mut dyn TargetRows, &mut dyn Draws) -> Verdict + Sync {
    move |tree, rows, draws| rule.decide(tree, rows, FIRST, draws)
}

/// Draws that go through every branch. What no rule may do, ask for noise or for a key twice, is
/// noted as the branch's problem, and answered all the same.
struct Branches<'a> {
    walk: &'a mut Walk,
    asked: BTreeSet<Key>,
    problem: &'a RefCell<Option<String>>,
}

impl Branches<'_> {
    fn ask(&mut self, at: Key) {
        if !self.asked.insert(at) {
            note(self.problem, || format!("{at:?} asked twice"));
        }
    }
}

impl Draws for Branches<'_> {
    fn gumbel(&self, at: Key, _: TokenId) -> f64 {
        note(self.problem, || format!("noise asked for at {at:?}"));
        0.0
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

fn note(problem: &RefCell<Option<String>>, what: impl FnOnce() -> String) {
    problem.borrow_mut().get_or_insert_with(what);
}

/// One node of a plan: its parent, and whether it is drawn.
pub type Planned = (Option<u32>, bool);

/// A target and a drafter, each a function of the tokens after the anchor, and the drafter's tree.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Whose law is to come out.
    pub target: Model,
    /// Who guesses.
    pub drafter: Model,
    /// Its tree.
    pub nodes: Vec<Planned>,
}

/// Logits by a mix of a seed and the prefix, through a chain.
#[derive(Clone, Debug)]
pub struct Model {
    vocab: u32,
    seed: u32,
    spread: f32,
    chain: Chain,
}

impl Model {
    /// A model over `0..vocab` whose logits lie in `0..spread`.
    ///
    /// # Errors
    /// For parameters out of range.
    pub fn new(vocab: u32, seed: u32, spread: f32, raw: RawParams) -> Result<Self, ParamError> {
        let width = vocab as usize;
        Ok(Self {
            vocab,
            seed,
            spread,
            chain: Chain::new(SamplingParams::new(raw)?, width, width, Vec::new())?,
        })
    }

    /// The model with `processors`, whose history is a prompt of one token and the path.
    #[must_use]
    pub fn with_processors(self, processors: Vec<Arc<dyn Processor>>) -> Self {
        Self {
            chain: self.chain.with_processors(processors),
            ..self
        }
    }

    /// The law after `path`.
    ///
    /// # Panics
    /// If the parameters ban every token.
    #[must_use]
    pub fn law(&self, path: &[TokenId]) -> Dist {
        let logits = mixed(self.seed, self.vocab, self.spread, path);
        let tokens = &[0];
        let counts = &Counts::new(tokens);
        let history = History {
            counts,
            tokens,
            path,
        };
        let law = self.chain.law(&logits, &history);
        law.expect("finite logits, and a token that is not banned")
    }
}

/// What an enumeration found.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// The largest difference of a cell's probability from the target's; infinite with a problem.
    pub error: f64,
    /// Branches that were walked.
    pub branches: usize,
    /// The first thing that no rule may do.
    pub problem: Option<String>,
}

impl Setting {
    /// The target's law after the tokens of `path`.
    #[must_use]
    pub fn p(&self, path: &[TokenId]) -> Dist {
        self.target.law(path)
    }

    /// The drafter's law after the tokens of `path`.
    #[must_use]
    pub fn q(&self, path: &[TokenId]) -> Dist {
        self.drafter.law(path)
    }

    /// The drafter's tree: a drawn node from its law at the parent, a point at its argmax there
    /// (the `i`-th child that is a point at the `i`-th best token).
    ///
    /// # Panics
    /// If a node's parent does not come before it.
    pub fn draft(&self, draws: &mut dyn Draws) -> DraftTree {
        let mut tree = DraftTree::new();
        for &(parent, drawn) in &self.nodes {
            let parent = parent.map(Node);
            let q = self.q(&path(&tree, parent));
            let added = if drawn {
                let at = Key::in_round(FIRST, Node::at(tree.len()), Purpose::Draft);
                tree.drawn(parent, q, at, draws)
            } else {
                let rank = tree.children(parent).count() % q.len();
                tree.point(parent, q.top(rank + 1)[rank].0)
            };
            added.expect("parents come before their children");
        }
        tree
    }

    /// Runs every branch of drafting and deciding; what each verdict means is up to `run` and
    /// `outcome`. The number of branches, and the first thing that no rule may do.
    pub fn branches<T>(
        &self,
        decide: Decide<'_>,
        mut run: impl FnMut(&DraftTree, &Verdict) -> T,
        outcome: impl FnMut(T, f64),
    ) -> (usize, Option<String>) {
        let problem = RefCell::new(None);
        let round = |walk: &mut Walk| {
            let mut draws = Branches {
                walk,
                asked: BTreeSet::new(),
                problem: &problem,
            };
            let tree = self.draft(&mut draws);
            let mut asked = BTreeSet::new();
            let mut rows = Rows {
                tree: &tree,
                law: |path: &[TokenId]| {
                    if !asked.insert(path.to_vec()) {
                        note(&problem, || format!("row {path:?} asked for twice"));
                    }
                    Ok(self.p(path))
                },
            };
            let verdict = decide(&tree, &mut rows, &mut draws);
            run(&tree, &verdict)
        };
        let branches = every(round, outcome);
        (branches, problem.into_inner())
    }

    /// Compares the law of the first tokens of a round, continued by the target to one token more
    /// than the tree is deep, with the target's own, cell by cell.
    pub fn exact(&self, decide: Decide<'_>) -> Exact {
        let length = levels(&self.draft(&mut First)) + 1;
        let mut law = BTreeMap::<Vec<TokenId>, f64>::new();
        let mut total = 0.0;
        let mut fault = None;
        let (branches, problem) = self.branches(decide, emitted, |tokens, weight| {
            total += weight;
            match tokens {
                Ok(tokens) if tokens.len() <= length => {
                    *law.entry(tokens).or_insert(0.0) += weight;
                }
                Ok(tokens) => fault = Some(format!("{tokens:?} is longer than the tree")),
                Err(what) => fault = Some(what),
            }
        });
        let missing = || format!("the branches weigh {total} together");
        let problem = problem
            .or(fault)
            .or_else(|| ((total - 1.0f64).abs() > 1e-9).then(missing));
        let mut exact = Exact {
            error: f64::INFINITY,
            branches,
            problem,
        };
        if exact.problem.is_none() {
            exact.error = self.difference(law, length);
        }
        exact
    }

    /// [`Setting::exact`]'s error alone.
    pub fn error(&self, decide: Decide<'_>) -> f64 {
        self.exact(decide).error
    }

    fn difference(&self, law: BTreeMap<Vec<TokenId>, f64>, length: usize) -> f64 {
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
///
/// # Errors
/// If it has no next token.
pub fn emitted(tree: &DraftTree, verdict: &Verdict) -> Result<Vec<TokenId>, String> {
    let next = *verdict.next.as_ref().map_err(ToString::to_string)?;
    let path = verdict.path.iter().map(|&node| tree.token(node));
    Ok(path.chain([next]).collect())
}

/// The first possible answer to everything.
struct First;

impl Draws for First {
    fn gumbel(&self, _: Key, _: TokenId) -> f64 {
        0.0
    }
    fn pick(&mut self, _: Key, w: &[f64]) -> usize {
        w.iter().position(|w| *w > 0.0).unwrap_or(0)
    }
    fn accept(&mut self, _: Key, p: f64) -> bool {
        p >= 1.0
    }
}

fn levels(tree: &DraftTree) -> usize {
    tree.nodes().map(|node| tree.depth(node)).max().unwrap_or(0)
}
