//! What users of other engines met, each a test by its number.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use eyrie::{
    TokenId,
    accept::{Match, Rule, TargetRows},
    draft::{Ngram, NoDrafter, Pick, Script},
    kernels::Format,
    model::{Dtype, load::Checkpoint},
    report::FinishReason,
    request::{Request, RequestSpec},
    sample::{
        Chain, Counts, Dist, Draws, Fault, History, Key, Keyed, Purpose, RawParams, SamplingParams,
    },
    tree::DraftTree,
};
use eyrie_fixtures::{td, tt};
use eyrie_verifier::chi2;

use crate::support::{
    Always, Lab, Planted, Seens, Spy, constant_target, drafter, drawn, logs, params, prompts,
    random_script, request, table_target, take, target_of, td_target, to, tt_target,
};

/// No test of a law below rejects at this level.
const ALPHA: f64 = 1e-6;

/// First and second tokens of `n` choices of one request, the second decided in a round.
fn pairs(
    lab: &Lab,
    drafter: Box<dyn eyrie::draft::Drafter>,
    request: Request,
    n: usize,
) -> Vec<Vec<TokenId>> {
    let request = Request { n, ..request };
    lab.run(drafter, &[request]).tokens()
}

/// Fails if the tokens at `index` do not have the law `p`.
fn assert_law(tokens: &[Vec<TokenId>], index: usize, p: &[f64]) {
    let mut counts = vec![0u64; p.len()];
    for line in tokens {
        counts[line[index] as usize] += 1;
    }
    for (token, (count, p)) in counts.iter().zip(p).enumerate() {
        assert!(
            *p > 0.0 || *count == 0,
            "token {token} at index {index} has no mass, seen {count} times"
        );
    }
    let test = chi2::goodness_of_fit(&counts, p).unwrap();
    assert!(
        test.p_value > ALPHA,
        "index {index}: {counts:?} against {p:?}: {test:?}"
    );
}

/// Case 1: the target row gets the request's own filters, not defaults.
#[test]
fn c01_the_target_row_has_the_requests_parameters() {
    let lab = Lab::new(constant_target(&[0.6, 0.25, 0.1, 0.05]));
    let request = Request {
        params: params(|raw| (raw.temperature, raw.top_p) = (1.0, 0.8)),
        max_tokens: 6,
        ..request(&[0])
    };
    for name in ["none", "self", "self-greedy"] {
        let tokens = pairs(&lab, drafter(&lab, name), request.clone(), 4000);
        for index in 0..6 {
            assert_law(&tokens, index, &[12.0 / 17.0, 5.0 / 17.0, 0.0, 0.0]);
        }
    }
}

/// Case 2: a drafter that always proposes one token does not pull the law towards it.
#[test]
fn c02_an_argmax_draft_is_a_point_not_a_draw() {
    let p = [0.5, 0.3, 0.2];
    let lab = Lab::new(constant_target(&p));
    let request = Request {
        max_tokens: 4,
        ..drawn(&[0], 1.0, 7)
    };
    let tokens = pairs(&lab, Box::new(Always(vec![1, 1, 1, 1])), request, 4000);
    for index in 0..4 {
        assert_law(&tokens, index, &p);
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
    let lab = Lab::new(table_target(&m));
    let adversary = || lab.model_drafter(table_target(&minus), Pick::Greedy);
    let greedy = lab.run(adversary(), &[request(&[0])]);
    assert_eq!(greedy.tokens(), lab.base(&[request(&[0])]));
    assert_eq!(greedy.drafted_accepted().1, 0);
    assert!(greedy.drafted_accepted().0 > 0);
    let sampled = Request {
        max_tokens: 3,
        ..drawn(&[0], 1.0, 3)
    };
    for drafter in [adversary(), Box::new(random_script(4, 8, 11)) as Box<_>] {
        let tokens = pairs(&lab, drafter, sampled.clone(), 4000);
        for index in 0..3 {
            assert_law(&tokens, index, &p);
        }
    }
}

/// Case 5: logit bias and min-p hold on accepted drafts too.
#[test]
fn c05_bias_and_min_p_hold_in_the_draft_region() {
    let mut row = vec![0.0; 8];
    row[7] = 5.0;
    let lab = Lab::new(table_target(&vec![row; 8]));
    for t in [0.0, 1.0] {
        let request = Request {
            params: params(|raw| {
                raw.temperature = t;
                raw.logit_bias.insert(7, -100.0);
            }),
            n: 50,
            ..request(&[7])
        };
        let run = lab.run(Box::new(Always(vec![7; 4])), &[request]);
        assert!(run.tokens().iter().flatten().all(|token| *token != 7));
        assert_eq!(run.drafted_accepted().1, 0);
    }
    let lab = Lab::new(constant_target(&[0.6, 0.3, 0.1]));
    let request = Request {
        params: params(|raw| (raw.temperature, raw.min_p) = (1.0, 0.25)),
        max_tokens: 4,
        ..request(&[0])
    };
    let tokens = pairs(&lab, lab.self_drafter(), request, 4000);
    for index in 0..4 {
        assert_law(&tokens, index, &[2.0 / 3.0, 1.0 / 3.0, 0.0]);
    }
}

/// Case 6: penalties of both signs act, and act the same with drafts.
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
        let run = lab.run(lab.self_drafter(), &requests);
        assert_eq!(run.tokens(), base);
        let (drafted, accepted) = run.drafted_accepted();
        assert_eq!(drafted, accepted, "the drafter's history is the target's");
    }
}

