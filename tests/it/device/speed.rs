//! Plain against drafted decoding on a tiny and, on a GPU, a wide random model: every choice gets its
//! tokens. What it prints are figures, not a claim.

use std::{sync::Arc, time::Instant};

use candle_core::Device;
use eyrie::{
    TokenId,
    draft::{
        Drafter, NoDrafter,
        eagle::{HeadConfig, VocabMap},
    },
    model::Target,
    request::Request,
};
use eyrie_fixtures::{Dtype, Fixture, tt};

use super::{on_device, test_device};
use crate::eagle::heads::{Made, e3, random};
use crate::support::{Lab, drafter, prompts, request, say};

test_device!(plain_against_drafted);

const TOKENS: usize = 128;

/// Hidden 2048, 8 layers, bf16: 0.8 GB.
fn wide() -> Fixture {
    Fixture {
        hidden: 2048,
        intermediate: 5632,
        layers: 8,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        vocab: 8192,
        max_position: 2048,
        dtype: Dtype::BF16,
        ..tt()
    }
}

fn plain_against_drafted(device: &Device) {
    say("| model | batch | drafter | tokens/s | ms a round | accepted | same tokens |");
    say("|---|--:|---|--:|--:|--:|---|");
    let wide = (!device.is_cpu()).then(|| ("wide", wide()));
    for (name, fixture) in [("tiny", tt())].into_iter().chain(wide) {
        let model = on_device(&fixture, device);
        say(&format!("{name}: {}", model.describe()));
        let target: Arc<dyn Target> = Arc::new(model);
        for batch in [1, 8] {
            compare(name, &target, &head(&fixture), batch);
        }
    }
}

/// A random EAGLE-3 head for the target, over half of its vocabulary, by its shape in `fixture`.
fn head(fixture: &Fixture) -> Made {
    let id = |i: usize| TokenId::try_from(2 * i).expect("a small number");
    let ids: Arc<[TokenId]> = (0..fixture.vocab / 2).map(id).collect();
    let config = HeadConfig {
        hidden: fixture.hidden,
        target_hidden: fixture.hidden,
        heads: fixture.heads,
        kv_heads: fixture.kv_heads,
        head_dim: fixture.head_dim,
        intermediate: fixture.intermediate,
        vocab: fixture.vocab,
        draft_vocab: ids.len(),
        vocab_map: VocabMap::Reduced(ids),
        ..e3()
    };
    random(config, 3)
}

/// Twice each, the second is told: the first loads kernels.
fn compare(name: &str, target: &Arc<dyn Target>, head: &Made, batch: usize) {
    let requests: Vec<Request> = prompts(64)[..batch]
        .iter()
        .map(|prompt| Request {
            max_tokens: TOKENS,
            ..request(prompt)
        })
        .collect();
    let lab = Lab::new(Arc::clone(target));
    let mut plain = Vec::new();
    for drafts in ["none", "ngram", "self", "eagle"] {
        let mut told = None;
        for _ in 0..2 {
            let drafter: Box<dyn Drafter> = match drafts {
                "none" => Box::new(NoDrafter),
                "eagle" => Box::new(head.drafter(target, 1, lab.options.kv_tokens)),
                _ => drafter(&lab, drafts),
            };
            let begin = Instant::now();
            let run = lab.run(drafter, &requests);
            told = Some((begin.elapsed().as_secs_f64(), run));
        }
        let (seconds, run) = told.expect("two runs");
        let tokens = run.tokens();
        if drafts == "none" {
            plain.clone_from(&tokens);
        }
        let rounds = run.choices.iter().map(|choice| choice.rounds.len()).max();
        let count = |n: usize| f64::from(u32::try_from(n).expect("a small number"));
        let all: usize = tokens.iter().map(Vec::len).sum();
        let (drafted, accepted) = run.drafted_accepted();
        say(&format!(
            "| {name} | {batch} | {drafts} | {:.1} | {:.2} | {accepted} of {drafted} | {} |",
            count(all) / seconds,
            1e3 * seconds / count(rounds.unwrap_or(1).max(1)),
            if tokens == plain { "yes" } else { "no" },
        ));
        assert_eq!(all, TOKENS * batch);
    }
}
