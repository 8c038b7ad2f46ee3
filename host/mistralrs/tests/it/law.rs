//! The law of what comes out of the host, with a grammar, DRY and a logits processor at once.

use std::sync::{Arc, Mutex};

use candle_core::{Device, Tensor};
use eyrie_fixtures::table;
use eyrie_verifier::chi2::goodness_of_fit;
use mistralrs_core::{Constraint, CustomLogitsProcessor, DrySamplingParams, NormalRequest};

use crate::{
    in_process::{ask, completion, under},
    sampling::{penalised, sampler},
    support::{Host, Models, NAME, PLAIN},
};

const TOKENS: usize = 60;
/// The ids of a, b, c and d.
const LETTERS: std::ops::Range<usize> = 4..8;
const LENGTH: usize = 3;
const SAMPLES: usize = 1_200;
const ALPHA: f64 = 1e-6;

/// Next-token logits that depend on the last token.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn rows(factor: usize) -> Vec<Vec<f32>> {
    let logit = |last: usize, next: usize| ((last * factor + next * 7) % 11) as f32 * 0.3;
    let row = |last| (0..TOKENS).map(|next| logit(last, next)).collect();
    (0..TOKENS).map(row).collect()
}

/// Favours a letter by the parity of the context's length, and what did not come last.
fn nudge(logits: &Tensor, context: &[u32]) -> candle_core::Result<Tensor> {
    let mut logits: Vec<f32> = logits.to_vec1()?;
    logits[LETTERS.start + context.len() % 2] += 0.8;
    if let Some(last) = context.last() {
        logits[*last as usize] -= 1.5;
    }
    let width = logits.len();
    Tensor::from_vec(logits, width, &Device::Cpu)
}

fn dry() -> DrySamplingParams {
    DrySamplingParams {
        sequence_breakers: vec![".".to_owned()],
        multiplier: 0.6,
        base: 1.4,
        allowed_length: 1,
    }
}

fn request() -> NormalRequest {
    let mut request = under(
        Constraint::Regex("[abcd]{3}".to_owned()),
        completion("abcabcab"),
    );
    request.sampling_params.temperature = Some(1.0);
    request.sampling_params.max_len = Some(LENGTH);
    request.sampling_params.dry_params = Some(dry());
    request.logits_processors = Some(vec![Arc::new(nudge)]);
    request
}

/// The law of plain decoding by the host's own sampler, cell by cell.
fn law() -> Vec<f64> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let nudge: Arc<dyn CustomLogitsProcessor> = Arc::new(nudge);
    let sampler = sampler(Some(dry()), [0.0, 0.0, 1.0], vec![nudge], &kept);
    let table = rows(5);
    let prompt: Vec<u32> = "abcabcab"
        .bytes()
        .map(|byte| u32::from(byte - b'a') + 4)
        .collect();
    let cells = LETTERS.len().pow(3);
    let cell = |cell: usize| {
        let mut context = prompt.clone();
        let mut p = 1.0;
        for place in (0..LENGTH).rev() {
            let token = cell / LETTERS.len().pow(u32::try_from(place).expect("small")) % 4;
            let last = *context.last().expect("a prompt") as usize;
            let scores = penalised(&sampler, &kept, &table[last], &context);
            let weights: Vec<f64> = LETTERS.map(|id| f64::from(scores[id]).exp()).collect();
            p *= weights[token] / weights.iter().sum::<f64>();
            context.push(u32::try_from(LETTERS.start + token).expect("small"));
        }
        p
    };
    (0..cells).map(cell).collect()
}

fn cell(text: &str) -> usize {
    assert_eq!(text.len(), LENGTH, "{text:?}");
    text.bytes().fold(0, |cell, byte| {
        assert!((b'a'..=b'd').contains(&byte), "{text:?}");
        cell * 4 + usize::from(byte - b'a')
    })
}

async fn count(host: &Host, model: &str) -> (Vec<u64>, usize, usize) {
    let (mut counts, mut drafted, mut accepted) = (vec![0; 64], 0, 0);
    for _ in 0..SAMPLES / 60 {
        let asked = (0..60).map(|_| ask(&host.host, model, request()));
        for answer in futures::future::join_all(asked).await {
            counts[cell(answer.text())] += 1;
            drafted += answer.usage().drafted;
            accepted += answer.usage().accepted;
        }
    }
    (counts, drafted, accepted)
}

/// Fresh seeds, by a draft model of another law: drafts are accepted and rejected.
#[tokio::test(flavor = "multi_thread")]
async fn first_tokens_have_the_law_of_plain_decoding() {
    let law = law();
    for flags in [
        &["--drafter", "model", "--draft", "@other", "--tree", "2x2x4"][..],
        &[
            "--drafter",
            "model",
            "--draft",
            "@other",
            "--rule",
            "rejection",
        ],
    ] {
        let models = Models::of(&table(&rows(5)));
        let other = eyrie_fixtures::Fixture {
            tokenizer: true,
            ..table(&rows(3))
        };
        other
            .write_dir(&models.path().join("other"))
            .expect("it is written");
        let host = Host::start(models, flags).await;
        let (counts, drafted, accepted) = count(&host, NAME).await;
        let fit = goodness_of_fit(&counts, &law).expect("a law");
        assert!(!fit.rejects(ALPHA), "{flags:?}: {fit:?} {counts:?} {law:?}");
        assert!(
            0 < accepted && accepted < drafted,
            "{accepted} of {drafted}"
        );
        // The test would see a law without the processor, the penalty or the other table.
        let other = goodness_of_fit(&counts, &vec![1.0 / 64.0; 64]).expect("a law");
        assert!(other.rejects(ALPHA), "{other:?}");
        host.is_empty().await;
    }
    let host = Host::start(Models::of(&table(&rows(5))), &[]).await;
    let (counts, drafted, _) = count(&host, PLAIN).await;
    let fit = goodness_of_fit(&counts, &law).expect("a law");
    assert!(
        !fit.rejects(ALPHA) && drafted == 0,
        "{fit:?} {counts:?} {law:?}"
    );
}
