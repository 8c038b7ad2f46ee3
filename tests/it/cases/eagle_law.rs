//! Cases 3, 4, 20, 38 and 51 for heads: whatever they draft, the tokens are the target's.

use std::sync::Arc;

use eyrie::{
    SeqId, TokenId,
    draft::{
        NoDrafter, Pick, Shape,
        eagle::{EagleDrafter, Version},
    },
    kernels::Format,
    model::{Rows, Wanted},
    request::Request,
};
use eyrie_fixtures::tt;

use super::{N, RULES, assert_law};
use crate::{
    eagle::{
        drafts,
        heads::{e1, e3, random, table_head},
        probe::{Plan, Probe},
    },
    heads::{goldens::Golden, parity::feed},
    support::{Lab, drawn, logs, prompts, request, table_target, target_of, to, tt_target},
};

/// Case 3: greedy output with either head is that of plain decoding, in f32 and in bf16: rows do not depend on each
/// other, so there is no tie to forgive.
#[test]
fn c03_greedy_output_with_heads() {
    for dtype in [to(Format::F32), to(Format::BF16)] {
        let lab = Lab::new(target_of(&tt(), dtype, 1));
        let requests: Vec<_> = prompts(64)
            .iter()
            .map(|prompt| Request {
                max_tokens: 64,
                ..request(prompt)
            })
            .collect();
        assert_eq!(requests.len(), 20);
        assert!(requests.iter().any(|request| request.prompt == [7; 48]));
        let base = lab.base(&requests);
        for (made, topk) in [
            (random(e1(), 31), 1),
            (random(e3(), 32), 1),
            (random(e3(), 33), 4),
        ] {
            let lab = Lab::new(Arc::clone(&lab.target)).with(|lab| {
                lab.options.nodes = (topk > 1).then_some(12);
            });
            let run = lab.run(Box::new(made.drafter(&lab.target, topk, 4096)), &requests);
            assert_eq!(
                run.tokens(),
                base,
                "{:?} {topk} {dtype:?}",
                made.config.version
            );
            assert!(run.drafted_accepted().0 > 1000);
        }
    }
}

/// Case 4: a head that always drafts the target's least likely token costs acceptance and nothing else,
/// under every rule.
#[test]
fn c04_the_adversary_head() {
    let p = [0.4, 0.3, 0.2, 0.1];
    let m = vec![logs(&p); 4];
    for version in [Version::Eagle1, Version::Eagle3] {
        for (i, rule) in (0..).zip(RULES) {
            let lab = Lab::new(table_target(&m)).with(|lab| lab.rule = rule);
            let pick = match rule().name() {
                "match" => Pick::Greedy,
                _ => Pick::Drawn,
            };
            let drafter = || {
                let head = table_head(version, 4, -1.0).head(&lab.target);
                Box::new(EagleDrafter::new(head, Shape::chain(pick), 4096))
            };
            let greedy = lab.run(drafter(), &[request(&[0])]);
            assert_eq!(greedy.tokens(), lab.base(&[request(&[0])]));
            let (drafted, accepted) = greedy.drafted_accepted();
            assert!(drafted > 20 && accepted == 0, "{accepted} of {drafted}");
            let sampled = Request {
                max_tokens: 3,
                n: N,
                ..drawn(&[0], 1.0, 40 + i)
            };
            let run = lab.run(drafter(), &[sampled]);
            for index in 0..3 {
                assert_law(&run.tokens(), index, &p);
            }
            let (drafted, accepted) = run.drafted_accepted();
            // The least likely token of four, or drawn from 1 / p: the sum of min(p, q) is 0.58.
            let most = if pick == Pick::Greedy { 0.15 } else { 0.65 };
            let float = |n: usize| f64::from(u32::try_from(n).expect("few"));
            let share = float(accepted) / float(drafted);
            assert!(share < most, "{accepted} of {drafted}");
        }
    }
}

