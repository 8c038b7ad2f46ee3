//! Rounds without an engine: tables for target and drafter, the production code for everything
//! between them.

use std::sync::Arc;

use eyrie::{
    Node, SeqId, TokenId,
    accept::{Rule, TargetRows},
    draft::{Anchor, Drafter, Pick},
    error::Result,
    mutant::Mutant,
    sample::{Chain, Counts, Dist, Fault, History, Keyed, Misreading, RawParams},
    tree::DraftTree,
};
use rayon::prelude::*;

use super::chain;

/// The token before the first.
const PROMPT: TokenId = 0;

/// Logits of the next token by the last one; row `token % rows`.
pub(super) type Table = Arc<Vec<Vec<f32>>>;

/// What is played, again and again.
#[derive(Clone, Debug)]
pub(super) struct Play {
    pub(super) target: Table,
    pub(super) drafter: Table,
    pub(super) raw: RawParams,
    /// The drafter's tree: a parent a node.
    pub(super) tree: Vec<Option<u32>>,
    pub(super) pick: Pick,
    pub(super) rule: fn() -> Box<dyn Rule>,
    /// How many tokens are looked at.
    pub(super) length: usize,
}

fn row(table: &Table, last: TokenId) -> &[f32] {
    &table[last as usize % table.len()]
}

impl Play {
    pub(super) fn vocab(&self) -> usize {
        self.target[0].len()
    }

    fn chain(&self) -> Chain {
        chain(self.raw.clone(), self.vocab())
    }

    /// The law of the first tokens under plain decoding, by cell.
    pub(super) fn law(&self) -> Vec<f64> {
        let (chain, counts) = (self.chain(), Counts::new(&[PROMPT]));
        let mut cells = vec![(Vec::<TokenId>::new(), 1.0)];
        for _ in 0..self.length {
            let mut longer = Vec::new();
            for (path, weight) in cells {
                let last = path.last().copied().unwrap_or(PROMPT);
                let history = History {
                    counts: &counts,
                    tokens: &[PROMPT],
                    path: &path,
                };
                let law = chain.law(row(&self.target, last), &history).unwrap();
                for id in (0..).take(self.vocab()) {
                    longer.push(([path.as_slice(), &[id]].concat(), weight * law.p(id)));
                }
            }
            cells = longer;
        }
        cells.into_iter().map(|(_, weight)| weight).collect()
    }

    /// The cell of tokens, as [`Play::law`] has them.
    fn cell(&self, tokens: &[TokenId]) -> usize {
        let digit = |cell: usize, token: &TokenId| cell * self.vocab() + *token as usize;
        tokens[..self.length].iter().fold(0, digit)
    }

    fn honest(&self) -> (Box<dyn Rule>, Box<dyn Drafter>) {
        let drafter = Planted {
            table: Arc::clone(&self.drafter),
            tree: self.tree.clone(),
            pick: self.pick,
        };
        ((self.rule)(), Box::new(drafter))
    }

    /// The cells of these seeds, in order.
    pub(super) fn cells(&self, mutant: Option<Mutant>, seeds: std::ops::Range<u64>) -> Vec<usize> {
        const PIECE: u64 = 1_000;
        let chain = self.chain();
        let begins: Vec<u64> = seeds.clone().step_by(1_000).collect();
        let piece = |begin: u64| -> Vec<usize> {
            let (mut rule, mut drafter) = self.honest();
            if let Some(mutant) = mutant {
                (rule, drafter) = (mutant.rule(rule), mutant.drafter(drafter));
            }
            (begin..seeds.end.min(begin + PIECE))
                .map(|seed| self.cell(&self.tokens(&chain, &*rule, &mut *drafter, seed)))
                .collect()
        };
        begins.into_par_iter().flat_map(piece).collect()
    }

