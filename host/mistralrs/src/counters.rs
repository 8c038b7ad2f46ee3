//! What speculation did, counted token by token as the host takes them.

use eyrie::report::RoundTrace;
use mistralrs_core::SpeculativeUsage;

/// Notes that the token at `index` of a round is about to be delivered: a round that a stop cuts
/// counts what was delivered of it.
pub(crate) fn count(usage: &mut SpeculativeUsage, round: &RoundTrace, index: usize) {
    if index == 0 {
        usage.rounds += 1;
        usage.drafted += round.drafted.len();
        for position in 0..depth(round) {
            *at(&mut usage.drafted_by_position, position) += 1;
        }
        usage.draft_sec += round.ms.draft / 1e3;
        usage.verify_sec += round.ms.verify / 1e3;
        usage.accept_sec += round.ms.accept / 1e3;
        usage.commit_sec += round.ms.commit / 1e3;
    }
    if index < round.accepted {
        usage.accepted += 1;
        *at(&mut usage.accepted_by_position, index) += 1;
    }
}

/// Levels of the round's draft tree.
fn depth(round: &RoundTrace) -> usize {
    let mut levels: Vec<usize> = Vec::with_capacity(round.parents.len());
    for &parent in &round.parents {
        let above = usize::try_from(parent)
            .ok()
            .and_then(|parent| levels.get(parent));
        levels.push(above.map_or(1, |level| level + 1));
    }
    levels.into_iter().max().unwrap_or(0)
}

fn at(counts: &mut Vec<usize>, position: usize) -> &mut usize {
    if counts.len() <= position {
        counts.resize(position + 1, 0);
    }
    &mut counts[position]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(parents: &[i64], accepted: usize) -> RoundTrace {
        RoundTrace {
            request: String::new(),
            choice: 0,
            round: 0,
            position: 0,
            drafted: vec![7; parents.len()],
            parents: parents.to_vec(),
            accepted,
            next: Some(1),
            ms: Default::default(),
        }
    }

    #[test]
    fn a_tree_counts_its_levels_and_its_path() {
        let mut usage = SpeculativeUsage::default();
        let tree = round(&[-1, -1, 0, 2], 2);
        (0..3).for_each(|index| count(&mut usage, &tree, index));
        assert_eq!((usage.rounds, usage.drafted, usage.accepted), (1, 4, 2));
        assert_eq!(usage.drafted_by_position, [1, 1, 1]);
        assert_eq!(usage.accepted_by_position, [1, 1]);
    }

    #[test]
    fn a_round_that_a_stop_cuts_counts_what_was_delivered() {
        let mut usage = SpeculativeUsage::default();
        count(&mut usage, &round(&[-1, 0, 1], 3), 0);
        assert_eq!((usage.drafted, usage.accepted), (3, 1));
        assert_eq!(usage.accepted_by_position, [1]);
    }

    #[test]
    fn a_round_without_drafts_is_a_round() {
        let mut usage = SpeculativeUsage::default();
        count(&mut usage, &round(&[], 0), 0);
        assert_eq!((usage.rounds, usage.drafted, usage.accepted), (1, 0, 0));
        assert!(usage.drafted_by_position.is_empty());
    }
}
