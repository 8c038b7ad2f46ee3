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
use tokio::sync::mpsc::error::TrySendError;

use crate::{
    asked::{self, Circumstances},
    chunks::Alone,
    counters, grammar,
    metrics::Metrics,
    prompts::Prompts,
    runner::{Outbox, Shared, Token},
};

/// Free places in a client's channel below which a token waits: one token may be more than one message.
const ROOM: usize = 8;

/// How long a client may leave its channel full: it has a place in every step.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let owner = Arc::downgrade(&seq.sampler());
        let key = key(&owner);
        let mut known = self.known();
        let handle = known.remove(&key).and_then(|known| known.handle);
        if step.is_prompt {
            let handle = None;
            known.insert(key, Known { owner, handle });
        }
        drop(known);
        if let Some(handle) = handle {
            self.parts.runner.lock().cancel(handle);
        }
    }

    /// The engine's name of a sequence that goes on; one that is new is submitted. `None`: it has ended.
    fn meet(&self, seq: &mut Sequence, step: &Step<'_>) -> Option<RequestHandle> {
        let owner = Arc::downgrade(&seq.sampler());
        let key = key(&owner);
        let known = self.known().get(&key).map(|known| known.handle);
        if known == Some(None) {
            self.known().remove(&key);
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
                let handle = Some(handle);
                self.known().insert(key, Known { owner, handle });
                handle
            }
            Err(reason) => {
                self.fail(seq, step, Response::ValidationError(reason.into()));
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
    /// lack it. One that waits for its client lacks nothing. True if there was a pass.
    fn advance(&self, asked: &[RequestHandle], now: &[RequestHandle]) -> bool {
        let mut runner = self.parts.runner.lock();
        let lack = asked.iter().any(|handle| runner.lacks(*handle));
        if lack {
            runner.step();
        }
        while now.iter().any(|handle| runner.lacks(*handle)) {
            runner.step();
        }
        lack
    }

    /// Tells the host what the engine has for a sequence, as far as its client has room for it. True if
    /// the rest waits.
    async fn deliver(
        &self,
        prefix_cacher: &mut PrefixCacheManagerV2,
        seq: &mut Sequence,
        handle: RequestHandle,
        step: &Step<'_>,
    ) -> bool {
        let last = has_ended(seq);
        let mut outbox = self.parts.runner.lock().take(handle);
        while let Some(batch) = outbox.batches.front_mut() {
            if batch.tokens.is_empty() {
                outbox.batches.pop_front();
                continue;
            }
            if !has_room(seq) {
                return self.hold(seq, handle, outbox, step, last);
            }
            let Some(token) = batch.tokens.pop_front() else {
                continue;
            };
            let round = batch.round.as_ref().map(|round| (round, batch.taken));
            batch.taken += 1;
            self.parts.metrics.token(&self.parts.name, round);
            if let Some(usage) = &mut seq.get_mut_group().speculative {
                usage.completion_tokens += 1;
                if let Some((round, index)) = round {
                    counters::count(usage, round, index);
                }
            }
            if let Err(reason) = self.add(prefix_cacher, seq, token, step).await {
                self.fail(seq, step, Response::InternalError(reason.into()));
            }
            if has_ended(seq) {
                self.forget(seq, step);
                return false;
            }
        }
        self.parts.runner.lock().flows(handle);
        let reason = match outbox.end {
            None => return false,
            Some(Err(reason)) => reason,
            Some(Ok(reason)) => format!("the engine ended ({reason:?}) where the host goes on"),
        };
        let of_grammar = reason.starts_with(grammar::NAME) && seq.logprobs().is_empty();
        let response = if of_grammar {
            Response::ValidationError(reason.into())
        } else {
            Response::InternalError(reason.into())
        };
        self.fail(seq, step, response);
        false
    }

    /// Keeps what the client of a sequence has no room for; one that the host takes away now (`last`), or
    /// whose client has not read for too long, ends without it. True if it waits.
    fn hold(
        &self,
        seq: &mut Sequence,
        handle: RequestHandle,
        rest: Outbox,
        step: &Step<'_>,
        last: bool,
    ) -> bool {
        let waited = self.parts.runner.lock().put_back(handle, rest);
        if !last && waited < PATIENCE {
            return true;
        }
        tracing::warn!("request {}: its client does not read", seq.id());
        self.forget(seq, step);
        seq.set_state(SequenceState::Error);
        false
    }

    /// Appends one token to the host's sequence. A client that has gone ends it.
    ///
    /// # Errors
    /// If the host cannot take the token: it ends this sequence alone.
    async fn add(
        &self,
        prefix_cacher: &mut PrefixCacheManagerV2,
        seq: &mut Sequence,
        (token, logprob): Token,
        step: &Step<'_>,
    ) -> std::result::Result<(), String> {
        let text = |id: u32| {
            let decoded = self.parts.tokenizer.decode(&[id], false);
            decoded.map_err(|error| format!("token {id}: {error}"))
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
        match added {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) if seq.responder().is_closed() => {
                seq.set_state(SequenceState::Done(StopReason::Canceled));
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the host panicked over a token".to_owned()),
        }
    }

    /// The host's record of a token: natural logarithms of the law it was chosen by.
    fn logprobs(
        &self,
        seq: &Sequence,
        token: u32,
        logprob: Option<Logprob>,
        text: &dyn Fn(u32) -> std::result::Result<String, String>,
    ) -> std::result::Result<Logprobs, String> {
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
        let top = top.collect::<std::result::Result<Vec<_>, String>>()?;
        Ok(Logprobs {
            token,
            logprob: logprob.map_or(0.0, |logprob| narrow(logprob.logprob)),
            bytes: Some(text(token)?),
            top_logprobs: seq.return_logprobs().then_some(top),
        })
    }

    /// Ends one sequence with a message to its client, which is not waited for.
    fn fail(&self, seq: &mut Sequence, step: &Step<'_>, response: Response) {
        let (id, responder) = (*seq.id(), seq.responder());
        match responder.try_send(response) {
            Ok(()) => {}
            Err(TrySendError::Full(response)) => {
                tokio::spawn(async move {
                    if responder.send_timeout(response, PATIENCE).await.is_err() {
                        tracing::warn!("request {id}: its client does not read");
                    }
                });
            }
            Err(TrySendError::Closed(_)) => tracing::warn!("request {id}: the client has gone"),
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

fn key(owner: &Weak<Sampler>) -> usize {
    owner.as_ptr().addr()
}

/// True if the client reads: there is room in its channel for what a token sends.
fn has_room(seq: &Sequence) -> bool {
    let responder = seq.responder();
    responder.capacity() >= ROOM.min(responder.max_capacity())
}

/// The host searches stop strings in bytes and cuts the text with replacement characters at the place
/// it found: where bytes that are no text come before one, it would cut inside a character, or panic.
/// With the replacements in the bytes both are the same place.
fn mend_text(seq: &mut Sequence) {
    if seq.stop_strings().is_empty() || std::str::from_utf8(seq.completion_bytes()).is_ok() {
        return;
    }
    if seq.get_mut_group().is_streaming {
        return;
    }
    let found = seq.stop_strings().iter().any(|stop| {
        let bytes = seq.completion_bytes();
        bytes
            .windows(stop.len().max(1))
            .any(|window| window == stop.as_bytes())
    });
    if found {
        let bytes = seq.completion_bytes_mut();
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
                this.fail(seq, &step, Response::ValidationError(reason.into()));
                continue;
            }
            if let Some(handle) = this.meet(seq, &step) {
                asked.push((at, handle));
                // The host takes a sequence that it has ended away after this step.
                now.extend(has_ended(seq).then_some(handle));
            }
        }
        let handles: Vec<_> = asked.iter().map(|(_, handle)| *handle).collect();
        let mut idle = !this.advance(&handles, &now) && !asked.is_empty();
        for (at, handle) in asked {
            idle &= this
                .deliver(prefix_cacher, input_seqs[at], handle, &step)
                .await;
        }
        if idle {
            // Nobody reads: the host's loop would spin.
            tokio::time::sleep(Duration::from_millis(1)).await;
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
