//! What a pipeline outside of this crate needs: the names of [`Pipeline`](super::Pipeline)'s
//! supertraits and arguments, and the two functions that end a step.

use candle_core::Result;

pub use super::{
    chat_template::ChatTemplate,
    inputs_processor::{InputProcessorOutput, InputsProcessor, InputsProcessorType},
    llg::build_llg_factory,
    processing::{BasicProcessor, MessagesAction, Processor},
    text_models_inputs_processor::PagedAttentionMeta,
    AnyMoePipelineMixin, CacheBackendMetadata, CacheInstruction, CacheManagerMixin, EitherCache,
    ForwardInputsResult, GeneralMetadata, IsqPipelineMixin, MetadataMixin, NormalCache, Pipeline,
    PreProcessingMixin,
};
pub use crate::{
    device_map::DeviceMapper,
    paged_attention::{KvCacheLayout, ModelConfigLike, ModelConfigMetadata},
    prefix_cacher::PrefixCacheManagerV2,
    sampler::{DrySettings, Logprobs, Sampler, SamplerSettings},
    sequence::{
        SeqStepType, Sequence, SequenceGroup, SequenceRecognizer, SequenceState, StopReason,
    },
};
pub use rand_isaac::Isaac64Rng;

/// Appends a token to a sequence, with its text, its stops and what is sent to the client.
///
/// # Errors
/// If the client has gone, or what the token made of the text cannot be parsed.
pub async fn finish_or_add_toks_to_seq(
    this: &dyn Pipeline,
    prefix_cacher: &mut PrefixCacheManagerV2,
    seq: &mut Sequence,
    logprobs: Logprobs,
    eos_tok: Option<&[u32]>,
) -> Result<()> {
    super::sampling::finish_or_add_toks_to_seq(this, prefix_cacher, seq, logprobs, eos_tok, false)
        .await
}
