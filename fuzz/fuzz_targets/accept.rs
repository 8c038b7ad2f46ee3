//! Every rule on any tree of points and drawn nodes, over any laws, zeros, one-hot rows and faults
//! included, against twins on dense tables.
//!
//! The draws answer by a script, so that improbable branches are as near as any. They write down
//! what was asked; the twin of the rule then has to ask for the same keys, in the same order, with
//! the same chances, and given the same answers has to reach the same verdict. Chances within 1e-6
//! of 0 or 1 are answered as 0 or 1: what comes after a rounding error has no law to compare with.
#![no_main]

use std::{collections::BTreeSet, fmt};

use arbitrary::Arbitrary;
use eyrie::{
    Node, TokenId,
    accept::{Block, Match, Rejection, Rule, TargetRows, Verdict},
    sample::{
        Chain, Counts, Dist, Draws, Fault, History, Key, Keyed, Purpose, RawParams, SamplingParams,
    },
    tree::DraftTree,
};
use libfuzzer_sys::{Corpus, fuzz_target};

const VOCAB: usize = 6;
const MOST_NODES: usize = 24;
/// Chances are equal, or as good as 0 or 1, within this.
const CLOSE: f64 = 1e-6;
/// A table whose entries may be wrong by more than this is not compared with: two laws that nearly
/// agree leave a residual of rounding errors.
const BLURRED: f64 = 1e-11;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Which {
    Match,
    Rejection,
    Block,
}

/// What the drafter does, in order, and the target that judges it.
#[derive(Arbitrary)]
struct Case {
    which: Which,
    seed: u64,
    first: u32,
    nodes: Vec<Add>,
    /// Rows of the target and of the drafter; which one a prefix gets depends on its tokens.
    target: Vec<Row>,
    drafter: Vec<Row>,
    /// Answers, in the order of the questions; the last ones are no, and the first token.
    script: Vec<u8>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Add {
    /// None for the anchor; a number that is no node yet is one of those there are.
    parent: Option<u8>,
    /// A point with this token (one beyond the vocabulary too), or a draw.
    point: Option<u8>,
}

#[derive(Arbitrary, Debug)]
struct Row {
    /// Logits in units of 1/32, so that no two laws are nearly equal and yet differ.
    logits: [i8; VOCAB],
    banned: u8,
    poisoned: bool,
}

impl Row {
    fn law(&self) -> Result<Dist, Fault> {
        let mut logits = self.logits.map(|x| f32::from(x) / 32.0);
        if self.poisoned {
            logits[usize::from(self.banned) % VOCAB] = f32::NAN;
        }
        let banned = (0..VOCAB as u32).filter(|id| self.banned >> id & 1 == 1);
        let raw = RawParams {
            temperature: 1.0,
            logit_bias: banned.map(|id| (id, f64::NEG_INFINITY)).collect(),
            ..RawParams::default()
        };
        let params = SamplingParams::new(raw).expect("every value is in its range");
        let chain =
            Chain::new(params, VOCAB, VOCAB, vec![]).expect("bans are below the vocabulary");
        let history = History {
            counts: &Counts::new(&[]),
            tokens: &[],
            path: &[],
        };
        chain.law(&logits, &history)
    }
}

/// The law that a list of rows has for a prefix.
fn row_of(rows: &[Row], prefix: &[TokenId]) -> Result<Dist, Fault> {
    let hash = prefix.iter().fold(prefix.len(), |h, &t| {
        h.wrapping_mul(31).wrapping_add(t as usize)
    });
    rows[hash % rows.len()].law()
}

/// Probabilities of the vocabulary and of one id beyond it, which no row has.
fn table(law: &Dist) -> Vec<f64> {
    (0..=VOCAB as u32).map(|id| law.p(id)).collect()
}

/// A program, to be read and pasted.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (which, first, seed) = (self.which, self.first, self.seed);
        writeln!(f, "// {which:?} at {first}, noise of seed {seed}")?;
        let (tree, _) = grow(self, &mut Script::new(self));
        for node in tree.nodes() {
            let (parent, token) = (tree.parent(node), tree.token(node));
            writeln!(
                f,
                "tree.point({parent:?}, {token}); // {:?}",
                tree.law(node)
            )?;
        }
        writeln!(f, "// target rows: {:?}", self.target)?;
        writeln!(f, "// drafter rows: {:?}", self.drafter)?;
        write!(f, "// script: {:?}", self.script)
    }
}

/// A question that was asked, and the answer to a coin.
#[derive(Debug)]
enum Asked {
    Coin(Key, f64, bool),
    Token(Key, Vec<f64>),
}

