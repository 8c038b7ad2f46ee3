//! The whole engine with its target on the device.

use std::sync::Arc;

use candle_core::Device;
use eyrie::{
    TokenId,
    accept::{Match, Rejection, Rule},
    draft::{Drafter, Pick},
    model::Target,
    request::Request,
};
use eyrie_fixtures::{table, tt};
use eyrie_verifier::chi2;

use super::{on_device, test_device};
use crate::{
    rules::{TARGET, joint},
    support::{Lab, Planted, all_logits, drafter, drawn, prompts, request},
};

test_device!(
    at_temperature_0_the_tokens_are_the_plain_ones,
    the_first_three_tokens_have_the_targets_law,
);

/// Logits closer than this are a tie where the bits of a row depend on its neighbours.
const TIE: f32 = 1e-3;

/// Plain decoding's tokens, or from the first other token on whatever follows from a tie.
fn assert_plain(target: &dyn Target, prompt: &[TokenId], ours: &[TokenId], plain: &[TokenId]) {
    let Some(at) = (0..plain.len()).find(|i| ours.get(*i) != plain.get(*i)) else {
        assert_eq!(ours, plain);
        return;
    };
    assert!(
        !target.row_invariant(),
        "{ours:?} after {prompt:?}, expected {plain:?}"
    );
    let history = [prompt, &plain[..at]].concat();
    let logits = all_logits(target, &history);
    let row = logits.row(history.len() - 1);
    let [a, b] = [ours[at], plain[at]].map(|token| row[token as usize]);
    assert!((a - b).abs() < TIE, "no tie after {history:?}: {a} and {b}");
}

fn at_temperature_0_the_tokens_are_the_plain_ones(device: &Device) {
    let target: Arc<dyn Target> = Arc::new(on_device(&tt(), device));
    let prompts = &prompts(64)[..6];
    let requests: Vec<Request> = prompts.iter().map(|prompt| request(prompt)).collect();
    let plain = Lab::new(Arc::clone(&target)).base(&requests);
    let follow = |(prompt, tokens): (&Vec<TokenId>, &Vec<TokenId>)| [&prompt[..], tokens].concat();
    let planted = || Planted {
        known: prompts.iter().zip(&plain).map(follow).collect(),
        topk: 3,
        vocab: 64,
    };
    for (chunk, batch) in [(64, 16), (3, 2)] {
        let lab = Lab::new(Arc::clone(&target)).with(|lab| {
            (lab.options.prefill_chunk, lab.options.max_batch) = (chunk, batch);
        });
        let all = ["none", "ngram", "self", "td", "script"];
        let mut drafters: Vec<(&str, Box<dyn Drafter>)> =
            all.map(|name| (name, drafter(&lab, name))).into();
        drafters.push(("planted", Box::new(planted())));
        for (name, drafter) in drafters {
            let run = lab.run(drafter, &requests);
            for ((ours, plain), prompt) in run.tokens().iter().zip(&plain).zip(prompts) {
                assert_plain(&*target, prompt, ours, plain);
            }
            let (drafted, accepted) = run.drafted_accepted();
            assert!(name == "none" || drafted > 0, "{name} drafts nothing");
            if ["self", "planted"].contains(&name) {
                assert!(accepted > 0, "{name}: nothing of {drafted} is accepted");
            }
        }
    }
}

/// N = 2,000 a rule and drafter, alpha 1e-6, 64 cells.
fn the_first_three_tokens_have_the_targets_law(device: &Device) {
    let on = |sign: f32| -> Arc<dyn Target> {
        let rows = TARGET.map(|row| row.map(|x| x * sign).to_vec());
        Arc::new(on_device(&table(&rows), device))
    };
    let law = joint(1.0, 4);
    let matching: fn() -> Box<dyn Rule> = || Box::new(Match);
    let rejecting: fn() -> Box<dyn Rule> = || Box::new(Rejection);
    let rules = [(matching, Pick::Coupled), (rejecting, Pick::Drawn)];
    for (seed, (rule, pick)) in (1..).zip(rules) {
        let lab = Lab::new(on(1.0)).with(|lab| lab.rule = rule);
        let request = Request {
            max_tokens: 6,
            n: 2_000,
            ..drawn(&[0], 1.0, 9_000 + seed)
        };
        let run = lab.run(lab.model_drafter(on(-1.0), pick), &[request]);
        let (drafted, accepted) = run.drafted_accepted();
        assert!(
            0 < accepted && accepted < drafted,
            "{accepted} of {drafted}"
        );
        let mut counts = vec![0u64; 64];
        for tokens in run.tokens() {
            let cell = tokens[..3].iter().fold(0, |cell, token| cell * 4 + token);
            counts[cell as usize] += 1;
        }
        let fit = chi2::goodness_of_fit(&counts, &law).expect("counts");
        let name = rule().name();
        assert!(!fit.rejects(1e-6), "{name}: {fit:?}");
        let tv = fit.excluded_tv(1e-6, 0.99);
        assert!(tv < 0.25, "{name}: only {tv} would have been seen");
    }
}
