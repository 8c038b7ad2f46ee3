//! From a host's sequence to a request of Eyrie, or the reason why it is refused.

use std::{collections::BTreeMap, sync::Arc};

use eyrie::{
    request::Request,
    sample::{Dry, Processor, RawParams, SamplingParams, Semantics, derive_choice},
};
use mistralrs_core::speculative_host::{SamplerSettings, Sequence, SequenceRecognizer};

use crate::{custom::Custom, grammar::Grammar};

/// What the pipeline knows beside the sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// The seed of the sequence's request.
    pub(crate) seed: u64,
    /// Whether to draft for it.
    pub(crate) speculate: bool,
    /// The model's end tokens end it.
    pub(crate) stops_at_eos: bool,
    /// The model's end tokens.
    pub(crate) eos: &'a [u32],
    /// Positions of the model.
    pub(crate) context: usize,
}

/// The request of a sequence before its first step. Its stop strings stay with the host, which cuts
/// its own text.
///
/// # Errors
/// The name of what it asks for and cannot have.
pub(crate) fn request(seq: &mut Sequence, given: Circumstances<'_>) -> Result<Request, String> {
    refuse(seq)?;
    let best_of = seq.get_mut_group().best_of().is_some();
    let sampler = seq.sampler();
    let settings = sampler.settings();
    let logprobs = match (seq.return_logprobs(), best_of) {
        (true, _) => Some(settings.top_n_logprobs),
        (false, true) => Some(0),
        (false, false) => None,
    };
    let params = params(&settings)?;
    let mut processors: Vec<Arc<dyn Processor>> = Vec::new();
    for processor in settings.logits_processors {
        processors.push(Arc::new(Custom(Arc::clone(processor))));
    }
    if let SequenceRecognizer::Llguidance(matcher) = &seq.recognizer {
        processors.push(Arc::new(Grammar::new(matcher.deep_clone(), given.eos)));
    }
    let prompt = seq.get_toks().to_vec();
    let room = (given.context + 1).saturating_sub(prompt.len()).max(1);
    seq.set_max_len(room);
    let choice = seq.get_response_index() as u64;
    Ok(Request {
        id: format!("{}.{choice}", seq.id()),
        prompt,
        params,
        max_tokens: seq.max_len().unwrap_or(room).max(1),
        stop: Vec::new(),
        stop_ids: seq.stop_tokens().to_vec(),
        ignore_eos: !given.stops_at_eos,
        seed: derive_choice(given.seed, choice),
        n: 1,
        logprobs,
        drafter_off: !given.speculate,
        processors,
    })
}

fn refuse(seq: &Sequence) -> Result<(), String> {
    let asked = [
        ("return_raw_logits", seq.wants_raw_logits()),
        ("images", seq.has_images()),
        ("audios", seq.has_audios()),
        ("videos", seq.has_videos()),
        ("adapters (X-LoRA)", seq.is_xlora()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(format!(
            "{name}: not with Eyrie's pipeline, which decodes text"
        )),
        None => Ok(()),
    }
}

/// The sampling parameters, in the host's meaning.
fn params(asked: &SamplerSettings<'_>) -> Result<SamplingParams, String> {
    let bias = asked.logits_bias.into_iter().flatten();
    let dry = asked.dry.as_ref().map(|dry| Dry {
        multiplier: dry.multiplier.into(),
        base: dry.base.into(),
        allowed_length: dry.allowed_length,
        breakers: dry.sequence_breakers.iter().copied().collect(),
    });
    let raw = RawParams {
        semantics: Semantics::Host,
        temperature: asked.temperature.unwrap_or(0.0),
        top_k: usize::try_from(asked.top_k).unwrap_or(0),
        top_p: asked.top_p,
        min_p: asked.min_p,
        repetition_penalty: asked.repetition_penalty.unwrap_or(1.0).into(),
        presence_penalty: asked.presence_penalty.unwrap_or(0.0).into(),
        frequency_penalty: asked.frequency_penalty.unwrap_or(0.0).into(),
        logit_bias: bias
            .map(|(id, bias)| (*id, f64::from(*bias)))
            .collect::<BTreeMap<_, _>>(),
        dry,
        min_tokens: 0,
    };
    SamplingParams::new(raw).map_err(|error| error.to_string())
}
