//! Trees grown by any calls, and the rule `match` on them over any laws, against twins that own
//! their children and ask for every random number.
#![no_main]

use std::fmt;

use arbitrary::Arbitrary;
use eyrie::{
    Node, TokenId,
    accept::{Match, Rule, TargetRows, Verdict},
    sample::{Chain, Counts, Dist, Draws, Fault, History, Key, Keyed, RawParams, SamplingParams},
    tree::DraftTree,
};
use libfuzzer_sys::{Corpus, fuzz_target};

const VOCAB: usize = 5;
const MOST_NODES: usize = 64;

/// What is called, in order, and the target that judges it.
#[derive(Arbitrary)]
struct Case {
    seed: u64,
    first: u32,
    warm: bool,
    /// Parent (anything, also out of range) and token.
    adds: Vec<(Option<u8>, u8)>,
    /// Rows of the target; which one a prefix gets depends on its tokens.
    rows: Vec<Row>,
}

#[derive(Arbitrary, Debug)]
struct Row {
    eighths: [i8; VOCAB],
    banned: u8,
    poisoned: bool,
}

/// A program, to be read and pasted.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "let mut tree = DraftTree::new();")?;
        for (parent, token) in &self.adds {
            let parent = parent.map(|p| Node(p.into()));
            writeln!(f, "tree.point({parent:?}, {});", token % 6)?;
        }
        let rows = &self.rows;
        writeln!(f, "// target rows: {rows:?}")?;
        let (first, seed, warm) = (self.first, self.seed, self.warm);
        write!(
            f,
            "Match.decide(&tree, &mut rows, {first}, &mut Keyed::new({seed})); // warm: {warm}"
        )
    }
}

impl Case {
    fn law(&self, prefix: &[TokenId]) -> Result<Dist, Fault> {
        let hash = prefix.iter().fold(prefix.len(), |h, &t| {
            h.wrapping_mul(31).wrapping_add(t as usize)
        });
        let row = &self.rows[hash % self.rows.len()];
        let mut logits = row.eighths.map(|x| f32::from(x) / 8.0);
        if row.poisoned {
            logits[hash % VOCAB] = f32::NAN;
        }
        let banned = (0..VOCAB as u32).filter(|id| row.banned >> id & 1 == 1);
        let raw = RawParams {
            temperature: if self.warm { 1.0 } else { 0.0 },
            logit_bias: banned.map(|id| (id, f64::NEG_INFINITY)).collect(),
            ..RawParams::default()
        };
        let params = SamplingParams::new(raw).expect("every value is in its range");
        let chain =
            Chain::new(params, VOCAB, VOCAB, vec![]).expect("bans are below the vocabulary");
        chain.law(
            &logits,
            &History {
                counts: &Counts::new(&[]),
                tokens: &[],
                path: &[],
            },
        )
    }
}

/// The obvious tree: a node owns its children, in the order they came.
#[derive(Default)]
struct Naive {
    children: Vec<(Node, TokenId, Self)>,
}

impl Naive {
    fn find(&mut self, node: Node) -> Option<&mut Self> {
        self.children.iter_mut().find_map(|(n, _, below)| match n {
            n if *n == node => Some(below),
            _ => below.find(node),
        })
    }
}

struct Rows<'a> {
    case: &'a Case,
    tree: &'a DraftTree,
}

impl TargetRows for Rows<'_> {
    fn law(&mut self, at: Option<Node>) -> Result<Dist, Fault> {
        let path = at.map_or_else(Vec::new, |node| self.tree.path(node));
        self.case
            .law(&path.iter().map(|&n| self.tree.token(n)).collect::<Vec<_>>())
    }
}

/// The target alone decides every token; the tree only says how far it is followed.
fn naive_verdict(case: &Case, tree: &Naive, keyed: Keyed) -> Verdict {
    let (mut at, mut path, mut tokens) = (tree, Vec::new(), Vec::new());
    loop {
        let law = match case.law(&tokens) {
            Ok(law) => law,
            Err(fault) => {
                return Verdict {
                    path,
                    next: Err(fault),
                };
            }
        };
        let key = Key::token(u64::from(case.first) + tokens.len() as u64);
        let mut best = (f64::NEG_INFINITY, 0);
        for id in 0..VOCAB as u32 {
            let value = law.ln_p(id) + keyed.gumbel(key, id);
            if value > best.0 {
                best = (value, id);
            }
        }
        match at.children.iter().find(|(_, token, _)| *token == best.1) {
            Some((node, token, below)) => {
                path.push(*node);
                tokens.push(*token);
                at = below;
            }
            None => {
                return Verdict {
                    path,
                    next: Ok(best.1),
                };
            }
        }
    }
}

fn run(case: &Case) -> Corpus {
    if case.rows.is_empty() || case.adds.len() > MOST_NODES {
        return Corpus::Reject;
    }
    let (mut tree, mut naive) = (DraftTree::new(), Naive::default());
    for &(parent, token) in &case.adds {
        let parent = parent.map(|p| Node(p.into()));
        let token = TokenId::from(token % 6); // one of them is outside of the vocabulary
        let under = match parent {
            None => Some(&mut naive),
            Some(p) => naive.find(p),
        };
        match (tree.point(parent, token), under) {
            (Ok(node), Some(under)) => under.children.push((node, token, Naive::default())),
            (Err(_), None) => {}
            (got, want) => panic!("{got:?}; the twin has the parent: {}", want.is_some()),
        }
    }
    let keyed = Keyed::new(case.seed);
    let mut rows = Rows { case, tree: &tree };
    let verdict = Match.decide(&tree, &mut rows, case.first.into(), &mut { keyed });
    assert_eq!(verdict, naive_verdict(case, &naive, keyed));
    Corpus::Keep
}

fuzz_target!(|case: Case| -> Corpus { run(&case) });
