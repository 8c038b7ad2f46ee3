//! Chat templates and what else the host does with prompts.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use eyrie::text;
use indexmap::IndexMap;
use mistralrs_core::{
    MessageContent, ReasoningEffort, Tool,
    speculative_host::{
        BasicProcessor, ChatTemplate, DeviceMapper, InputProcessorOutput, InputsProcessor,
        InputsProcessorType, MessagesAction, PagedAttentionMeta, Pipeline, Processor, Sequence,
    },
};
use serde_json::{Value, json};

use crate::gate::medium;

/// The host's form of a chat template. Of a model directory the rest of `tokenizer_config.json` comes
/// with it, for the tokens that a template may name.
///
/// # Errors
/// If the host does not understand the file.
pub(crate) fn template(model: &Path, chat: Option<&text::ChatTemplate>) -> Result<ChatTemplate> {
    let path = model.join("tokenizer_config.json");
    let mut config = if path.is_file() {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())?
    } else {
        json!({})
    };
    if let (Some(chat), Some(map)) = (chat, config.as_object_mut()) {
        let has_list = map.get("chat_template").is_some_and(Value::is_array);
        let own_file = model.join("chat_template.jinja").is_file();
        if own_file || !has_list {
            map.insert("chat_template".to_owned(), chat.source().into());
        }
        for (key, token) in [("bos_token", chat.bos()), ("eos_token", chat.eos())] {
            if let Some(token) = token {
                map.insert(key.to_owned(), token.into());
            }
        }
    }
    serde_json::from_value(config).with_context(|| path.display().to_string())
}

/// The host's own rendering; a beginning that the template writes itself is not added again.
#[derive(Debug)]
pub(crate) struct Prompts;

impl Processor for Prompts {
    fn process(
        &self,
        pipeline: &dyn Pipeline,
        messages: Vec<IndexMap<String, MessageContent>>,
        add_generation_prompt: bool,
        add_special_tokens: bool,
        enable_thinking: Option<bool>,
        reasoning_effort: Option<ReasoningEffort>,
        tools: Vec<Tool>,
    ) -> Result<(Vec<u32>, String)> {
        let parts = messages.iter().flat_map(|message| message.values());
        let mut parts = parts
            .filter_map(|content| content.as_ref().right())
            .flatten();
        if let Some(reason) = parts
            .find_map(|part| medium(|key| part.get(key)?.as_str(), |key| part.contains_key(key)))
        {
            bail!(reason);
        }
        let (ids, text) = BasicProcessor.process(
            pipeline,
            messages,
            add_generation_prompt,
            false,
            enable_thinking,
            reasoning_effort,
            tools,
        )?;
        if !add_special_tokens {
            return Ok((ids, text));
        }
        let tokenizer = pipeline.tokenizer().context("a tokenizer")?;
        let added = tokenizer
            .encode_fast("", true)
            .map_err(anyhow::Error::msg)?;
        let own = added
            .get_ids()
            .first()
            .is_some_and(|first| ids.first() == Some(first));
        if own || added.get_ids().is_empty() {
            return Ok((ids, text));
        }
        let with = tokenizer
            .encode_fast(text.as_str(), true)
            .map_err(anyhow::Error::msg)?;
        Ok((with.get_ids().to_vec(), text))
    }

    fn inputs_processor(&self) -> Arc<dyn InputsProcessor> {
        Arc::new(NoInputs)
    }

    fn get_special_tokens(&self) -> &[&'static str] {
        &[]
    }

    fn template_action(&self) -> MessagesAction {
        MessagesAction::FlattenOnlyText
    }
}

/// The engine makes its own inputs.
struct NoInputs;

impl InputsProcessor for NoInputs {
    fn process_inputs(
        &self,
        _: Option<Arc<tokenizers::Tokenizer>>,
        _: &mut [&mut Sequence],
        _: bool,
        _: bool,
        _: &candle_core::Device,
        _: bool,
        _: Option<(usize, usize)>,
        _: bool,
        _: Option<usize>,
        _: Option<Arc<dyn std::any::Any>>,
        _: Option<PagedAttentionMeta>,
        _: Option<&dyn DeviceMapper>,
    ) -> Result<InputProcessorOutput> {
        bail!("Eyrie's pipeline makes its own inputs")
    }

    fn get_type(&self) -> InputsProcessorType {
        InputsProcessorType::Text
    }
}