/// Case 20: log-probabilities of tokens that an EAGLE-1 head drafted, that corrected it and that came after it are
/// the target's, from one pass over the text.
#[test]
fn c20_logprobs_with_a_head() {
    let lab = Lab::new(tt_target());
    for t in [0.0, 1.0] {
        let request = Request {
            logprobs: Some(5),
            max_tokens: 60,
            ..drawn(&[5, 1, 5], t, 2)
        };
        let plain = lab.run(Box::new(NoDrafter), std::slice::from_ref(&request));
        let drafter = random(e1(), 31).drafter(&lab.target, 1, 512);
        let run = lab.run(Box::new(drafter), std::slice::from_ref(&request));
        assert_eq!(run.choices[0].logprobs, plain.choices[0].logprobs);
        let (drafted, accepted) = run.drafted_accepted();
        assert!(
            0 < accepted && accepted < drafted,
            "{accepted} of {drafted}"
        );
        let got = run.choices[0].logprobs.as_ref().expect("asked for");
        assert_eq!(got.len(), 60);
        let tokens = [&request.prompt[..], &run.choices[0].tokens].concat();
        let logits = crate::support::all_logits(&*lab.target, &tokens);
        for (i, entry) in got.iter().enumerate() {
            let row = logits.row(2 + i);
            let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            let truth = f64::from(row[entry.id as usize]) - sum.ln();
            assert!((truth - entry.logprob).abs() < 1e-4, "{truth} {entry:?}");
            assert_eq!(entry.top.len(), 5);
        }
    }
}

/// Case 38: trees of a head whose right tokens are not the first siblings: 60 tokens as without, so the accepted
/// path was compacted in target and head, and what the head knows is what it would know of a prompt.
#[test]
fn c38_trees_of_a_head_are_compacted() {
    drafts::a_right_token_that_is_not_the_first_sibling_is_found();
    let made = drafts::planted();
    for topk in [1, 2, 4, 8] {
        for batch in [1, 5] {
            let lab = drafts::table_lab(topk).with(|lab| lab.options.max_batch = batch);
            let requests: Vec<_> = prompts(64)[..5]
                .iter()
                .map(|prompt| Request {
                    max_tokens: 60,
                    ..request(prompt)
                })
                .collect();
            let probe = Probe::new(&made, &lab.target, topk, Plan::Own);
            let run = lab.run(Box::new(probe), &requests);
            assert_eq!(
                run.tokens(),
                lab.base(&requests),
                "top {topk}, batch {batch}"
            );
        }
    }
    // A node is at the anchor's position and its depth; siblings share theirs.
    let mut rows = Rows::new();
    let parents = [None, Some(0), Some(0), Some(1), Some(2), Some(4)];
    rows.span(SeqId(0), 7, &[1, 2, 3, 4, 5, 6], &parents, Wanted::All)
        .expect("rows");
    assert_eq!(rows.positions(), [7, 8, 8, 9, 9, 10]);
}

/// Case 51: five rows and then three at once are eight rows one at a time, for heads of either version and format.
#[test]
fn c51_many_rows_of_a_head_after_a_prefix() {
    for name in [
        "eagle1-plain",
        "eagle3-plain",
        "eagle3-gguf-f16",
        "eagle3-window-4",
        "speculators-two-layers",
    ] {
        let golden = Golden::read(name);
        let head = golden.head();
        let features = head.fuse(golden.shown(&head, 0, 8));
        let tokens: Vec<TokenId> = golden.tokens[1..9].to_vec();
        let logits = |chunks: &[usize]| {
            let (mut cache, mut all, mut from) = (head.new_cache(8), Vec::new(), 0);
            for chunk in chunks {
                let rows = from..from + chunk;
                let fed = feed(
                    &head,
                    &mut cache,
                    &tokens[rows.clone()],
                    &features.gather(rows),
                );
                all.extend(fed.logits.as_slice().to_vec());
                from += chunk;
            }
            all
        };
        let one_by_one = logits(&[1; 8]);
        for chunks in [&[5, 3][..], &[8], &[1, 7]] {
            assert!(logits(chunks) == one_by_one, "{name} {chunks:?}");
        }
    }
}
