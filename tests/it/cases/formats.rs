//! Cases 39 to 48: checkpoints, vocabularies and tokenizers.

use eyrie::{draft::Pick, model::Dtype};
use eyrie_fixtures::{td, tt};

use crate::support::{Lab, drawn, prompts, target_of};

/// Case 47: padding of the target's and of the drafter's vocabulary is never generated.
#[test]
fn c47_padded_vocabularies_fit_each_other() {
    for (target_vocab, draft_vocab) in [(64, 72), (72, 64)] {
        let padded = |fixture: eyrie_fixtures::Fixture, vocab| {
            target_of(
                &eyrie_fixtures::Fixture { vocab, ..fixture },
                Dtype::AsStored,
                1,
            )
        };
        let lab = Lab::new(padded(tt(), target_vocab)).with(|lab| lab.valid = Some(60));
        let draft = padded(td(), draft_vocab);
        let requests: Vec<_> = (0..10)
            .map(|i| drawn(&prompts(60)[i], 2.0, i as u64))
            .collect();
        let base = lab.base(&requests);
        let run = lab.run(lab.model_drafter(draft, Pick::Coupled), &requests);
        assert_eq!(run.tokens(), base);
        assert!(run.tokens().iter().flatten().all(|token| *token < 60));
        assert!(
            run.traces
                .iter()
                .flat_map(|trace| &trace.drafted)
                .all(|token| *token < 60)
        );
        assert!(run.drafted_accepted().0 > 100);
    }
}

/// Case 47, on the command line: both ways, with one tokenizer, no warning.
#[test]
fn c47_padded_vocabularies_are_no_mismatch() {
    crate::cli::tokenizers::padded_vocabularies_work_both_ways();
}

/// Case 48: a tokenizer with a longer tail is allowed with a warning; other content is refused,
/// unless told otherwise.
#[test]
fn c48_a_longer_tail_warns_and_other_content_is_refused() {
    crate::cli::tokenizers::a_longer_tail_warns_and_other_content_is_refused();
}
