//! Cases 1 to 11: the output law, the sampling parameters and the seeds.

use std::{collections::HashSet, sync::Arc};

use eyrie::{
    Node, TokenId,
    accept::{Block, Rejection, Rule},
    draft::Pick,
    kernels::Format,
    report::FinishReason,
    request::{Request, RequestSpec},
    sample::{Key, Purpose, RawParams, SamplingParams},
    tree::DraftTree,
};
use eyrie_fixtures::tt;

use super::{
    N, RULES,
    acceptance::{Coin, assert_near, emitted, law_of},
    assert_law, assert_not_law, choices, lab,
};
use crate::support::{
    Always, Lab, constant_target, drafter, drawn, logs, params, prompts, random_script, request,
    table_target, take, target_of, to, tt_target,
};

/// Case 1: the target row gets the request's own filters, not defaults, under every rule.
#[test]
fn c01_the_target_row_has_the_requests_parameters() {
    for (i, rule) in (1..).zip(RULES) {
        let lab = lab(&[0.6, 0.25, 0.1, 0.05], rule);
        for (j, name) in (1..).zip(["none", "self", "self-greedy", "self-drawn"]) {
            let request = Request {
                params: params(|raw| (raw.temperature, raw.top_p) = (1.0, 0.8)),
                max_tokens: 6,
                seed: 10 * i + j,
                ..request(&[0])
            };
            let tokens = choices(&lab, drafter(&lab, name), request, N);
            for index in 0..6 {
                assert_law(&tokens, index, &[12.0 / 17.0, 5.0 / 17.0, 0.0, 0.0]);
                assert_not_law(&tokens, index, &[0.6, 0.25, 0.1, 0.05]);
            }
        }
    }
}

/// Case 2: a drafter that always proposes one token does not pull the law towards it; one that
/// claims to have drawn it does, and would be seen.
#[test]
fn c02_an_argmax_draft_is_a_point_not_a_draw() {
    let (p, q, biased) = ([0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.5, 0.5, 0.0]);
    for (seed, rule) in (7..).zip(RULES) {
        let lab = lab(&p, rule);
        let request = Request {
            max_tokens: 4,
            ..drawn(&[0], 1.0, seed)
        };
        let tokens = choices(&lab, Box::new(Always(vec![1, 1, 1, 1])), request, N);
        for index in 0..4 {
            assert_law(&tokens, index, &p);
            assert_not_law(&tokens, index, &biased);
        }
    }
    let mut point = DraftTree::new();
    point.point(None, 1).unwrap();
    let mut claim = DraftTree::new();
    let at = Key::node(0, 0, Purpose::Draft);
    claim
        .drawn(None, law_of(&q), at, &mut Coin::at(0.3))
        .unwrap();
    assert_eq!(claim.token(Node(0)), 1);
    for rule in [&Rejection as &dyn Rule, &Block] {
        assert_near(&emitted(rule, &point, &p), &p);
        assert_near(&emitted(rule, &claim, &p), &biased);
    }
}

/// Case 3: greedy output equals plain decoding, also for one token repeated, in f32 and bf16.
#[test]
fn c03_greedy_output_is_that_of_plain_decoding() {
    for dtype in [to(Format::F32), to(Format::BF16)] {
        let lab = Lab::new(target_of(&tt(), dtype, 1));
        let requests: Vec<_> = prompts(64)
            .iter()
            .map(|prompt| Request {
                max_tokens: 64,
                ..request(prompt)
            })
            .collect();
        let base = lab.base(&requests);
        for name in ["self", "td", "ngram", "script"] {
            assert_eq!(
                lab.run(drafter(&lab, name), &requests).tokens(),
                base,
                "{name} {dtype:?}"
            );
        }
    }
}

/// Case 4: a drafter that is always wrong costs acceptance, not correctness.
#[test]
fn c04_an_adversary_changes_nothing() {
    let p = [0.4, 0.3, 0.2, 0.1];
    let m = vec![logs(&p); 4];
    let minus: Vec<Vec<f32>> = m
        .iter()
        .map(|row| row.iter().map(|x| -x).collect())
        .collect();
    for (i, rule) in (0..).zip(RULES) {
        let lab = Lab::new(table_target(&m)).with(|lab| lab.rule = rule);
        let adversary = |pick| lab.model_drafter(table_target(&minus), pick);
        let greedy = lab.run(adversary(Pick::Greedy), &[request(&[0])]);
        assert_eq!(greedy.tokens(), lab.base(&[request(&[0])]));
        assert_eq!(greedy.drafted_accepted().1, 0);
        assert!(greedy.drafted_accepted().0 > 0);
        let script = Box::new(random_script(4, 8, 11));
        let drafters = [adversary(Pick::Greedy), adversary(Pick::Drawn), script];
        for (j, drafter) in (0..).zip(drafters) {
            let sampled = Request {
                max_tokens: 3,
                n: N,
                ..drawn(&[0], 1.0, 30 + 3 * i + j)
            };
            let run = lab.run(drafter, &[sampled]);
            for index in 0..3 {
                assert_law(&run.tokens(), index, &p);
            }
            // The least likely token is drafted, and as likely as the target says.
            let (drafted, accepted) = run.drafted_accepted();
            assert!(j > 0 || accepted * 8 < drafted, "{accepted} of {drafted}");
        }
    }
}

