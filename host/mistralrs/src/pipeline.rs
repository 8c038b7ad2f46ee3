//! The host's pipeline: the engine's steps, told to the host token by token.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use candle_core::{Device, Result, bail};
use eyrie::{report::Logprob, request::system_seed, schedule::RequestHandle};
use futures::FutureExt;
use mistralrs_core::{
    IsqType, ModelCategory, ModelGenerationDefaults, Response, SpeculativeUsage, TopLogprob,
    speculative_host::{
        AnyMoePipelineMixin, CacheBackendMetadata, CacheManagerMixin, ChatTemplate, DeviceMapper,
        EitherCache, ForwardInputsResult, GeneralMetadata, Isaac64Rng, IsqPipelineMixin, Logprobs,
        MetadataMixin, Pipeline, PreProcessingMixin, PrefixCacheManagerV2, Processor, Sampler,
        Sequence, SequenceState, StopReason, finish_or_add_toks_to_seq,
    },
};
use tokenizers::Tokenizer;

use crate::{
    asked::{self, Circumstances},
    chunks::Alone,
    counters,
    metrics::Metrics,
    prompts::Prompts,
    runner::{Batch, Shared, Token},
};

/// What a pipeline is made of.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) speculate: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) runner: Shared,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) metadata: Arc<GeneralMetadata>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Arc<ChatTemplate>,
    pub(crate) cache: EitherCache,
    pub(crate) device: Device,
}

/// A pipeline of mistral.rs whose tokens come from Eyrie's round.
///
/// A sequence is known by its sampler, which it alone owns: numbers start again with each engine of
/// the host, and a sequence can vanish without a last step.
pub struct EyriePipeline {
    parts: Parts,
    known: Mutex<HashMap<usize, Known>>,
}

struct Known {
    owner: Weak<Sampler>,
    /// None: it ended in a prompt step, after which the host takes it for running.
    handle: Option<RequestHandle>,
}

/// One call of [`Pipeline::step`].
struct Step<'a> {
    is_prompt: bool,
    eos: Option<&'a [u32]>,
}

impl std::fmt::Debug for EyriePipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("EyriePipeline");
        out.field("name", &self.parts.name)
            .field("speculate", &self.parts.speculate);
        out.finish_non_exhaustive()
    }
}

impl EyriePipeline {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            parts,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Known>> {
        self.known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Drops what belongs to sequences that are gone, whichever pipeline had them.
    fn forget_gone(&self) {
        self.known()
            .retain(|_, known| known.owner.strong_count() > 0);
        self.parts.runner.lock().forget_gone();
    }

    /// Drops what belongs to `seq`; after a prompt step it must be told again that it has ended.
    fn forget(&self, seq: &mut Sequence, step: &Step<'_>) {
        let owner = seq.sampler();
        let mut known = self.known();
        let handle = known.remove(&key(&owner)).and_then(|known| known.handle);
        if step.is_prompt {
            let owner = Arc::downgrade(&owner);
            known.insert(
                key_of(&owner),
                Known {
                    owner,
                    handle: None,
                },
            );
        }
        drop(known);
        if let Some(handle) = handle {
            self.parts.runner.lock().cancel(handle);
        }
    }

    /// The engine's name of a sequence that goes on; one that is new is submitted. `None`: it has ended.
    async fn meet(&self, seq: &mut Sequence, step: &Step<'_>) -> Option<RequestHandle> {
        let owner = seq.sampler();
        let known = self.known().get(&key(&owner)).map(|known| known.handle);
        if known == Some(None) {
            self.known().remove(&key(&owner));
            seq.set_state(SequenceState::Done(StopReason::Canceled));
            return None;
        }
        if seq.responder().is_closed() {
            self.forget(seq, step);
            seq.set_state(SequenceState::Done(StopReason::Canceled));
            return None;
        }
        if let Some(handle) = known.flatten() {
            return Some(handle);
        }
        match self.submit(seq, step) {
            Ok(handle) => {
                let owner = Arc::downgrade(&owner);
                let handle = Some(handle);
                self.known().insert(key_of(&owner), Known { owner, handle });
                handle
            }
            Err(reason) => {
                self.fail(seq, step, Response::ValidationError(reason.into()))
                    .await;
                None
            }
        }
    }

    fn submit(
        &self,
        seq: &mut Sequence,
        step: &Step<'_>,
    ) -> std::result::Result<RequestHandle, String> {
        let seed = {
            let seed = || self.parts.seed.unwrap_or_else(system_seed);
            let mut group = seq.get_mut_group();
            let usage = group.speculative.get_or_insert_with(|| SpeculativeUsage {
                seed: seed(),
                ..SpeculativeUsage::default()
            });
            usage.seed
        };
        let given = Circumstances {
            seed,
            speculate: self.parts.speculate,
            stops_at_eos: step.eos.is_some(),
            eos: &self.parts.metadata.eos_tok,
            context: self.parts.metadata.max_seq_len,
        };
        let request = asked::request(seq, given)?;
        let owner = Arc::downgrade(&seq.sampler());
        let handle = self.parts.runner.lock().submit(request, owner)?;
        self.parts.metrics.begun(&self.parts.name);
        Ok(handle)
    }