/// Case 7: rejected drafts leave no trace in the penalties.
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
    let run = lab.run(Box::new(Always(vec![rare; 4])), &requests);
    assert_eq!(run.tokens(), base);
    assert!(run.drafted_accepted().0 > 1000);
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

/// The largest and the smallest noise there is, for chosen tokens.
#[derive(Debug)]
struct Extreme(TokenId);

impl Draws for Extreme {
    fn gumbel(&self, _: Key, token: TokenId) -> f64 {
        if token == self.0 { 36.8 } else { -3.7 }
    }

    fn pick(&mut self, _: Key, _: &[f64]) -> usize {
        unreachable!("`match` asks for noise only")
    }

    fn accept(&mut self, _: Key, _: f64) -> bool {
        unreachable!("`match` asks for noise only")
    }
}

/// One law at every row.
struct Constant(Dist);

impl TargetRows for Constant {
    fn law(&mut self, _: Option<eyrie::Node>) -> Result<Dist, Fault> {
        Ok(self.0.clone())
    }
}

/// Case 13: a token without mass is never emitted, whatever the noise; one with all the mass always
/// is; and a uniform number is never 0 or 1.
#[test]
fn c13_no_boundary_lets_a_massless_token_through() {
    let chain = Chain::new(
        params(|raw| (raw.temperature, raw.top_k) = (1.0, 1)),
        3,
        3,
        vec![],
    )
    .unwrap();
    let history = History {
        counts: &Counts::new(&[0]),
        path: &[],
    };
    let law = chain.law(&[0.0, 5.0, 4.0], &history).unwrap();
    for draft in [2, 0] {
        let tree = DraftTree::chain(&[draft]);
        let verdict = Match.decide(&tree, &mut Constant(law.clone()), 0, &mut Extreme(draft));
        assert_eq!((verdict.path.len(), verdict.next), (0, Ok(1)));
    }
    let verdict = Match.decide(
        &DraftTree::chain(&[1]),
        &mut Constant(law),
        0,
        &mut Extreme(2),
    );
    assert_eq!(verdict.path.len(), 1);
    for seed in 0..2000 {
        let mut draws = Keyed::new(seed);
        let key = Key::node(seed, 1, Purpose::Accept);
        assert!(!draws.accept(key, 0.0) && draws.accept(key, 1.0));
        assert!(draws.gumbel(Key::token(seed), 3).is_finite());
    }
}

