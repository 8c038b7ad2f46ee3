//! Cases 26 to 38: what a drafter must know of the target, and the tree of its guesses.

use eyrie::request::Request;

use crate::support::{Lab, Planted, drawn, prompts, request, tt_target};

/// Case 37: a fully accepted round leaves no hole in the drafter: every round accepts everything.
#[test]
fn c37_the_target_as_drafter_is_always_accepted() {
    let lab = Lab::new(tt_target());
    for t in [0.0, 0.7, 1.3] {
        let request = Request {
            max_tokens: 41,
            ..drawn(&[2, 7, 1], t, 6)
        };
        let run = lab.run(lab.self_drafter(), &[request]);
        assert_eq!(run.choices[0].rounds.len(), 8);
        for round in &run.choices[0].rounds {
            assert_eq!(
                (round.drafted, round.accepted, round.emitted),
                (4, 4, 5),
                "at {t}"
            );
        }
    }
}

/// Case 38: in a tree the right path is found wherever it lies, and the cache follows it.
#[test]
fn c38_scattered_paths_are_kept() {
    let requests: Vec<_> = prompts(64)[..5]
        .iter()
        .map(|prompt| Request {
            max_tokens: 60,
            ..request(prompt)
        })
        .collect();
    let lab = Lab::new(tt_target());
    let base = lab.base(&requests);
    let known: Vec<_> = requests
        .iter()
        .zip(&base)
        .map(|(request, output)| [&request.prompt[..], output].concat())
        .collect();
    for batch in [1, 5] {
        let lab = Lab::new(tt_target()).with(|lab| {
            lab.options.max_batch = batch;
            lab.options.nodes = Some(64);
        });
        for topk in [1, 2, 4, 8] {
            let planted = Planted {
                known: known.clone(),
                topk,
                vocab: 64,
            };
            let run = lab.run(Box::new(planted), &requests);
            assert_eq!(run.tokens(), base, "top {topk}, batch {batch}");
            let full = run
                .choices
                .iter()
                .flat_map(|choice| &choice.rounds)
                .filter(|r| r.drafted > 0);
            assert!(full.clone().count() >= 5 && full.clone().any(|r| r.accepted == 4));
            let accepted: usize = full.map(|round| round.accepted).sum();
            assert!(accepted > 5 * 40, "{accepted} accepted");
        }
    }
}
