//! From what was asked to what the engine runs.

use super::{Limits, Request, RequestError, RequestSpec};
use crate::{
    TokenId,
    text::{ChatTemplate, Message, Tokenizer},
};

/// Turns a [`RequestSpec`] into a [`Request`] for one target.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// The target's tokenizer; without one, prompts are token ids.
    pub tokenizer: Option<Tokenizer>,
    /// The target's chat template.
    pub chat: Option<ChatTemplate>,
    /// Number of ids that have a meaning; logits may be wider.
    pub valid: usize,
    /// Positions of the target.
    pub context: usize,
    /// Tokens that the cache holds.
    pub kv_tokens: usize,
}

impl Resolver {
    /// Checks `spec`, turns its prompt into tokens, and takes `id` and `seed` where it names none.
    ///
    /// # Errors
    /// [`RequestError`] for values out of range, ids that the target does not have, a prompt that is
    /// empty or longer than the target's context or the cache, and for text without a tokenizer.
    pub fn resolve(
        &self,
        spec: &RequestSpec,
        id: &str,
        seed: u64,
    ) -> Result<Request, RequestError> {
        let params = spec.check()?;
        let request = Request {
            id: spec.id.clone().unwrap_or_else(|| id.to_owned()),
            prompt: self.prompt(spec)?,
            params,
            // More could never be generated, and sums with it stay small.
            max_tokens: spec.max_tokens.min(self.context),
            stop: spec.stop.clone(),
            stop_ids: spec.stop_id.clone(),
            ignore_eos: spec.ignore_eos,
            seed: spec.seed.unwrap_or(seed),
            n: spec.n,
            logprobs: spec.logprobs,
            drafter_off: spec.drafter_off,
            processors: Vec::new(),
        };
        request.check(&Limits {
            vocab: self.valid,
            context: self.context,
            kv_tokens: self.kv_tokens,
            text: self.tokenizer.is_some(),
        })?;
        Ok(request)
    }

    fn prompt(&self, spec: &RequestSpec) -> Result<Vec<TokenId>, RequestError> {
        match (&spec.prompt_ids, &spec.prompt) {
            (Some(ids), _) => Ok(ids.clone()),
            (None, Some(text)) if !spec.chat => {
                let tokens = self.tokenizer("prompt")?.encode_prompt(text);
                tokens.map_err(|error| unsupported("prompt", &error))
            }
            _ => {
                let field = if spec.chat { "prompt" } else { "messages" };
                let text = self.render(field, spec)?;
                let tokens = self.tokenizer(field)?.encode(&text);
                tokens.map_err(|error| unsupported(field, &error))
            }
        }
    }

    fn tokenizer(&self, field: &'static str) -> Result<&Tokenizer, RequestError> {
        let reason = "the model has no tokenizer; only prompt_ids can be used";
        (self.tokenizer.as_ref()).ok_or_else(|| unsupported(field, &reason))
    }

    fn render(&self, field: &'static str, spec: &RequestSpec) -> Result<String, RequestError> {
        let template = (self.chat.as_ref())
            .ok_or_else(|| unsupported(field, &"the model has no chat template"))?;
        let system = spec.system.iter().map(|text| Message::new("system", text));
        let user = spec.prompt.iter().map(|text| Message::new("user", text));
        let given = spec.messages.iter().flatten().cloned();
        let turns: Vec<Message> = system.chain(given).chain(user).collect();
        let rendered = template.render(&turns, true);
        rendered.map_err(|error| unsupported(field, &error))
    }
}

fn unsupported(field: &'static str, reason: &dyn std::fmt::Display) -> RequestError {
    RequestError::Unsupported {
        field,
        reason: reason.to_string(),
    }
}
