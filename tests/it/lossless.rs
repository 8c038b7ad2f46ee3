//! The trajectory: whatever drafts, the tokens are those of plain decoding; under the rules that keep
//! only its law, those of the same rounds whatever is around them.

use std::{collections::BTreeSet, sync::Arc};

use eyrie::{
    TokenId,
    draft::{Drafter, Ngram, NoDrafter},
    model::{Dtype, load::Checkpoint},
    request::Request,
};
use xtask::{
    cover,
    grid::{Config, LEVELS, Outcome, Runner},
};

use crate::support::{Lab, drawn, load, random_script, say, smollm2};

/// Every pair of levels of drafter, depth, temperature, filters, seed, batch, chunk, threads, weight
/// type and rule, over twenty prompts. The full grid is `cargo xtask grid`.
#[test]
fn a_covering_set_of_configurations_gives_the_promised_tokens() {
    let rows = cover::pairwise(&LEVELS);
    assert_eq!(cover::missing(&LEVELS, &rows), 0);
    say(&format!("{} configurations", rows.len()));
    let mut runner = Runner::new(20, 24).unwrap();
    let (mut seen, mut free, mut others) = (BTreeSet::new(), 0, 0);
    for row in rows {
        let config = Config::at(&row.try_into().unwrap());
        let (outcome, reference) = runner.compare(&config).unwrap();
        assert_eq!(outcome.tokens, reference, "{config:?}");
        match config.drafter {
            "none" => assert_eq!(outcome.drafted, 0),
            "self" => assert_accepted_whole(&outcome, &config),
            name => assert!(outcome.drafted > 0, "{name} drafts nothing"),
        }
        let plain = runner.tokens(&config.plain()).unwrap();
        if config.is_plain() {
            assert_eq!(reference, plain);
        } else {
            free += 1;
            others += usize::from(reference != plain);
        }
        seen.extend(plain);
    }
    assert!(seen.len() > 200, "only {} different outputs", seen.len());
    assert!(
        free > 0 && free == others,
        "{others} of {free} have other draws"
    );
}

/// The target as its own drafter: all drafts are accepted but those cut by an end token, which are
/// at most a round's for each request that ended early.
fn assert_accepted_whole(outcome: &Outcome, config: &Config) {
    let cut = outcome.drafted - outcome.accepted;
    let ended = outcome.tokens.iter();
    let early = ended.filter(|tokens| tokens.last() == Some(&11)).count();
    assert!(outcome.drafted > 0, "{config:?}");
    assert!(
        cut <= early * config.depth,
        "{config:?}: {cut} drafts of the target itself were rejected"
    );
}

/// Six configurations on a real model as stored, if it is there.
#[test]
fn smollm2_gives_the_plain_tokens() {
    let Some(path) = smollm2() else {
        return;
    };
    let path = path.as_path();
    let eos = Checkpoint::open(path).unwrap().eos().to_vec();
    let lab = |threads: usize| {
        Lab::new(load(path, Dtype::AsStored, threads)).with(|lab| {
            lab.eos.clone_from(&eos);
            lab.options.kv_tokens = 1024;
        })
    };
    let prompts: [&[TokenId]; 4] = [
        &[504, 3575, 282, 4649, 314],
        &[1, 9690, 198, 2683, 359],
        &[504, 3575, 282, 4649, 314, 504, 3575, 282, 4649],
        &[17, 18, 19, 17, 18, 19, 17, 18],
    ];
    let requests = |t: f64| -> Vec<Request> {
        let request = |(i, p): (usize, &&[TokenId])| Request {
            max_tokens: 32,
            ..drawn(p, t, i as u64)
        };
        prompts.iter().enumerate().map(request).collect()
    };
    let two = lab(2);
    let (cold, warm) = (two.base(&requests(0.0)), two.base(&requests(0.8)));
    type Make<'a> = &'a dyn Fn(&Lab) -> Box<dyn Drafter>;
    let ngram: Make<'_> = &|_| Box::new(Ngram);
    let script: Make<'_> = &|_| Box::new(random_script(49_152, 32, 9));
    let own: Make<'_> = &|lab| lab.self_drafter();
    let none: Make<'_> = &|_| Box::new(NoDrafter);
    for (make, depth, batch, chunk, threads, t) in [
        (ngram, 4, 4, 64, 2, 0.0),
        (ngram, 8, 1, 7, 2, 0.8),
        (script, 3, 4, 1, 2, 0.8),
        (own, 3, 4, 64, 2, 0.0),
        (own, 2, 2, 7, 1, 0.8),
        (none, 1, 4, 7, 1, 0.0),
    ] {
        let mut lab = Lab {
            target: Arc::clone(&two.target),
            ..lab(threads)
        };
        if threads == 1 {
            lab.target = load(path, Dtype::AsStored, 1);
        }
        (
            lab.options.depth,
            lab.options.max_batch,
            lab.options.prefill_chunk,
        ) = (depth, batch, chunk);
        let run = lab.run(make(&lab), &requests(t));
        assert_eq!(
            &run.tokens(),
            if t == 0.0 { &cold } else { &warm },
            "depth {depth} at {t}"
        );
    }
}