/// Draws that answer by the script and write the questions down; noise is the keyed one.
struct Script<'a> {
    answers: std::slice::Iter<'a, u8>,
    keyed: Keyed,
    keys: BTreeSet<Key>,
    log: Vec<Asked>,
}

impl<'a> Script<'a> {
    fn new(case: &'a Case) -> Self {
        Self {
            answers: case.script.iter(),
            keyed: Keyed::new(case.seed),
            keys: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn answer(&mut self, at: Key) -> u8 {
        assert!(!at.is_token(), "{at:?} is for noise");
        assert!(self.keys.insert(at), "{at:?} asked twice");
        self.answers.next().copied().unwrap_or(0)
    }
}

impl Draws for Script<'_> {
    fn gumbel(&self, at: Key, token: TokenId) -> f64 {
        assert!(at.is_token(), "{at:?} is not for noise");
        self.keyed.gumbel(at, token)
    }

    fn choose(&self, law: &Dist, at: Key) -> TokenId {
        self.keyed.choose(law, at)
    }

    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        let answer = usize::from(self.answer(at));
        let sum: f64 = w.iter().sum();
        assert!(w.iter().all(|w| *w >= 0.0), "weights {w:?}");
        assert!((sum - 1.0).abs() < 1e-9, "weights {w:?} sum to {sum}");
        self.log.push(Asked::Token(at, w.to_vec()));
        let open: Vec<_> = (0..w.len()).filter(|i| w[*i] > CLOSE).collect();
        open[answer % open.len()]
    }

    fn accept(&mut self, at: Key, p: f64) -> bool {
        let answer = self.answer(at);
        assert!(p >= 0.0, "chance {p}");
        let yes = p > 1.0 - CLOSE || (p >= CLOSE && answer % 2 == 1);
        self.log.push(Asked::Coin(at, p, yes));
        yes
    }
}

/// One node of the twin's tree, with its number, token and the dense law it was chosen by.
struct Twin {
    node: Node,
    token: TokenId,
    q: Vec<f64>,
    children: Vec<Twin>,
}

impl Twin {
    fn find<'a>(children: &'a mut Vec<Self>, node: Node) -> Option<&'a mut Vec<Self>> {
        for child in children {
            if child.node == node {
                return Some(&mut child.children);
            }
            if let Some(found) = Self::find(&mut child.children, node) {
                return Some(found);
            }
        }
        None
    }
}

/// The tree that the calls of `case` grow, and the twin's. A drafter without a law at a prefix
/// adds no drawn node there.
fn grow(case: &Case, draws: &mut Script<'_>) -> (DraftTree, Vec<Twin>) {
    let (mut tree, mut twins) = (DraftTree::new(), Vec::new());
    for add in case.nodes.iter().take(MOST_NODES) {
        let there = u8::try_from(tree.len()).expect("few nodes");
        let parent = add.parent.and_then(|p| p.checked_rem(there));
        let parent = parent.map(|p| Node(p.into()));
        let path = parent.map_or_else(Vec::new, |parent| tree.path(parent));
        let path: Vec<_> = path.into_iter().map(|node| tree.token(node)).collect();
        let (node, q) = match add.point {
            Some(token) => {
                let token = TokenId::from(token) % (VOCAB as u32 + 1);
                let node = tree.point(parent, token);
                (node, table(&Dist::one_hot(token)))
            }
            None => {
                let Ok(q) = row_of(&case.drafter, &path) else {
                    continue;
                };
                let next = Node::at(tree.len());
                let at = Key::in_round(case.first.into(), next, Purpose::Draft);
                let dense = table(&q);
                (tree.drawn(parent, q, at, draws), dense)
            }
        };
        let node = node.expect("the parent is there");
        let under = match parent {
            None => &mut twins,
            Some(parent) => Twin::find(&mut twins, parent).expect("the twin has it"),
        };
        under.push(Twin {
            node,
            token: tree.token(node),
            q,
            children: Vec::new(),
        });
    }
    (tree, twins)
}

/// The target's rows; none may be asked for twice, nor one beyond the vocabulary.
struct Rows<'a> {
    case: &'a Case,
    tree: &'a DraftTree,
    asked: Vec<Option<Node>>,
}

impl TargetRows for Rows<'_> {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        assert!(!self.asked.contains(&at), "row {at:?} asked for twice");
        assert!(self.asked.is_empty() == at.is_none(), "{at:?} comes first");
        self.asked.push(at);
        let path = at.map_or_else(Vec::new, |node| self.tree.path(node));
        let path: Vec<_> = path.iter().map(|&n| self.tree.token(n)).collect();
        assert!(path.iter().all(|token| (*token as usize) < VOCAB));
        row_of(&self.case.target, &path)
    }
}

