//! A drafter can only cost its drafts: it ends before the request does, or talks nonsense, and no
//! token changes.

use std::sync::Arc;

use eyrie::{draft::Pick, model::Dtype, request::Request};
use eyrie_fixtures::{Fixture, td};

use crate::support::{Lab, Poisoned, drawn, prompts, target_of, td_target, tt_target};

fn requests() -> Vec<Request> {
    let request = |i: usize| Request {
        max_tokens: 40,
        ..drawn(&prompts(64)[i], [0.0, 0.8][i % 2], i as u64)
    };
    (0..8).map(request).collect()
}

/// Where the draft model's positions end, the request goes on without drafts.
#[test]
fn a_draft_model_of_fewer_positions_stops_drafting() {
    const POSITIONS: usize = 30;
    let lab = Lab::new(tt_target());
    let base = lab.base(&requests());
    for chunk in [3, 64] {
        let lab = Lab::new(tt_target()).with(|lab| lab.options.prefill_chunk = chunk);
        let short = Fixture {
            max_position: POSITIONS,
            ..td()
        };
        let short = target_of(&short, Dtype::AsStored, 1);
        let run = lab.run(lab.model_drafter(short, Pick::Coupled), &requests());
        assert_eq!(run.tokens(), base);
        let (mut before, mut beyond) = (0, 0);
        for trace in &run.traces {
            // The anchor at this position is the last token fed before the first draft.
            let fed = trace.position + 1;
            if fed > POSITIONS {
                assert_eq!(trace.drafted, [0; 0], "at {fed} tokens");
                beyond += 1;
            } else {
                let most = POSITIONS + 1 - fed;
                assert!(
                    trace.drafted.len() <= most,
                    "{most} positions left at {fed} tokens"
                );
                before += usize::from(!trace.drafted.is_empty());
            }
        }
        assert!(before > 20 && beyond > 20, "{before} and {beyond}");
    }
}

/// A drafter whose cache is full guesses nothing, and guesses again when there is room.
#[test]
fn a_drafter_without_room_only_loses_its_drafts() {
    let lab = Lab::new(tt_target());
    let base = lab.base(&requests());
    for slots in [1, 30, 100] {
        let drafter = eyrie::draft::ModelDrafter::new(td_target(), Pick::Coupled, slots, 7);
        let run = lab.run(Box::new(drafter), &requests());
        assert_eq!(run.tokens(), base, "{slots} slots");
    }
}

/// Logits that are no numbers close a guess.
#[test]
fn a_draft_model_of_no_numbers_only_loses_its_drafts() {
    let lab = Lab::new(tt_target());
    let base = lab.base(&requests());
    for after in [base[0][5], base[3][8]] {
        let inner = tt_target();
        let poisoned = Arc::new(Poisoned { inner, after });
        let run = lab.run(lab.model_drafter(poisoned, Pick::Coupled), &requests());
        assert_eq!(run.tokens(), base);
        let cut = |drafted: &[u32]| drafted.contains(&after) && drafted.last() != Some(&after);
        assert!(run.traces.iter().all(|trace| !cut(&trace.drafted)));
        let (drafted, accepted) = run.drafted_accepted();
        assert!(
            drafted > 100 && drafted == accepted,
            "{accepted} of {drafted}"
        );
    }
}