    /// How often each cell came.
    pub(super) fn counts(&self, mutant: Option<Mutant>, seeds: std::ops::Range<u64>) -> Vec<u64> {
        let mut counts = vec![0; self.vocab().pow(u32::try_from(self.length).unwrap())];
        for cell in self.cells(mutant, seeds) {
            counts[cell] += 1;
        }
        counts
    }

    /// Rounds until there are enough tokens.
    fn tokens(
        &self,
        chain: &Chain,
        rule: &dyn Rule,
        drafter: &mut dyn Drafter,
        seed: u64,
    ) -> Vec<TokenId> {
        let (mut draws, mut counts) = (Keyed::new(seed), Counts::new(&[PROMPT]));
        let mut tokens = vec![PROMPT];
        for round in 0.. {
            let first = counts.output_len();
            if first >= self.length {
                break;
            }
            let mut trees = [DraftTree::new()];
            let anchor = Anchor {
                seq: SeqId(0),
                tokens: &tokens,
                round,
                depth: self.tree.len(),
                nodes: self.tree.len(),
                chain,
                counts: &counts,
                draws: &mut draws,
            };
            if !self.tree.is_empty() {
                drafter.propose(&mut [anchor], &mut trees).unwrap();
            }
            let [tree] = trees;
            let mut rows = Rows {
                table: &self.target,
                chain,
                counts: &counts,
                tokens: &tokens,
                tree: &tree,
            };
            let verdict = rule.decide(&tree, &mut rows, first as u64, &mut draws);
            let path = verdict.path.iter().map(|node| tree.token(*node));
            for token in path.chain([verdict.next.unwrap()]) {
                counts.push(token);
                tokens.push(token);
            }
        }
        tokens.split_off(1)
    }
}

/// Drafts a tree of one shape by a table.
#[derive(Debug)]
struct Planted {
    table: Table,
    tree: Vec<Option<u32>>,
    pick: Pick,
}

impl Drafter for Planted {
    fn name(&self) -> &'static str {
        "planted"
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        for (anchor, tree) in anchors.iter_mut().zip(trees) {
            for parent in &self.tree {
                let parent = parent.map(Node);
                let path = path(tree, parent);
                let last = path
                    .last()
                    .unwrap_or(&anchor.tokens[anchor.tokens.len() - 1]);
                let history = History {
                    counts: anchor.counts,
                    tokens: anchor.tokens,
                    path: &path,
                };
                let q = anchor.chain.law(row(&self.table, *last), &history);
                self.pick.add(tree, parent, q.unwrap(), anchor)?;
            }
        }
        Ok(())
    }
}

fn path(tree: &DraftTree, at: Option<Node>) -> Vec<TokenId> {
    let nodes = at.map_or_else(Vec::new, |node| tree.path(node));
    nodes.into_iter().map(|node| tree.token(node)).collect()
}

struct Rows<'a> {
    table: &'a Table,
    chain: &'a Chain,
    counts: &'a Counts,
    tokens: &'a [TokenId],
    tree: &'a DraftTree,
}

impl Rows<'_> {
    fn read(
        &self,
        at: Option<Node>,
        law: impl Fn(&Chain, &[f32], &History<'_>) -> std::result::Result<Dist, Fault>,
    ) -> std::result::Result<Dist, Fault> {
        let path = path(self.tree, at);
        let last = path
            .last()
            .copied()
            .unwrap_or(self.tokens[self.tokens.len() - 1]);
        let history = History {
            counts: self.counts,
            tokens: self.tokens,
            path: &path,
        };
        law(self.chain, row(self.table, last), &history)
    }
}

impl TargetRows for Rows<'_> {
    fn law(&mut self, at: Option<Node>) -> std::result::Result<Dist, Fault> {
        self.read(at, Chain::law)
    }

    fn misread(&mut self, at: Option<Node>, how: Misreading) -> std::result::Result<Dist, Fault> {
        self.read(at, |chain, logits, history| how.law(chain, logits, history))
    }
}