/// What the twin reads: the target, and the answers that the rule was given.
struct Replay<'a> {
    case: &'a Case,
    log: std::vec::IntoIter<Asked>,
    verdict: &'a Verdict,
}

/// The comparison has come to a table of rounding errors.
struct Blurred;

impl Replay<'_> {
    fn key(&self, node: Node, purpose: Purpose) -> Key {
        Key::in_round(self.case.first.into(), node, purpose)
    }

    fn law(&self, prefix: &[TokenId]) -> Result<Vec<f64>, Fault> {
        row_of(&self.case.target, prefix).map(|law| table(&law))
    }

    /// The recorded answer to the coin of `node`.
    fn coin(&mut self, node: Node, chance: f64) -> bool {
        let key = self.key(node, Purpose::Accept);
        match self.log.next() {
            Some(Asked::Coin(at, p, yes)) if at == key => {
                let near = (p.min(1.0) - chance.min(1.0)).abs();
                assert!(near < CLOSE, "coin of {node:?}: {p}, the twin has {chance}");
                yes
            }
            other => panic!("{other:?}; the twin asks for the coin of {node:?}"),
        }
    }

    /// `next` has to be drawn from `law`, for `node`, and nothing asked after it.
    fn end(&mut self, path: &[Node], law: &[f64], node: Node) {
        assert_eq!(self.verdict.path, path);
        let next = *self.verdict.next.as_ref().expect("the twin has a law") as usize;
        assert!(law[next] > CLOSE, "{next} drawn from {law:?}");
        let open: Vec<_> = law.iter().filter(|p| **p > CLOSE).collect();
        match self.log.next() {
            Some(Asked::Token(at, mut weights)) => {
                assert_eq!(at, self.key(node, Purpose::Residual));
                weights.retain(|w| *w > CLOSE);
                assert_eq!(
                    weights.len(),
                    open.len(),
                    "{weights:?}, the twin has {law:?}"
                );
                for (w, p) in weights.iter().zip(open) {
                    assert!((w - p).abs() < CLOSE, "{weights:?}, the twin has {law:?}");
                }
            }
            None => assert!(law[next] > 1.0 - CLOSE, "{next} is not sure: {law:?}"),
            other => panic!("{other:?}; the twin draws for {node:?}"),
        }
        assert!(self.log.next().is_none(), "asked after the end");
    }

    fn fault(&mut self, path: &[Node], fault: Fault) {
        assert_eq!(self.verdict.path, path);
        assert_eq!(self.verdict.next, Err(fault));
        assert!(self.log.next().is_none(), "asked after the end");
    }

    /// The target alone decides every token; the tree only says how far it is followed.
    fn matching(&mut self, mut level: &[Twin]) {
        let keyed = Keyed::new(self.case.seed);
        let (mut path, mut prefix) = (Vec::new(), Vec::new());
        assert!(self.log.next().is_none(), "`match` asks for noise only");
        loop {
            let law = match row_of(&self.case.target, &prefix) {
                Ok(law) => law,
                Err(fault) => return self.fault(&path, fault),
            };
            let key = Key::token(u64::from(self.case.first) + prefix.len() as u64);
            let mut best = (f64::NEG_INFINITY, 0);
            for id in 0..VOCAB as u32 {
                let value = law.ln_p(id) + keyed.gumbel(key, id);
                if value > best.0 {
                    best = (value, id);
                }
            }
            let Some(child) = level.iter().find(|child| child.token == best.1) else {
                assert_eq!(self.verdict.path, path);
                assert_eq!(self.verdict.next, Ok(best.1));
                return;
            };
            path.push(child.node);
            prefix.push(child.token);
            level = &child.children;
        }
    }

    fn rejection(&mut self, mut level: &[Twin], nodes: usize) -> Result<(), Blurred> {
        let (mut path, mut prefix) = (Vec::new(), Vec::new());
        'down: loop {
            let mut left = match self.law(&prefix) {
                Ok(p) => p,
                Err(fault) => {
                    self.fault(&path, fault);
                    return Ok(());
                }
            };
            let (mut blur, mut replaced) = (1e-15, Node::at(nodes));
            for child in level {
                let x = child.token as usize;
                if self.coin(child.node, left[x] / child.q[x]) {
                    path.push(child.node);
                    prefix.push(child.token);
                    level = &child.children;
                    continue 'down;
                }
                let rest: Vec<_> = left
                    .iter()
                    .zip(&child.q)
                    .map(|(p, q)| (p - q).max(0.0))
                    .collect();
                let sum: f64 = rest.iter().sum();
                blur = (blur + 1e-15) / sum;
                if blur > BLURRED {
                    return Err(Blurred);
                }
                left = rest.into_iter().map(|p| p / sum).collect();
                replaced = child.node;
            }
            self.end(&path, &left, replaced);
            return Ok(());
        }
    }

    fn block(&mut self, level: &[Twin], nodes: usize) -> Result<(), Blurred> {
        let mut chain = Vec::new();
        let mut below = level.first();
        while let Some(twin) = below {
            chain.push(twin);
            below = twin.children.first();
        }
        // By prefix: its weight and the law behind it, up to the first without weight or law.
        let mut prefixes: Vec<(f64, Result<Vec<f64>, Fault>)> = Vec::new();
        let (mut weight, mut tokens) = (1.0f64, Vec::new());
        for length in 0..=chain.len() {
            let law = self.law(&tokens);
            prefixes.push((weight, law.clone()));
            let (Ok(p), Some(twin)) = (law, chain.get(length)) else {
                break;
            };
            let x = twin.token as usize;
            weight = (weight * p[x] / twin.q[x]).min(1.0);
            tokens.push(twin.token);
            if weight <= 0.0 {
                break;
            }
        }
        for (length, (weight, law)) in prefixes.iter().enumerate().rev() {
            let path: Vec<_> = chain[..length].iter().map(|twin| twin.node).collect();
            let (chance, next, node) = match (law, chain.get(length)) {
                (Err(fault), _) => (*weight, Err(fault.clone()), Node::at(nodes)),
                (Ok(p), None) => (*weight, Ok(p.clone()), Node::at(nodes)),
                (Ok(p), Some(twin)) => {
                    let rest: Vec<_> = p
                        .iter()
                        .zip(&twin.q)
                        .map(|(p, q)| (weight * p - q).max(0.0))
                        .collect();
                    let sum: f64 = rest.iter().sum();
                    if 1e-15 / (sum + 1.0 - weight) > BLURRED {
                        return Err(Blurred);
                    }
                    let law: Vec<_> = rest.iter().map(|x| x / sum).collect();
                    (sum / (sum + 1.0 - weight), Ok(law), twin.node)
                }
            };
            if let Some(last) = path.last()
                && !self.coin(*last, chance)
            {
                continue;
            }
            match next {
                Ok(law) => self.end(&path, &law, node),
                Err(fault) => self.fault(&path, fault),
            }
            return Ok(());
        }
        panic!("no prefix was accepted");
    }
}

