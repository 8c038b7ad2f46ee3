//! How many drafts survive, by definitions that say what they count.
//!
//! All values are sums over rounds; rates are made of sums at the end, never averaged. A rate that
//! nothing was observed for is `None` (`null`), not 0.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::RoundCount;

/// The definitions in words, for whoever reads a result.
pub const COUNTING: &str = "A round is one pass of the target for one sequence; the pass over the prompt is none. \
drafted counts the tokens drafted, all nodes of a tree, without the token that the target adds; accepted counts \
those that were delivered. mean_acceptance_length = 1 + accepted / drafting_rounds: the token that the target adds \
(recovered or bonus) is included. accepted_per_drafting_round is the same without it. draft_acceptance_rate = \
accepted / drafted. drafted_per_round and tokens_per_round are over all rounds, also those without a draft. \
Position i is the i-th level below the last token. unconditional[i]: of the rounds with any draft, those that \
accepted i or more. conditional[i]: of the rounds that accepted i - 1, drafted position i and were not ended before \
it, those that accepted it. null: not observed.";

/// Counts of one position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    /// Rounds with a draft here.
    drafted: usize,
    /// Of them, rounds in which all before was accepted and the output went on.
    judged: usize,
    /// Rounds that accepted a draft here.
    accepted: usize,
}

/// Sums over rounds.
///
/// Invariants: `accepted <= drafted`, by position `accepted <= judged <= drafted`, and the accepted of
/// a position are no more than those of the position before. Counts only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    rounds: usize,
    drafting_rounds: usize,
    drafted: usize,
    accepted: usize,
    emitted: usize,
    at: Vec<Position>,
}

impl Acceptance {
    /// Adds a round whose drafts reached `levels` below the anchor: for a chain, `round.drafted`.
    pub fn count(&mut self, round: RoundCount, levels: usize) {
        debug_assert!(
            round.accepted <= levels && levels <= round.drafted,
            "{round:?} in {levels} levels"
        );
        self.rounds += 1;
        self.drafted += round.drafted;
        self.accepted += round.accepted;
        self.emitted += round.emitted;
        if levels == 0 {
            return;
        }
        self.drafting_rounds += 1;
        self.grow(levels);
        // Without a token after the accepted ones the output ended: what was next is not known.
        let known = round.accepted + usize::from(round.emitted > round.accepted);
        for (i, position) in self.at[..levels].iter_mut().enumerate() {
            position.drafted += 1;
            position.judged += usize::from(i < known);
            position.accepted += usize::from(i < round.accepted);
        }
    }

    /// Adds the rounds of `other`.
    pub fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.drafting_rounds += other.drafting_rounds;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
        self.emitted += other.emitted;
        self.grow(other.at.len());
        for (ours, theirs) in self.at.iter_mut().zip(&other.at) {
            ours.drafted += theirs.drafted;
            ours.judged += theirs.judged;
            ours.accepted += theirs.accepted;
        }
    }

    fn grow(&mut self, levels: usize) {
        let levels = levels.max(self.at.len());
        self.at.resize(levels, Position::default());
    }

    /// Rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Rounds with at least one draft.
    #[must_use]
    pub fn drafting_rounds(&self) -> usize {
        self.drafting_rounds
    }

    /// Tokens drafted.
    #[must_use]
    pub fn drafted(&self) -> usize {
        self.drafted
    }

    /// Drafts accepted and delivered.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Tokens delivered by rounds.
    #[must_use]
    pub fn emitted(&self) -> usize {
        self.emitted
    }

    /// 1 + accepted / rounds with a draft: the token that the target adds is included.
    #[must_use]
    pub fn mean_acceptance_length(&self) -> Option<f64> {
        self.accepted_per_drafting_round().map(|rate| 1.0 + rate)
    }

    /// Accepted drafts by round with a draft.
    #[must_use]
    pub fn accepted_per_drafting_round(&self) -> Option<f64> {
        ratio(self.accepted, self.drafting_rounds)
    }

    /// Accepted by drafted token.
    #[must_use]
    pub fn draft_acceptance_rate(&self) -> Option<f64> {
        ratio(self.accepted, self.drafted)
    }

    /// Drafted tokens by round, rounds without a draft included.
    #[must_use]
    pub fn drafted_per_round(&self) -> Option<f64> {
        ratio(self.drafted, self.rounds)
    }

    /// Tokens delivered by round, rounds without a draft included.
    #[must_use]
    pub fn tokens_per_round(&self) -> Option<f64> {
        ratio(self.emitted, self.rounds)
    }

    /// By position from 1: of the rounds with a draft, the share that accepted so many or more.
    #[must_use]
    pub fn unconditional(&self) -> Vec<Option<f64>> {
        let rate = |position: &Position| ratio(position.accepted, self.drafting_rounds);
        self.at.iter().map(rate).collect()
    }

    /// By position from 1: of the rounds in which all before was accepted and this position was
    /// drafted and judged, the share that accepted it.
    #[must_use]
    pub fn conditional(&self) -> Vec<Option<f64>> {
        let rate = |position: &Position| ratio(position.accepted, position.judged);
        self.at.iter().map(rate).collect()
    }

    fn column(&self, of: fn(&Position) -> usize) -> Vec<usize> {
        self.at.iter().map(of).collect()
    }
}