/// Case 5: logit bias and min-p hold on accepted drafts too.
#[test]
fn c05_bias_and_min_p_hold_in_the_draft_region() {
    let mut row = vec![0.0; 8];
    row[7] = 5.0;
    for (seed, rule) in (50..).zip(RULES) {
        let biased = Lab::new(table_target(&vec![row.clone(); 8])).with(|lab| lab.rule = rule);
        for t in [0.0, 1.0] {
            let request = Request {
                params: params(|raw| {
                    raw.temperature = t;
                    raw.logit_bias.insert(7, -100.0);
                }),
                n: 50,
                ..request(&[7])
            };
            let run = biased.run(Box::new(Always(vec![7; 4])), &[request]);
            assert!(run.tokens().iter().flatten().all(|token| *token != 7));
            assert_eq!(run.drafted_accepted().1, 0);
        }
        let lab = lab(&[0.6, 0.3, 0.1], rule);
        let request = Request {
            params: params(|raw| (raw.temperature, raw.min_p) = (1.0, 0.25)),
            max_tokens: 4,
            seed,
            ..request(&[0])
        };
        for name in ["self", "self-drawn"] {
            let tokens = choices(&lab, drafter(&lab, name), request.clone(), N);
            for index in 0..4 {
                assert_law(&tokens, index, &[2.0 / 3.0, 1.0 / 3.0, 0.0]);
            }
        }
    }
}

/// Case 6: penalties of both signs act, and act the same with drafts, under every rule; drawn drafts
/// of the target itself are all accepted, since their history is the row's.
#[test]
fn c06_penalties_see_each_token_once() {
    let lab = Lab::new(tt_target());
    let settings: [fn(&mut RawParams); 6] = [
        |raw| raw.presence_penalty = 1.5,
        |raw| raw.presence_penalty = -1.5,
        |raw| raw.frequency_penalty = 0.9,
        |raw| raw.frequency_penalty = -0.9,
        |raw| raw.repetition_penalty = 1.3,
        |raw| raw.repetition_penalty = 0.8,
    ];
    let all = prompts(64);
    let plain: Vec<_> = all
        .iter()
        .map(|p| Request {
            max_tokens: 48,
            ..request(p)
        })
        .collect();
    let neutral = lab.base(&plain);
    for set in settings {
        let requests: Vec<_> = plain
            .iter()
            .map(|request| Request {
                params: params(set),
                ..request.clone()
            })
            .collect();
        let base = lab.base(&requests);
        assert_ne!(base, neutral, "the penalty has no effect at all");
        let warm: Vec<_> = requests.iter().map(warmed).collect();
        for rule in RULES {
            let lab = Lab::new(Arc::clone(&lab.target)).with(|lab| lab.rule = rule);
            for name in ["self", "self-drawn"] {
                let run = lab.run(drafter(&lab, name), &requests);
                assert_eq!(run.tokens(), base);
                let (drafted, accepted) = run.drafted_accepted();
                assert_eq!(drafted, accepted, "the drafter's history is the target's");
            }
            let run = lab.run(drafter(&lab, "self-drawn"), &warm[..5]);
            let (drafted, accepted) = run.drafted_accepted();
            let all = drafted == accepted || rule().name() == "match";
            assert!(all, "{accepted} of {drafted} under {}", rule().name());
        }
    }
}

/// `request` at temperature 1.
fn warmed(request: &Request) -> Request {
    let raw = RawParams {
        temperature: 1.0,
        ..(*request.params).clone()
    };
    Request {
        params: SamplingParams::new(raw).unwrap(),
        ..request.clone()
    }
}

/// Case 7: rejected drafts leave no trace in the penalties, under any rule.
#[test]
fn c07_rejected_drafts_are_not_counted() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = prompts(64)
        .iter()
        .map(|prompt| Request {
            params: params(|raw| raw.presence_penalty = 2.0),
            max_tokens: 48,
            ..request(prompt)
        })
        .collect();
    let base = lab.base(&requests);
    let said: HashSet<TokenId> = base.iter().flatten().copied().collect();
    let rare = (0..64).find(|token| !said.contains(token)).unwrap_or(63);
    for rule in RULES {
        let lab = Lab::new(Arc::clone(&lab.target)).with(|lab| lab.rule = rule);
        let run = lab.run(Box::new(Always(vec![rare; 4])), &requests);
        assert_eq!(run.tokens(), base);
        assert!(run.drafted_accepted().0 > 1000);
    }
}