    /// Passes of the engine until each of `asked` has something, if it has to (`now`), else one if some
    /// lack it.
    fn advance(&self, asked: &[RequestHandle], now: &[RequestHandle]) {
        let mut runner = self.parts.runner.lock();
        if asked.iter().any(|handle| runner.lacks(*handle)) {
            runner.step();
        }
        while now.iter().any(|handle| runner.lacks(*handle)) {
            runner.step();
        }
    }

    /// Tells the host what the engine has for a sequence.
    async fn deliver(
        &self,
        prefix_cacher: &mut PrefixCacheManagerV2,
        seq: &mut Sequence,
        handle: RequestHandle,
        step: &Step<'_>,
    ) -> Result<()> {
        let outbox = self.parts.runner.lock().take(handle);
        for Batch { tokens, round } in outbox.batches {
            for (index, token) in tokens.into_iter().enumerate() {
                let round = round.as_ref().map(|round| (round, index));
                self.parts.metrics.token(&self.parts.name, round);
                if let Some(usage) = &mut seq.get_mut_group().speculative {
                    usage.completion_tokens += 1;
                    if let Some((round, index)) = round {
                        counters::count(usage, round, index);
                    }
                }
                self.add(prefix_cacher, seq, token, step).await?;
                if has_ended(seq) {
                    self.forget(seq, step);
                    return Ok(());
                }
            }
        }
        let reason = match outbox.end {
            None => return Ok(()),
            Some(Err(reason)) => reason,
            Some(Ok(reason)) => format!("the engine ended ({reason:?}) where the host goes on"),
        };
        self.fail(seq, step, Response::InternalError(reason.into()))
            .await;
        Ok(())
    }

    /// Appends one token to the host's sequence. A client that has gone, or a text that the host cannot
    /// take, ends this sequence alone.
    async fn add(
        &self,
        prefix_cacher: &mut PrefixCacheManagerV2,
        seq: &mut Sequence,
        (token, logprob): Token,
        step: &Step<'_>,
    ) -> Result<()> {
        let text = |id: u32| {
            self.parts
                .tokenizer
                .decode(&[id], false)
                .map_err(candle_core::Error::msg)
        };
        let logprobs = self.logprobs(seq, token, logprob, &text)?;
        mend_text(seq);
        let ends = seq.is_done(token, step.eos, self.parts.metadata.max_seq_len);
        let alone = ends.is_none().then(|| Alone::begin(seq)).flatten();
        let added = finish_or_add_toks_to_seq(self, prefix_cacher, seq, logprobs, step.eos);
        let added = AssertUnwindSafe(added).catch_unwind().await;
        if let Some(alone) = alone {
            alone.end(seq);
        }
        let reason = match added {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(_)) if seq.responder().is_closed() => {
                seq.set_state(SequenceState::Done(StopReason::Canceled));
                return Ok(());
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the host panicked over a token".to_owned(),
        };
        self.fail(seq, step, Response::InternalError(reason.into()))
            .await;
        Ok(())
    }

    /// The host's record of a token: natural logarithms of the law it was chosen by.
    fn logprobs(
        &self,
        seq: &Sequence,
        token: u32,
        logprob: Option<Logprob>,
        text: &dyn Fn(u32) -> Result<String>,
    ) -> Result<Logprobs> {
        #[expect(clippy::cast_possible_truncation, reason = "the host reports f32")]
        let narrow = |x: f64| x as f32;
        let top = logprob.as_ref().map_or(&[][..], |logprob| &logprob.top[..]);
        let top = top.iter().map(|&(id, x)| {
            Ok(TopLogprob {
                token: id,
                logprob: narrow(x),
                bytes: Some(text(id)?),
            })
        });
        let top = top.collect::<Result<Vec<_>>>()?;
        Ok(Logprobs {
            token,
            logprob: logprob.map_or(0.0, |logprob| narrow(logprob.logprob)),
            bytes: Some(text(token)?),
            top_logprobs: seq.return_logprobs().then_some(top),
        })
    }

