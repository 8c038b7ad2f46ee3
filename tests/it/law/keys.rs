//! Which keys are asked for, and how often.

use std::{cell::RefCell, collections::BTreeSet};

use eyrie::{
    Node, TokenId,
    accept::{Block, Match, Rejection, Rule},
    sample::{Draws, Key, Keyed, Purpose},
    tree::DraftTree,
};

use super::{Rows, law_of};

/// Refuses a key that was asked for before, except a token's, and remembers those.
struct Recording {
    keyed: Keyed,
    once: BTreeSet<Key>,
    noise: RefCell<BTreeSet<(Key, TokenId)>>,
}

impl Recording {
    fn new(seed: u64) -> Self {
        Self {
            keyed: Keyed::new(seed),
            once: BTreeSet::new(),
            noise: RefCell::default(),
        }
    }

    fn ask(&mut self, at: Key) {
        assert!(!at.is_token(), "{at:?} is for noise");
        assert!(self.once.insert(at), "{at:?} asked twice");
    }
}

impl Draws for Recording {
    fn gumbel(&self, at: Key, token: TokenId) -> f64 {
        assert!(at.is_token(), "{at:?} is not for noise");
        self.noise.borrow_mut().insert((at, token));
        self.keyed.gumbel(at, token)
    }
    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        self.ask(at);
        self.keyed.pick(at, w)
    }
    fn accept(&mut self, at: Key, p: f64) -> bool {
        self.ask(at);
        self.keyed.accept(at, p)
    }
}

/// A tree of three drawn children a level under the first child, two levels.
fn drawn_tree(anchor: u64, draws: &mut dyn Draws) -> DraftTree {
    let q = law_of(&[0.5, 0.25, 0.25]);
    let mut tree = DraftTree::new();
    let mut parent = None;
    for _ in 0..2 {
        let first = Node::at(tree.len());
        for _ in 0..3 {
            let node = u32::try_from(tree.len()).unwrap();
            let at = Key::node(anchor, node, Purpose::Draft);
            tree.drawn(parent, q.clone(), at, draws).unwrap();
        }
        parent = Some(first);
    }
    tree
}

/// Rounds with drawn trees ask for no key twice but noise, and `match` asks for the noise of the
/// rows on its path, for the tokens of the support, and for nothing else.
#[test]
fn only_noise_is_asked_for_again() {
    let mut draws = Recording::new(9);
    let law = law_of(&[0.3, 0.0, 0.3, 0.4]);
    let mut anchor = 0;
    for _ in 0..200 {
        let tree = drawn_tree(anchor, &mut draws);
        draws.noise.borrow_mut().clear();
        let picks = draws.once.len();
        let mut rows = Rows {
            tree: &tree,
            law: |_: &[TokenId]| Ok(law.clone()),
        };
        let verdict = Match.decide(&tree, &mut rows, anchor + 1, &mut draws);
        let steps = verdict.path.len() as u64 + 1;
        let asked: BTreeSet<_> = (1..=steps)
            .flat_map(|i| [0, 2, 3].map(|token| (Key::token(anchor + i), token)))
            .collect();
        assert_eq!(*draws.noise.borrow(), asked);
        assert_eq!(draws.once.len(), picks);
        anchor += steps;
    }
    assert_eq!(draws.once.len(), 200 * 6);
}

/// `rejection` and `block` ask for no key twice in a request, drafts included, and for no noise.
#[test]
fn rejection_and_block_ask_for_every_key_once() {
    let law = law_of(&[0.3, 0.1, 0.2, 0.4]);
    for rule in [&Rejection as &dyn Rule, &Block] {
        let mut draws = Recording::new(9);
        let (mut anchor, mut accepted) = (0, 0);
        for _ in 0..200 {
            let tree = drawn_tree(anchor, &mut draws);
            let mut rows = Rows {
                tree: &tree,
                law: |_: &[TokenId]| Ok(law.clone()),
            };
            let verdict = rule.decide(&tree, &mut rows, anchor + 1, &mut draws);
            accepted += verdict.path.len();
            anchor += verdict.path.len() as u64 + 1;
        }
        assert!(accepted > 100, "{accepted}");
        assert!(draws.once.len() > 200 * 7, "{}", draws.once.len());
        assert!(draws.noise.borrow().is_empty());
    }
}

#[test]
#[should_panic(expected = "asked twice")]
fn a_round_that_forgets_its_anchor_is_caught() {
    let mut draws = Recording::new(9);
    drawn_tree(0, &mut draws);
    drawn_tree(0, &mut draws);
}

/// A law of one token is decided without a draw, so greedy decoding draws nothing.
#[test]
fn greedy_rows_draw_nothing() {
    let mut draws = Recording::new(9);
    let tree = DraftTree::chain(&[2, 2]);
    let law = law_of(&[0.0, 0.0, 1.0]);
    let mut rows = Rows {
        tree: &tree,
        law: |_: &[TokenId]| Ok(law.clone()),
    };
    let verdict = Match.decide(&tree, &mut rows, 0, &mut draws);
    assert_eq!((verdict.path.len(), verdict.next), (2, Ok(2)));
    assert!(draws.noise.borrow().is_empty() && draws.once.is_empty());
}
