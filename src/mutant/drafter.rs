//! Drafters with a lie.

use super::{
    Mutant,
    draws::{Asker, Drafting, Lying},
};
use crate::{
    SeqId,
    draft::{Anchor, Drafter, Seen},
    error::Result,
    sample::{Chain, without_filters},
    tree::DraftTree,
};

/// An honest drafter that is lied to about its draws and its chain.
#[derive(Debug)]
pub(super) struct Broken {
    mutant: Mutant,
    honest: Box<dyn Drafter>,
}

impl Broken {
    pub(super) fn new(mutant: Mutant, honest: Box<dyn Drafter>) -> Self {
        Self { mutant, honest }
    }

    /// The chain that makes the laws which the drafter claims.
    fn chain(&self, honest: &Chain) -> Chain {
        match self.mutant {
            Mutant::QUnfiltered => without_filters(honest),
            Mutant::QWithoutTemperature if !honest.params().is_greedy() => {
                honest.altered(|raw| raw.temperature = 1.0)
            }
            _ => honest.clone(),
        }
    }
}

impl Drafter for Broken {
    fn name(&self) -> &'static str {
        self.honest.name()
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        self.honest.observe(seen)
    }

    fn taps(&self) -> &[usize] {
        self.honest.taps()
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        let chains: Vec<Chain> = anchors.iter().map(|a| self.chain(a.chain)).collect();
        let mut draws: Vec<Lying<'_>> = Vec::with_capacity(anchors.len());
        let mut plans = Vec::with_capacity(anchors.len());
        for anchor in &mut *anchors {
            let params = anchor.chain.params();
            let drafting = Drafting {
                temperature: params.temperature,
                top_k: params.top_k,
            };
            draws.push(Lying {
                mutant: self.mutant,
                first: anchor.counts.output_len() as u64,
                asker: Asker::Drafter(drafting),
                inner: &mut *anchor.draws,
            });
            let (seq, tokens, counts) = (anchor.seq, anchor.tokens, anchor.counts);
            plans.push((
                seq,
                tokens,
                counts,
                anchor.round,
                anchor.depth,
                anchor.nodes,
            ));
        }
        let parts = plans.into_iter().zip(&mut draws).zip(&chains);
        let mut lied_to: Vec<Anchor<'_>> = parts
            .map(|((plan, draws), chain)| {
                let (seq, tokens, counts, round, depth, nodes) = plan;
                Anchor {
                    seq,
                    tokens,
                    round,
                    depth,
                    nodes,
                    chain,
                    counts,
                    draws,
                }
            })
            .collect();
        self.honest.propose(&mut lied_to, trees)
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        self.honest.fork(from, to);
    }

    fn forget(&mut self, seq: SeqId) {
        self.honest.forget(seq);
    }
}