/// What holds for every rule.
fn check(case: &Case, tree: &DraftTree, rows: &[Option<Node>], verdict: &Verdict) {
    let mut prefix = Vec::new();
    let mut above = None;
    for &node in &verdict.path {
        assert_eq!(tree.parent(node), above, "a path from the anchor");
        let law = row_of(&case.target, &prefix).expect("a row with a law");
        let token = tree.token(node);
        assert!(law.p(token) > 0.0, "{token} has no mass after {prefix:?}");
        prefix.push(token);
        above = Some(node);
    }
    assert!(rows.contains(&above), "the row of `next` was looked at");
    match (verdict.next.clone(), row_of(&case.target, &prefix)) {
        (Ok(token), Ok(law)) => assert!(law.p(token) > 0.0, "{token} has no mass"),
        (got, want) => assert_eq!(got.err(), want.err(), "after {prefix:?}"),
    }
    match case.which {
        Which::Match | Which::Rejection => assert_eq!(rows.len(), verdict.path.len() + 1),
        Which::Block => {
            let chain = rows.iter().flatten().copied();
            let mut above = None;
            for node in chain {
                assert_eq!(tree.children(above).next(), Some(node), "one chain");
                above = Some(node);
            }
        }
    }
}

fn run(case: &Case) -> Corpus {
    if case.target.is_empty() || case.drafter.is_empty() {
        return Corpus::Reject;
    }
    let mut draws = Script::new(case);
    let (tree, twins) = grow(case, &mut draws);
    draws.log.clear();
    let mut rows = Rows {
        case,
        tree: &tree,
        asked: Vec::new(),
    };
    let rule: &dyn Rule = match case.which {
        Which::Match => &Match,
        Which::Rejection => &Rejection,
        Which::Block => &Block,
    };
    let verdict = rule.decide(&tree, &mut rows, case.first.into(), &mut draws);
    check(case, &tree, &rows.asked, &verdict);
    let mut replay = Replay {
        case,
        log: draws.log.into_iter(),
        verdict: &verdict,
    };
    let compared = match case.which {
        Which::Match => {
            replay.matching(&twins);
            Ok(())
        }
        Which::Rejection => replay.rejection(&twins, tree.len()),
        Which::Block => replay.block(&twins, tree.len()),
    };
    match compared {
        Ok(()) => Corpus::Keep,
        Err(Blurred) => Corpus::Reject,
    }
}

fuzz_target!(|case: Case| -> Corpus { run(&case) });
