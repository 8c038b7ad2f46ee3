//! Draws that lie.

use std::cell::RefCell;

use super::{Mutant, rows::Laws};
use crate::{
    Node, TokenId,
    accept::drafted_by,
    sample::{Dist, Draws, Key, Purpose},
    tree::DraftTree,
};

/// What a lie about the draws of a drafter goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drafting {
    /// The request's temperature.
    pub(super) temperature: f64,
    /// The request's top-k.
    pub(super) top_k: usize,
}

/// What a lie about the draws of a rule goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judging<'a> {
    pub(super) tree: &'a DraftTree,
    /// The laws that the rule was told.
    pub(super) laws: &'a RefCell<Laws>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker<'a> {
    Drafter(Drafting),
    Rule(Judging<'a>),
}

/// The draws of one sequence with a variant's lie.
pub(super) struct Lying<'a> {
    pub(super) mutant: Mutant,
    /// Index of the token that the anchor's row chooses.
    pub(super) first: u64,
    pub(super) asker: Asker<'a>,
    pub(super) inner: &'a mut dyn Draws,
}

impl Lying<'_> {
    /// The key that is asked in place of `at`.
    fn key(&self, at: Key) -> Key {
        let Some((anchor, node, purpose)) = at.parts() else {
            return match self.mutant {
                Mutant::NoiseWithoutIndex => Key::token(0),
                Mutant::NoiseOfTheAnchor => Key::token(self.first),
                _ => at,
            };
        };
        match (self.mutant, purpose) {
            (Mutant::KeysWithoutAnchor, _) => Key::node(0, node, purpose),
            (Mutant::KeysByPosition, _) => {
                Key::node(anchor.wrapping_add(u64::from(node)), 0, purpose)
            }
            (Mutant::KeysWithoutNode, _) => Key::node(anchor, 0, purpose),
            (Mutant::UniformReused, Purpose::Residual) if self.recovers(node) => {
                Key::node(anchor, node, Purpose::Accept)
            }
            _ => at,
        }
    }

    /// Whether the residual draw under this node's number replaces a rejected draft.
    fn recovers(&self, node: u32) -> bool {
        match self.asker {
            Asker::Rule(judging) => (node as usize) < judging.tree.len(),
            Asker::Drafter(_) => false,
        }
    }
}

impl Draws for Lying<'_> {
    fn gumbel(&self, at: Key, token: TokenId) -> f64 {
        self.inner.gumbel(self.key(at), token)
    }

    fn choose(&self, law: &Dist, at: Key) -> TokenId {
        self.inner.choose(law, self.key(at))
    }

    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        let key = self.key(at);
        match (self.asker, at.parts()) {
            (Asker::Drafter(drafting), Some((anchor, node, Purpose::Draft))) => match self.mutant {
                Mutant::ArgmaxClaimsSoftmax => heaviest(w),
                Mutant::QWithoutTemperature => {
                    let sharp = |w: &f64| w.powf(1.0 / drafting.temperature);
                    self.inner
                        .pick(key, &w.iter().map(sharp).collect::<Vec<_>>())
                }
                Mutant::QUnfiltered => self.inner.pick(key, &top(w, drafting.top_k)),
                Mutant::SharedNoise => noisiest(w, noise(anchor, node), self.inner),
                _ => self.inner.pick(key, w),
            },
            // The variant draws this token itself.
            (Asker::Rule(_), Some((_, node, Purpose::Residual)))
                if self.mutant.recovers() && self.recovers(node) =>
            {
                w.iter().position(|w| *w > 0.0).unwrap_or(0)
            }
            _ => self.inner.pick(key, w),
        }
    }

    fn accept(&mut self, at: Key, p: f64) -> bool {
        let p = match (self.mutant, self.asker, at.parts()) {
            (Mutant::InverseRatio, ..) if p > 0.0 => 1.0 / p,
            (Mutant::SiblingUnnormalised, Asker::Rule(judging), Some((_, node, _))) => {
                judging.unnormalised(Node(node)).unwrap_or(p)
            }
            _ => p,
        };
        self.inner.accept(self.key(at), p)
    }
}

impl Judging<'_> {
    /// The chance of a node by what its rejected siblings left, which is not renormalised.
    fn unnormalised(self, node: Node) -> Option<f64> {
        let parent = self.tree.parent(node);
        let mut siblings = self.tree.children(parent).take_while(|other| *other < node);
        let laws = self.laws.borrow();
        let mut left = (1.0, laws.get(&parent)?.clone());
        siblings.try_for_each(|sibling| {
            left = left.1.residual(left.0, &drafted_by(self.tree, sibling))?;
            Some(())
        })?;
        let (token, q) = (self.tree.token(node), drafted_by(self.tree, node));
        Some(left.0 * (left.1.ln_p(token) - q.ln_p(token)).exp())
    }
}

/// The key of the noise that a draft shares with what replaces it.
pub(super) fn noise(anchor: u64, node: u32) -> Key {
    Key::token(anchor.wrapping_mul(1 << 20).wrapping_add(u64::from(node)))
}

/// The weight with the largest logarithm plus noise. The noise is that of a token, for which its place
/// stands: the same thing where the support has no gaps.
fn noisiest(w: &[f64], at: Key, draws: &dyn Draws) -> usize {
    let noisy = (0..).zip(w).map(|(id, w)| w.ln() + draws.gumbel(at, id));
    heaviest(&noisy.collect::<Vec<_>>())
}

/// The first of the largest weights.
fn heaviest(w: &[f64]) -> usize {
    let larger = |best: usize, i: usize| if w[i] > w[best] { i } else { best };
    (0..w.len()).fold(0, larger)
}

/// The `k` largest weights, all if `k` is 0, and zeros.
fn top(w: &[f64], k: usize) -> Vec<f64> {
    let mut order: Vec<usize> = (0..w.len()).collect();
    order.sort_by(|a, b| w[*b].total_cmp(&w[*a]));
    let mut kept = w.to_vec();
    if k > 0 {
        order.into_iter().skip(k).for_each(|i| kept[i] = 0.0);
    }
    kept
}