/// Case 14: short, empty and out-of-range drafts are harmless.
#[test]
fn c14_placeholder_ids_are_rejected_drafts() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = prompts(64).iter().map(|p| drawn(p, 0.8, 4)).collect();
    let base = lab.base(&requests);
    for drafts in [
        vec![],
        vec![64],
        vec![u32::MAX; 4],
        vec![1, u32::MAX, 2, 3],
        vec![70, 1, 1],
    ] {
        let count = drafts.len();
        let run = lab.run(Box::new(Always(drafts)), &requests);
        assert_eq!(run.tokens(), base);
        let deepest = run.traces.iter().map(|trace| trace.drafted.len()).max();
        assert_eq!(deepest, Some(count));
    }
    assert_eq!(lab.run(drafter(&lab, "broken"), &requests).tokens(), base);
    let long = Script::new(vec![vec![1; 500]; 50]);
    assert_eq!(lab.run(Box::new(long), &requests).tokens(), base);
}

/// Case 15: no temperature breaks drafting; impossible ones are refused when the request is read.
#[test]
fn c15_temperatures_at_the_edge() {
    let lab = Lab::new(tt_target());
    let greedy = lab.base(&[request(&[1, 2])]);
    for t in [0.0, 1e-9] {
        assert_eq!(
            lab.run(lab.self_drafter(), &[drawn(&[1, 2], t, 9)])
                .tokens(),
            greedy
        );
    }
    let tiny = drawn(&[1, 2], 1e-4, 9);
    let run = lab.run(lab.self_drafter(), std::slice::from_ref(&tiny));
    assert_eq!(run.tokens(), lab.base(&[tiny]));
    for t in [-1.0, f64::NAN, f64::INFINITY, 100.5] {
        let error = SamplingParams::new(RawParams {
            temperature: t,
            ..RawParams::default()
        });
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("temperature") && message.contains("100"),
            "{message}"
        );
    }
}

/// Case 17: every flag changes the resolved configuration, and none is missing from that test.
#[test]
fn c17_no_flag_is_ignored() {
    crate::cli::flags::every_flag_changes_the_configuration();
    crate::cli::flags::no_flag_is_left_out();
}

/// A target that says " ha" for ever over the tiny tokenizer, and the lab around it.
fn laughing() -> (Lab, Vec<TokenId>) {
    let tokenizer = crate::support::tiny_tokenizer();
    let letters: Vec<TokenId> = [" ", "h", "a"]
        .map(|c| tokenizer.encode(c).unwrap()[0])
        .to_vec();
    let vocab = tokenizer.valid();
    let mut m = vec![vec![0.0; vocab]; vocab];
    for (i, letter) in letters.iter().enumerate() {
        m[*letter as usize][letters[(i + 1) % 3] as usize] = 9.0;
    }
    let lab = Lab::new(table_target(&m)).with(|lab| lab.text = Some(tokenizer));
    (lab, letters)
}

/// Case 18: a stop text cuts text, ids, log-probabilities, stream and usage at the same token.
#[test]
fn c18_a_stop_text_ends_everything_at_once() {
    let (lab, letters) = laughing();
    for depth in 1..=9 {
        let lab = Lab {
            options: eyrie::schedule::EngineOptions {
                depth,
                nodes: None,
                ..lab.options
            },
            ..laughing().0
        };
        let request = Request {
            stop: vec![" ha ha ha".to_owned()],
            logprobs: Some(2),
            max_tokens: 60,
            ..request(&[letters[1], letters[2]])
        };
        for name in ["self", "ngram", "none"] {
            let run = lab.run(drafter(&lab, name), std::slice::from_ref(&request));
            let choice = &run.choices[0];
            assert_eq!(choice.text.as_deref(), Some(""), "depth {depth} {name}");
            assert_eq!(choice.tokens.len(), 9);
            assert_eq!(choice.logprobs.as_ref().map(Vec::len), Some(9));
            assert_eq!(choice.usage.completion_tokens, 9);
            assert_eq!(choice.finish_reason, FinishReason::Stop);
        }
    }
}

