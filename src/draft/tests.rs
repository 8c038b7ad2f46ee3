//! The n-gram search against its obvious twin, and the script.

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
    let params = SamplingParams::new(RawParams::default()).expect("neutral");
    let chain = Chain::new(params, 100, 100, Vec::new()).expect("no bias");
    let anchor = Anchor {
        seq: SeqId(1),
        tokens,
        round,
        depth,
        nodes: depth,
        chain: &chain,
        counts: &Counts::new(tokens),
        draws: &mut Keyed::new(0),
    };
    let mut tree = DraftTree::new();
    let grown = drafter.propose(&mut [anchor], std::slice::from_mut(&mut tree));
    grown.expect("it works");
    tree.nodes().map(|node| tree.token(node)).collect()
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