/// Rates with the sums that they are made of.
impl Serialize for Acceptance {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = to.serialize_struct("acceptance", 15)?;
        out.serialize_field("rounds", &self.rounds)?;
        out.serialize_field("drafting_rounds", &self.drafting_rounds)?;
        out.serialize_field("drafted", &self.drafted)?;
        out.serialize_field("accepted", &self.accepted)?;
        out.serialize_field("emitted", &self.emitted)?;
        out.serialize_field("mean_acceptance_length", &self.mean_acceptance_length())?;
        let per_round = self.accepted_per_drafting_round();
        out.serialize_field("accepted_per_drafting_round", &per_round)?;
        out.serialize_field("draft_acceptance_rate", &self.draft_acceptance_rate())?;
        out.serialize_field("drafted_per_round", &self.drafted_per_round())?;
        out.serialize_field("tokens_per_round", &self.tokens_per_round())?;
        out.serialize_field("unconditional", &self.unconditional())?;
        out.serialize_field("conditional", &self.conditional())?;
        out.serialize_field("position_drafted", &self.column(|at| at.drafted))?;
        out.serialize_field("position_judged", &self.column(|at| at.judged))?;
        out.serialize_field("position_accepted", &self.column(|at| at.accepted))?;
        out.end()
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn ratio(part: usize, of: usize) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rounds: &[(usize, usize, usize)]) -> Acceptance {
        let mut all = Acceptance::default();
        for (drafted, accepted, emitted) in rounds {
            let round = RoundCount {
                drafted: *drafted,
                accepted: *accepted,
                emitted: *emitted,
            };
            all.count(round, *drafted);
        }
        all
    }

    #[test]
    fn a_round_cut_by_an_end_says_nothing_of_the_next_position() {
        let cut = of(&[(3, 1, 1), (3, 2, 3)]);
        assert_eq!(cut.conditional(), [Some(1.0), Some(1.0), Some(0.0)]);
        assert_eq!(cut.unconditional(), [Some(1.0), Some(0.5), Some(0.0)]);
    }

    #[test]
    fn what_was_not_drafted_was_not_observed() {
        let none = of(&[(0, 0, 1), (0, 0, 1)]);
        assert_eq!(none.mean_acceptance_length(), None);
        assert_eq!(none.draft_acceptance_rate(), None);
        assert_eq!(none.tokens_per_round(), Some(1.0));
        assert!(none.unconditional().is_empty());
        // Position 2 was drafted, and never judged.
        let stuck = of(&[(2, 0, 1)]);
        assert_eq!(stuck.conditional(), [Some(0.0), None]);
        assert_eq!(stuck.unconditional(), [Some(0.0), Some(0.0)]);
    }

    #[test]
    fn a_trees_positions_are_its_levels() {
        let mut tree = Acceptance::default();
        let round = RoundCount {
            drafted: 6,
            accepted: 1,
            emitted: 2,
        };
        tree.count(round, 2);
        assert_eq!(tree.conditional(), [Some(1.0), Some(0.0)]);
        assert_eq!(tree.draft_acceptance_rate(), Some(1.0 / 6.0));
    }

    #[test]
    fn sums_are_added_not_rates() {
        let (mut a, b) = (of(&[(4, 4, 5)]), of(&[(1, 0, 1), (1, 0, 1), (0, 0, 1)]));
        a.add(&b);
        assert_eq!(a, of(&[(4, 4, 5), (1, 0, 1), (1, 0, 1), (0, 0, 1)]));
        assert_eq!(a.mean_acceptance_length(), Some(1.0 + 4.0 / 3.0));
    }
}
