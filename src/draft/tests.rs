//! The n-gram search against its obvious twin, the script, and one drafter before another.

use proptest::prelude::*;

use super::*;
use crate::sample::{Keyed, RawParams, SamplingParams};

/// Tries every shift and counts by hand.
fn best_period_naive(tokens: &[TokenId]) -> Option<usize> {
    let len_at = |shift: usize| {
        let pairs = tokens[..tokens.len() - shift]
            .iter()
            .rev()
            .zip(tokens.iter().rev());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let mut best = None;
    for shift in 1..tokens.len() {
        if len_at(shift) > best.map_or(1, len_at) {
            best = Some(shift);
        }
    }
    best
}

proptest! {
    #[test]
    fn the_longest_suffix_is_found(tokens in prop::collection::vec(0u32..3, 0..40)) {
        prop_assert_eq!(ngram::best_period(&tokens), best_period_naive(&tokens));
    }
}

/// What `drafter` drafts after `tokens` in round `round`.
fn drafted(
    drafter: &mut dyn Drafter,
    tokens: &[TokenId],
    round: usize,
    depth: usize,
) -> Vec<TokenId> {
    let mut all = drafted_at_once(drafter, tokens, &[round], depth);
    all.pop().expect("one tree")
}

/// The same for a batch, one sequence a round.
fn drafted_at_once(
    drafter: &mut dyn Drafter,
    tokens: &[TokenId],
    rounds: &[usize],
    depth: usize,
) -> Vec<Vec<TokenId>> {
    let params = SamplingParams::new(RawParams::default()).expect("neutral");
    let chain = Chain::new(params, 100, 100, Vec::new()).expect("no bias");
    let counts = Counts::new(tokens);
    let mut draws = vec![Keyed::new(0); rounds.len()];
    let anchors = rounds.iter().zip(0..).zip(&mut draws);
    let anchors = anchors.map(|((round, seq), draws)| Anchor {
        seq: SeqId(seq),
        tokens,
        round: *round,
        depth,
        nodes: depth,
        chain: &chain,
        counts: &counts,
        draws,
    });
    let mut trees = vec![DraftTree::new(); rounds.len()];
    let grown = drafter.propose(&mut anchors.collect::<Vec<_>>(), &mut trees);
    grown.expect("it works");
    let tokens = |tree: &DraftTree| tree.nodes().map(|node| tree.token(node)).collect();
    trees.iter().map(tokens).collect()
}

#[test]
fn ngram_follows_the_latest_longest_match_and_goes_on_in_cycles() {
    let ngram = &mut Ngram;
    assert_eq!(drafted(ngram, &[1, 2, 3, 4, 1, 2], 0, 3), [3, 4, 1]);
    assert_eq!(drafted(ngram, &[1, 2, 3, 1, 2, 4, 1, 2], 0, 2), [4, 1]);
    assert_eq!(drafted(ngram, &[9, 1, 2, 3, 1, 2, 9, 1, 2], 0, 2), [3, 1]);
    assert_eq!(drafted(ngram, &[7; 48], 0, 5), [7; 5]);
    assert_eq!(drafted(ngram, &[1, 2, 1], 0, 4), [0; 0]);
    assert_eq!(drafted(ngram, &[5], 0, 4), [0; 0]);
}

#[test]
fn a_script_goes_round_by_round_and_is_cut() {
    let mut script = Script::from_json("[[1,2,3],[],[4]]").expect("a script");
    assert_eq!(drafted(&mut script, &[0], 0, 2), [1, 2]);
    assert_eq!(drafted(&mut script, &[0], 1, 2), [0; 0]);
    assert_eq!(drafted(&mut script, &[0], 2, 2), [4]);
    assert_eq!(drafted(&mut script, &[0], 3, 2), [0; 0]);
    for wrong in [
        "",
        "{}",
        "[1]",
        "[[-1]]",
        "[[1.5]]",
        "[[4294967296]]",
        "[[1]",
    ] {
        let message = Script::from_json(wrong).expect_err(wrong).to_string();
        assert!(
            message.starts_with("drafter: script: ") && message.contains("accepted"),
            "{message}"
        );
    }
}

#[test]
fn the_second_is_asked_for_exactly_those_that_the_first_leaves_empty() {
    let script = |lists: &str| Box::new(Script::from_json(lists).expect("a script"));
    let first = script("[[],[5],[],[6,7],[]]");
    let then = script("[[1],[2],[3],[4],[]]");
    let mut both = FirstOf::new(first, then);
    let all = drafted_at_once(&mut both, &[0], &[0, 1, 2, 3, 4, 5], 2);
    let expected: [&[TokenId]; 6] = [&[1], &[5], &[3], &[6, 7], &[], &[]];
    assert_eq!(all, expected);
    let all = drafted_at_once(&mut both, &[0], &[3, 1], 1);
    assert_eq!(all, [[6], [5]]);
}