    /// Ends one sequence with a message to its client.
    async fn fail(&self, seq: &mut Sequence, step: &Step<'_>, response: Response) {
        if seq.responder().send(response).await.is_err() {
            tracing::warn!("request {}: the client has gone", seq.id());
        }
        self.forget(seq, step);
        seq.set_state(SequenceState::Error);
    }
}

/// True once nothing more may be added.
fn has_ended(seq: &Sequence) -> bool {
    matches!(
        seq.getstate(),
        SequenceState::Done(_) | SequenceState::Error
    )
}

fn key(owner: &Arc<Sampler>) -> usize {
    Arc::as_ptr(owner).addr()
}

fn key_of(owner: &Weak<Sampler>) -> usize {
    owner.as_ptr().addr()
}

/// The host searches stop strings in bytes and cuts the text with replacement characters at the place
/// it found: where bytes that are no text come before one, it would cut inside a character, or panic.
/// With the replacements in the bytes both are the same place.
fn mend_text(seq: &mut Sequence) {
    let found = seq.stop_strings().iter().any(|stop| {
        let bytes = seq.completion_bytes();
        bytes
            .windows(stop.len().max(1))
            .any(|window| window == stop.as_bytes())
    });
    if !found || seq.get_mut_group().is_streaming {
        return;
    }
    let bytes = seq.completion_bytes_mut();
    if std::str::from_utf8(bytes).is_err() {
        *bytes = String::from_utf8_lossy(bytes).into_owned().into_bytes();
    }
}

#[async_trait]
impl Pipeline for EyriePipeline {
    fn forward_inputs(&mut self, _: Box<dyn Any>, _: bool) -> Result<ForwardInputsResult> {
        bail!("Eyrie's pipeline decodes in whole steps")
    }

    async fn step(
        &mut self,
        input_seqs: &mut [&mut Sequence],
        is_prompt: bool,
        _return_raw_logits: bool,
        prefix_cacher: &mut PrefixCacheManagerV2,
        disable_eos_stop: bool,
        _rng: Arc<Mutex<Isaac64Rng>>,
        backend_metadata: CacheBackendMetadata,
    ) -> Result<Duration> {
        let clock = Instant::now();
        let this = &*self;
        let step = Step {
            is_prompt,
            eos: (!disable_eos_stop).then_some(&this.parts.metadata.eos_tok[..]),
        };
        this.forget_gone();
        let mut asked = Vec::with_capacity(input_seqs.len());
        let mut now = Vec::new();
        for (at, seq) in input_seqs.iter_mut().enumerate() {
            if is_prompt {
                seq.set_step_start_instant();
            }
            if matches!(
                backend_metadata,
                CacheBackendMetadata::PagedAttention { .. }
            ) {
                let reason =
                    "PagedAttention: Eyrie holds keys and values itself; use DefaultScheduler";
                this.fail(seq, &step, Response::ValidationError(reason.into()))
                    .await;
                continue;
            }
            if let Some(handle) = this.meet(seq, &step).await {
                asked.push((at, handle));
                // The host takes a sequence that it has ended away after this step.
                now.extend(has_ended(seq).then_some(handle));
            }
        }
        let handles: Vec<_> = asked.iter().map(|(_, handle)| *handle).collect();
        this.advance(&handles, &now);
        for (at, handle) in asked {
            this.deliver(prefix_cacher, input_seqs[at], handle, &step)
                .await?;
        }
        Ok(clock.elapsed())
    }

    async fn sample_causal_gen(
        &self,
        _: &mut [&mut Sequence],
        _: Vec<candle_core::Tensor>,
        _: &mut PrefixCacheManagerV2,
        _: bool,
        _: Arc<Mutex<Isaac64Rng>>,
    ) -> Result<()> {
        bail!("Eyrie's pipeline samples in its steps")
    }

    fn category(&self) -> ModelCategory {
        ModelCategory::Text
    }
}

impl PreProcessingMixin for EyriePipeline {
    fn get_processor(&self) -> Arc<dyn Processor> {
        Arc::new(Prompts)
    }

    fn get_chat_template(&self) -> Option<Arc<ChatTemplate>> {
        Some(Arc::clone(&self.parts.template))
    }

    fn get_input_processor_config(&self) -> Option<Arc<dyn Any>> {
        None
    }
}

impl IsqPipelineMixin for EyriePipeline {
    fn re_isq_model(&mut self, dtype: IsqType) -> anyhow::Result<()> {
        anyhow::bail!("in-situ quantisation to {dtype:?}: Eyrie converts when it loads (--dtype)")
    }
}

impl CacheManagerMixin for EyriePipeline {
    fn clone_in_cache(&self, _: &mut [&mut Sequence]) {}

    fn clone_out_cache(&self, _: &mut [&mut Sequence]) {}

    fn set_none_cache(&self, seqs: &mut [&mut Sequence], _: bool, _: bool, _: bool) {
        let step = Step {
            is_prompt: false,
            eos: None,
        };
        for seq in seqs {
            self.forget(seq, &step);
        }
    }

    fn cache(&self) -> &EitherCache {
        &self.parts.cache
    }
}

impl MetadataMixin for EyriePipeline {
    fn device(&self) -> Device {
        self.parts.device.clone()
    }

    fn tokenizer(&self) -> Option<Arc<Tokenizer>> {
        Some(Arc::clone(&self.parts.tokenizer))
    }

    fn name(&self) -> String {
        self.parts.name.clone()
    }

    fn reset_non_granular_state(&self) {}

    fn get_metadata(&self) -> Arc<GeneralMetadata> {
        Arc::clone(&self.parts.metadata)
    }

    fn generation_defaults(&self) -> Option<ModelGenerationDefaults> {
        None
    }

    fn device_mapper(&self) -> Option<&dyn DeviceMapper> {
        None
    }
}

impl AnyMoePipelineMixin for EyriePipeline {}