/// Case 19: usage counts what was delivered, at every limit and wherever the end falls.
#[test]
fn c19_usage_is_what_was_delivered() {
    let base = Lab::new(tt_target());
    let long = base
        .base(&[Request {
            max_tokens: 24,
            ..drawn(&[4, 4], 1.0, 8)
        }])
        .remove(0);
    for end in [
        None,
        Some(long[1]),
        Some(long[6]),
        Some(long[13]),
        Some(long[20]),
    ] {
        let lab = Lab::new(tt_target()).with(|lab| {
            lab.eos = end.into_iter().collect();
            lab.options.depth = 5;
        });
        for max_tokens in 1..=16 {
            let request = Request {
                max_tokens,
                logprobs: Some(0),
                ..drawn(&[4, 4], 1.0, 8)
            };
            let run = lab.run(lab.self_drafter(), &[request]);
            let first = end.and_then(|end| long.iter().position(|token| *token == end));
            let ended = first.is_some_and(|at| at < max_tokens);
            let count = if ended {
                first.unwrap() + 1
            } else {
                max_tokens
            };
            let choice = &run.choices[0];
            assert_eq!(choice.tokens, long[..count]);
            assert_eq!(choice.usage.completion_tokens, count);
            assert_eq!(choice.logprobs.as_ref().map(Vec::len), Some(count));
            let reason = if ended {
                FinishReason::Stop
            } else {
                FinishReason::Length
            };
            assert_eq!(choice.finish_reason, reason);
        }
    }
}

/// Case 20: a log-probability for every token, equal to plain decoding's, bit for bit.
#[test]
fn c20_logprobs_are_those_of_plain_decoding() {
    let lab = Lab::new(tt_target());
    for t in [0.0, 1.0] {
        let request = Request {
            logprobs: Some(5),
            ..drawn(&[5, 1, 5], t, 2)
        };
        let plain = lab.run(Box::new(NoDrafter), std::slice::from_ref(&request));
        let want = plain.choices[0].logprobs.clone().unwrap();
        assert!(
            want.iter()
                .all(|entry| entry.top.len() == 5 && entry.logprob < 0.0)
        );
        for name in ["self", "script", "td"] {
            let run = lab.run(drafter(&lab, name), std::slice::from_ref(&request));
            assert_eq!(
                run.choices[0].logprobs.as_ref(),
                Some(&want),
                "{name} at {t}"
            );
        }
        // The truth, from one pass over the finished text.
        let tokens = [&[5, 1, 5][..], &plain.choices[0].tokens].concat();
        let logits = crate::support::all_logits(&*lab.target, &tokens);
        for (i, entry) in want.iter().enumerate() {
            let row = logits.row(2 + i);
            let max = row.iter().fold(f64::MIN, |m, x| m.max(f64::from(*x)));
            let sum: f64 = row.iter().map(|x| (f64::from(*x) - max).exp()).sum();
            let truth = f64::from(row[entry.id as usize]) - max - sum.ln();
            assert!((truth - entry.logprob).abs() < 1e-9, "{truth} {entry:?}");
        }
    }
}

/// Case 21: asking for log-probabilities does not switch speculation off.
#[test]
fn c21_logprobs_do_not_stop_drafting() {
    let lab = Lab::new(tt_target());
    let plain = lab.run(lab.self_drafter(), &[request(&[6, 2])]);
    let with = Request {
        logprobs: Some(3),
        ..request(&[6, 2])
    };
    let with = lab.run(lab.self_drafter(), &[with]);
    assert!(plain.drafted_accepted().0 > 0);
    assert_eq!(with.choices[0].rounds, plain.choices[0].rounds);
}

