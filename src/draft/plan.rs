//! How much to guess.

use crate::sequence::Sequence;

/// Bounds of a tree. Where there are as many nodes as levels, it is a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Most levels below the anchor.
    pub depth: usize,
    /// Most nodes.
    pub nodes: usize,
}

impl Plan {
    /// A chain of `depth` nodes.
    #[must_use]
    pub fn chain(depth: usize) -> Self {
        let nodes = depth;
        Self { depth, nodes }
    }

    /// The plan for a sequence that has a use for at most `levels` levels.
    #[must_use]
    pub(super) fn within(self, levels: usize) -> Self {
        let depth = self.depth.min(levels);
        let nodes = match depth {
            0 => 0,
            depth if self.nodes <= self.depth => self.nodes.min(depth),
            _ => self.nodes,
        };
        Self {
            depth: depth.min(nodes),
            nodes,
        }
    }

    /// The largest plan up to this one for which a tree and its anchor for each of `seqs` fit `room`
    /// rows. Decided before anything is drawn: a draft that is dropped for lack of room later on
    /// could be dropped for its value, and a drawn one must not be.
    #[must_use]
    pub fn affordable(self, seqs: &[Sequence], room: usize) -> Self {
        let rows = |plan: &Self| -> usize {
            let rows = |seq: &Sequence| 1 + plan.within(seq.draft_budget()).nodes;
            seqs.iter().map(rows).sum()
        };
        let smaller = |nodes: usize| Self {
            depth: self.depth.min(nodes),
            nodes,
        };
        let mut plans = (0..=self.nodes).rev().map(smaller);
        let fitting = plans.find(|plan| rows(plan) <= room);
        fitting.unwrap_or(Self::chain(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_cut_by_levels_and_a_tree_keeps_its_nodes() {
        let within = |depth, nodes, levels| {
            let plan = Plan { depth, nodes }.within(levels);
            (plan.depth, plan.nodes)
        };
        assert_eq!(within(4, 4, 9), (4, 4));
        assert_eq!(within(4, 4, 2), (2, 2));
        assert_eq!(within(5, 24, 2), (2, 24));
        assert_eq!(within(5, 3, 9), (3, 3));
        assert_eq!(within(5, 24, 0), (0, 0));
        assert_eq!(within(0, 0, 9), (0, 0));
    }
}