/// Case 8: a multi-token ban is not a parameter here and is refused by name; min_tokens masks the
/// end for exactly that many tokens, drafts included.
#[test]
fn c08_bad_words_are_refused_and_min_tokens_is_exact() {
    let error = RequestSpec::from_line(r#"{"prompt_ids":[1],"bad_words":[[5,6]]}"#).unwrap_err();
    assert!(error.to_string().contains("bad_words"), "{error}");
    let mut row = vec![0.0; 8];
    (row[2], row[5]) = (9.0, 3.0);
    let lab = Lab::new(table_target(&vec![row; 8])).with(|lab| lab.eos = vec![2]);
    for drafts in [vec![2; 5], vec![5; 5], vec![5, 5, 2, 5, 5], vec![]] {
        for min_tokens in 0..8 {
            let request = Request {
                params: params(|raw| raw.min_tokens = min_tokens),
                ..request(&[1])
            };
            let run = lab.run(Box::new(Always(drafts.clone())), &[request]);
            let want: Vec<TokenId> = std::iter::repeat_n(5, min_tokens).chain([2]).collect();
            assert_eq!(run.tokens(), [want]);
            assert_eq!(run.choices[0].finish_reason, FinishReason::Stop);
        }
    }
}

/// Case 9: a seed is honoured, with speculation and without.
#[test]
fn c09_the_same_seed_gives_the_same_tokens() {
    let lab = Lab::new(tt_target());
    let first = lab.base(&[drawn(&[1, 2, 3], 2.0, 42)]);
    for _ in 0..20 {
        for name in ["none", "self", "td", "script"] {
            assert_eq!(
                lab.run(drafter(&lab, name), &[drawn(&[1, 2, 3], 2.0, 42)])
                    .tokens(),
                first
            );
        }
    }
    assert_ne!(lab.base(&[drawn(&[1, 2, 3], 2.0, 43)]), first);
}

/// Case 10: unseeded requests are independent, and so are the tokens of one round.
#[test]
fn c10_unseeded_requests_do_not_share_draws() {
    let lab = Lab::new(constant_target(&[1.0 / 16.0; 16]));
    let mut outcomes = HashSet::new();
    let mut equal = 0;
    for _ in 0..200 {
        let request = Request {
            max_tokens: 3,
            ..drawn(&[0], 1.0, eyrie::request::system_seed())
        };
        let tokens = lab.run(lab.self_drafter(), &[request]).tokens().remove(0);
        equal += usize::from(tokens[0] == tokens[1]);
        outcomes.insert(tokens);
    }
    assert!(
        outcomes.len() >= 185,
        "{} distinct outcomes of 200",
        outcomes.len()
    );
    assert!(
        equal <= 27,
        "first and second token equal in {equal} of 200"
    );
}

/// Case 11: neither batch, nor order, nor preemption, nor a stop that cuts a block changes the
/// tokens of a seed.
#[test]
fn c11_a_seed_does_not_see_its_surroundings() {
    let lab = Lab::new(tt_target());
    let mine = Request {
        max_tokens: 40,
        ..drawn(&[9, 8, 7], 1.1, 5)
    };
    let alone = lab.base(std::slice::from_ref(&mine)).remove(0);
    let mut batch: Vec<_> = (0..7)
        .map(|i| drawn(&prompts(64)[i], 0.9, i as u64))
        .collect();
    batch.insert(3, mine.clone());
    assert_eq!(lab.run(lab.self_drafter(), &batch).tokens()[3], alone);
    batch.reverse();
    assert_eq!(lab.run(lab.self_drafter(), &batch).tokens()[4], alone);

    let mut engine = lab.engine(drafter(&lab, "td"));
    let handle = engine.submit(mine.clone()).unwrap();
    let (mut run, mut done) = Default::default();
    for step in 0..1000 {
        if step == 3 || step == 5 {
            engine.preempt(handle);
            assert_eq!(engine.cache().free(), engine.cache().capacity());
        }
        engine
            .step()
            .into_iter()
            .for_each(|event| take(&mut run, &mut done, event));
        if engine.is_idle() {
            break;
        }
    }
    assert_eq!(done[0].2.tokens, alone);

    for cut in [5, 11, 17] {
        let end = alone[cut];
        let first = alone.iter().position(|token| *token == end).unwrap();
        let stopped = Request {
            stop_ids: vec![end],
            ..mine.clone()
        };
        assert_eq!(
            lab.run(lab.self_drafter(), &[stopped]).tokens()[0],
            alone[..=first]
        );
    }
}