/// Case 22: log-probabilities of the prompt are not offered, and said not to be.
#[test]
fn c22_prompt_logprobs_are_refused_by_name() {
    let error = RequestSpec::from_line(r#"{"prompt_ids":[1],"prompt_logprobs":3}"#).unwrap_err();
    assert!(error.to_string().contains("prompt_logprobs"), "{error}");
}

/// Case 23: n choices are n independent samples; beams are refused by name.
#[test]
fn c23_choices_are_independent() {
    let lab = Lab::new(constant_target(&[0.125; 8]));
    let requests: Vec<_> = (0..500)
        .map(|seed| Request {
            n: 4,
            max_tokens: 2,
            ..drawn(&[0], 1.0, seed)
        })
        .collect();
    let tokens = lab.run(lab.self_drafter(), &requests).tokens();
    assert_eq!(tokens.len(), 2000);
    for index in 0..2 {
        assert_law(&tokens, index, &[0.125; 8]);
    }
    let mut cells = vec![0u64; 64];
    for request in tokens.chunks(4) {
        for (a, b) in [(0, 1), (2, 3)] {
            cells[(request[a][1] * 8 + request[b][1]) as usize] += 1;
        }
    }
    let test = chi2::goodness_of_fit(&cells, &[1.0 / 64.0; 64]).unwrap();
    assert!(test.p_value > ALPHA, "{test:?}");
    for field in ["num_beams", "best_of", "use_beam_search"] {
        let line = format!(r#"{{"prompt_ids":[1],"{field}":2}}"#);
        let error = RequestSpec::from_line(&line).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}

/// Case 25: no draft for a last token, and never more drafts than can be delivered before it.
#[test]
fn c25_the_last_token_is_not_drafted_for() {
    let lab = Lab::new(tt_target()).with(|lab| lab.options.depth = 6);
    for max_tokens in 1..=9 {
        let seen = Arc::new(Seens::default());
        let spy = Spy {
            inner: lab.self_drafter(),
            seen: Arc::clone(&seen),
        };
        let run = lab.run(
            Box::new(spy),
            &[Request {
                max_tokens,
                ..request(&[3, 3])
            }],
        );
        if max_tokens == 1 {
            assert_eq!(seen.calls.load(Ordering::Relaxed), 0);
            assert_eq!(seen.observed.load(Ordering::Relaxed), 0);
        }
        for trace in &run.traces {
            let left = max_tokens - (trace.position + 1 - 2);
            assert!(
                trace.drafted.len() < left,
                "{left} left, {} drafted",
                trace.drafted.len()
            );
        }
    }
}

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

/// Case 50: a cache that forgets is not there: a sliding window is refused at load, by name.
#[test]
fn c50_a_sliding_window_is_refused_at_load() {
    let dir = tempfile::TempDir::new().unwrap();
    tt().write_dir(dir.path()).unwrap();
    let path = dir.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["sliding_window"] = 16.into();
    std::fs::write(&path, config.to_string()).unwrap();
    let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(
        message.contains("sliding_window") && message.contains("16"),
        "{message}"
    );
}

/// Case 51: a pass of many tokens after a cached prefix sees the whole prefix.
#[test]
fn c51_many_tokens_after_a_prefix_equal_one_at_a_time() {
    for dtype in [
        to(Format::F32),
        to(Format::F16),
        to(Format::Q8_0),
        to(Format::Q4_0),
    ] {
        let target = target_of(&tt(), dtype, 2);
        let tokens: Vec<TokenId> = (0..8).map(|i| i * 5 % 64).collect();
        let one_by_one = crate::support::logits_in_chunks(&*target, &tokens, &[1; 8]);
        for chunks in [&[5, 3][..], &[8], &[1, 7], &[2, 2, 2, 2]] {
            let got = crate::support::logits_in_chunks(&*target, &tokens, chunks);
            assert_eq!(
                got.as_slice(),
                one_by_one.as_slice(),
                "{dtype:?} {chunks:?}"
            );
        }
    }
}

/// Case 53: requests that vanish mid-way take nothing with them.
#[test]
fn c53_cancelling_leaves_the_others_alone() {
    let lab = Lab::new(td_target()).with(|lab| lab.options.max_batch = 6);
    let requests: Vec<_> = (0..8)
        .map(|i| Request {
            max_tokens: 12,
            n: 1 + i % 2,
            ..drawn(&prompts(64)[i], 1.0, i as u64)
        })
        .collect();
    let base: Vec<_> = requests
        .iter()
        .map(|request| {
            lab.run(Box::new(NoDrafter), std::slice::from_ref(request))
                .tokens()
        })
        .collect();
    for round in 0..100usize {
        let mut engine = lab.engine(if round % 2 == 0 {
            lab.self_drafter()
        } else {
            Box::new(Ngram)
        });
        let handles: Vec<_> = requests
            .iter()
            .map(|r| engine.submit(r.clone()).unwrap())
            .collect();
        let gone = [round % 8, (round / 8 + 3) % 8, (round * 3 + 1) % 8];
        let (mut cancelled, mut finished) = (Vec::new(), Vec::new());
        let mut step = |engine: &mut eyrie::schedule::Engine, cancelled: &[usize]| {
            for event in engine.step() {
                if let eyrie::schedule::Event::Finished { request, report } = event {
                    let at = handles.iter().position(|handle| *handle == request);
                    let at = at.expect("a request of ours");
                    assert!(!cancelled.contains(&at), "a ghost finished");
                    assert_eq!(report.tokens, base[at][report.choice]);
                    finished.push((at, report.choice));
                }
            }
        };
        for (i, victim) in gone.iter().enumerate() {
            for _ in 0..(round * (i + 1)) % 4 {
                step(&mut engine, &cancelled);
            }
            engine.cancel(handles[*victim]);
            cancelled.push(*victim);
        }
        while !engine.is_idle() {
            step(&mut engine, &cancelled);
        }
        finished.retain(|(at, _)| !gone.contains(at));
        finished.sort_unstable();
        let left = (0..requests.len()).filter(|at| !gone.contains(at));
        let choices = left.flat_map(|at| (0..requests[at].n).map(move |choice| (at, choice)));
        assert_eq!(
            finished,
            choices.collect::<Vec<_>>(),
            "every survivor ends once"
        );
        assert_eq!(engine.cache().free(), engine.cache().capacity());
    }
}

/// Case 54: every prompt's tokens are its own at every batch size and with staggered arrivals.
#[test]
fn c54_batches_do_not_mix() {
    let lab = Lab::new(tt_target());
    let requests: Vec<_> = (0..16)
        .map(|i| Request {
            max_tokens: 10 + i,
            ..drawn(&prompts(64)[i], [0.0, 0.7, 1.3][i % 3], i as u64)
        })
        .collect();
    let base = lab.base(&requests);
    for batch in [1, 2, 3, 8, 16] {
        let lab = Lab::new(tt_target()).with(|lab| lab.options.max_batch = batch);
        for name in ["td", "ngram", "script"] {
            let mut engine = lab.engine(drafter(&lab, name));
            let (mut run, mut done) = Default::default();
            for request in &requests {
                engine.submit(request.clone()).unwrap();
                for event in engine.step() {
                    take(&mut run, &mut done, event);
                }
            }
            let rest = finish_with(&mut engine, run, done);
            assert_eq!(rest, base, "{name} at batch {batch}");
        }
    }
}

/// Steps to the end and returns the tokens in order of submission.
fn finish_with(
    engine: &mut eyrie::schedule::Engine,
    mut run: crate::support::Run,
    mut done: Vec<(
        eyrie::schedule::RequestHandle,
        usize,
        eyrie::report::ChoiceReport,
    )>,
) -> Vec<Vec<TokenId>> {
    while !engine.is_idle() {
        for event in engine.step() {
            take(&mut run, &mut done, event);
        }
    }
    done.sort_by_key(|entry| (entry.0, entry.1));
    done.into_iter()
        .map(|(_, _, report)| report.tokens)
        .collect()
}

/// Case 59: a request that opts out is never drafted for, and says zero drafts.
#[test]
fn c59_a_request_can_opt_out() {
    let lab = Lab::new(tt_target());
    let requests = [
        request(&[11, 2]),
        Request {
            drafter_off: true,
            ..request(&[12, 2])
        },
    ];
    let seen = Arc::new(Seens::default());
    let spy = Spy {
        inner: lab.self_drafter(),
        seen: Arc::clone(&seen),
    };
    let run = lab.run(Box::new(spy), &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    assert!(
        seen.prompts
            .lock()
            .unwrap()
            .iter()
            .all(|first| *first == 11)
    );
    assert!(run.choices[0].rounds.iter().any(|round| round.accepted > 0));
    assert!(run.choices[1].rounds.iter().all(|round| round.drafted == 0));
}
