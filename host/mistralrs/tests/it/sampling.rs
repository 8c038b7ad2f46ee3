//! The scores of the host's own sampler and Eyrie's are the same.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Device, Tensor};
use eyrie::sample::{
    Chain, Counts, Dry, Fault, History, Processor, RawParams, SamplingParams, Semantics,
};
use eyrie_verifier::rng::Rng;
use mistralrs_core::{
    CustomLogitsProcessor, DrySamplingParams,
    speculative_host::{Isaac64Rng, Sampler},
};
use rand::SeedableRng;

const VOCAB: usize = 60;

/// Where a processor keeps the scores that it saw last.
pub(crate) type Kept = Arc<Mutex<Vec<f32>>>;

/// The host's sampler with frequency, presence and repetition penalty, which keeps what it made of the
/// logits after these processors.
pub(crate) fn sampler(
    dry: Option<DrySamplingParams>,
    [frequency, presence, repetition]: [f32; 3],
    mut processors: Vec<Arc<dyn CustomLogitsProcessor>>,
    kept: &Kept,
) -> Sampler {
    let kept = Arc::clone(kept);
    processors.push(Arc::new(move |logits: &Tensor, _: &[u32]| {
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = logits.to_vec1()?;
        Ok(logits.clone())
    }));
    let tokenizer = tokenizers::Tokenizer::from_bytes(
        eyrie_fixtures::tokenizer::json(&[]).to_string().as_bytes(),
    );
    let tokenizer = Arc::new(tokenizer.expect("a tokenizer"));
    let sampler = Sampler::new(
        None,
        0,
        Some(tokenizer),
        Some(frequency),
        Some(presence),
        Some(repetition),
        dry,
        -1,
        1.0,
        0.0,
        processors,
    );
    sampler.expect("valid parameters")
}

/// What the host's sampler made of `logits` behind `context`.
pub(crate) fn penalised(
    sampler: &Sampler,
    kept: &Kept,
    logits: &[f32],
    context: &[u32],
) -> Vec<f32> {
    let logits = Tensor::new(logits, &Device::Cpu).expect("numbers");
    let rng = Arc::new(Mutex::new(Isaac64Rng::seed_from_u64(0)));
    let sampled = sampler.sample(logits, context, false, rng, false, true);
    sampled.expect("a token");
    kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps the scores.
#[derive(Debug, Default)]
struct Keep(Mutex<Vec<f64>>);

impl Processor for Keep {
    fn process(&self, scores: &mut [f64], _: &History<'_>) -> Result<(), Fault> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = scores.to_vec();
        Ok(())
    }
}

fn ours(params: RawParams, logits: &[f32], prompt: &[u32], output: &[u32]) -> Vec<f64> {
    let kept = Arc::new(Keep::default());
    let params = SamplingParams::new(params).expect("valid parameters");
    let chain = Chain::new(params, VOCAB, VOCAB, Vec::new()).expect("a chain");
    let chain = chain.with_processors(vec![Arc::clone(&kept) as Arc<dyn Processor>]);
    let mut counts = Counts::new(prompt);
    output.iter().for_each(|token| counts.push(*token));
    let tokens = [prompt, output].concat();
    let history = History {
        counts: &counts,
        tokens: &tokens,
        path: &[],
    };
    chain.law(logits, &history).expect("a law");
    kept.0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the host's numbers are f32"
)]
fn number(rng: &mut Rng, low: f64, high: f64) -> f32 {
    (low + (high - low) * rng.unit()) as f32
}

fn token(rng: &mut Rng, below: usize) -> u32 {
    u32::try_from(rng.below(below)).expect("a small number")
}

#[test]
fn penalties_and_dry_are_the_hosts() {
    let mut rng = Rng::new(11);
    let mut dried = 0;
    for case in 0..2_000 {
        let penalties = [
            number(&mut rng, -2.0, 2.0),
            number(&mut rng, -2.0, 2.0),
            number(&mut rng, 0.5, 2.0),
        ];
        // Few tokens, so that passages repeat; the newline and the full stop break them.
        let breakers = ["\n", ".", "a"];
        let used = 1 + rng.below(3);
        let dry = (case % 3 != 0).then(|| DrySamplingParams {
            sequence_breakers: breakers[..used]
                .iter()
                .map(|text| (*text).to_owned())
                .collect(),
            multiplier: number(&mut rng, 0.0, 2.0),
            base: number(&mut rng, 1.0, 2.0),
            allowed_length: rng.below(4),
        });
        let logits: Vec<f32> = (0..VOCAB).map(|_| number(&mut rng, -8.0, 8.0)).collect();
        let alphabet = 2 + rng.below(5);
        let length = 1 + rng.below(60);
        let context: Vec<u32> = (0..length).map(|_| 4 + token(&mut rng, alphabet)).collect();
        let (prompt, output) = context.split_at(1 + rng.below(context.len()));

        let kept = Kept::default();
        let host = sampler(dry.clone(), penalties, Vec::new(), &kept);
        let breakers = host
            .settings()
            .dry
            .map(|dry| dry.sequence_breakers.iter().copied().collect());
        let theirs = penalised(&host, &kept, &logits, &context);
        let params = RawParams {
            semantics: Semantics::Host,
            frequency_penalty: penalties[0].into(),
            presence_penalty: penalties[1].into(),
            repetition_penalty: penalties[2].into(),
            dry: dry.map(|dry| Dry {
                multiplier: dry.multiplier.into(),
                base: dry.base.into(),
                allowed_length: dry.allowed_length,
                breakers: breakers.unwrap_or_default(),
            }),
            ..RawParams::default()
        };
        let bare = RawParams {
            dry: None,
            ..params.clone()
        };
        let own = ours(params, &logits, prompt, output);
        dried += usize::from(own != ours(bare, &logits, prompt, output));
        for (id, (ours, theirs)) in own.iter().zip(&theirs).enumerate() {
            let theirs = f64::from(*theirs);
            let close = (ours - theirs).abs() <= 1e-4 * theirs.abs().max(1.0);
            assert!(
                close,
                "case {case}, id {id}: {ours} {theirs} after {context:?}"
            );
        }
    }
    assert!(dried > 500, "{dried} cases with a passage that repeats");
}
