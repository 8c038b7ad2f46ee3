//! A head with a reduced vocabulary drafts for constrained output.

use std::sync::Arc;

use eyrie::{
    draft::{
        Pick, Shape,
        eagle::{EagleDrafter, Version, VocabMap},
    },
    request::Request,
    sample::Processor,
};

use super::heads::{e3, random, table_head};
use crate::{
    processors::{Only, constrained},
    support::{Lab, drawn, prompts, table_target, tt_target},
};

fn requests(only: &Arc<Only>, t: f64) -> Vec<Request> {
    let all = prompts(64);
    all[..5]
        .iter()
        .zip(0..)
        .map(|(prompt, seed)| Request {
            id: seed.to_string(),
            processors: vec![Arc::clone(only) as Arc<dyn Processor>],
            ..drawn(prompt, t, seed)
        })
        .collect()
}

/// Half of the vocabulary of a random head: nothing is promised of how much is accepted.
#[test]
fn constrained_output_is_plain_decodings() {
    let only = Arc::new(Only { keep: 4, of: 9 });
    let target = tt_target();
    for (topk, t) in [(1, 0.0), (1, 0.9), (3, 0.0), (3, 0.9)] {
        let lab = Lab::new(Arc::clone(&target)).with(|lab| {
            lab.options.nodes = (topk > 1).then_some(10);
        });
        let requests = requests(&only, t);
        let base = lab.base(&requests);
        let shape = Shape {
            pick: Pick::Coupled,
            topk,
        };
        let drafter = EagleDrafter::new(random(e3(), 5).head(&target), shape, 4096);
        let run = lab.run(Box::new(drafter), &requests);
        assert_eq!(run.tokens(), base, "{topk} at {t}");
        let (drafted, _) = constrained(&run, &requests, &only);
        assert!(drafted > 100, "{topk} at {t}: {drafted} drafts");
    }
}

/// A head that says what the target says, of three tokens in four: where the constraint leaves a token
/// that it has, the guess is right.
#[test]
fn constrained_drafts_are_accepted() {
    let rows = [
        [1.2, 0.1, -0.7, 0.4],
        [-0.3, 0.9, 0.8, -1.0],
        [0.0, -1.2, 0.5, 1.1],
        [0.6, 0.6, -0.9, 0.2],
    ];
    let target = table_target(&rows.map(Vec::from));
    let mut head = table_head(Version::Eagle3, 4, 1.0);
    (head.config.own_head, head.config.draft_vocab) = (true, 3);
    head.config.vocab_map = VocabMap::Reduced([0, 2, 3].into());
    // The norm before it makes a vector of length 2 of the embedding.
    let columns = [0, 2, 3].map(|id| rows.map(|row| row[id] / 2.0));
    head.tensors
        .insert("lm_head.weight".to_owned(), columns.concat());
    let only = Arc::new(Only { keep: 2, of: 4 });
    let lab = Lab::new(Arc::clone(&target));
    let requests: Vec<Request> = (0..4)
        .map(|seed| Request {
            id: seed.to_string(),
            processors: vec![Arc::clone(&only) as Arc<dyn Processor>],
            ..drawn(&[0], 0.8, seed)
        })
        .collect();
    let base = lab.base(&requests);
    let drafter = EagleDrafter::new(head.head(&target), Shape::chain(Pick::Coupled), 4096);
    let run = lab.run(Box::new(drafter), &requests);
    assert_eq!(run.tokens(), base);
    let (drafted, accepted) = constrained(&run, &requests, &only);
    assert!(accepted * 4 > drafted, "{accepted} of {drafted}");
}
