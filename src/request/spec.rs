//! A request as its author writes it.

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::RequestError;
use crate::{
    TokenId,
    sample::{RawParams, SamplingParams, Semantics},
    text::Message,
};

/// Most choices of one request.
const MAX_CHOICES: usize = 65_536;
/// Most tokens reported beside each generated one.
const MAX_LOGPROBS: usize = 256;

/// The fields of a request line.
pub(super) const FIELDS: [&str; 24] = [
    "id",
    "prompt",
    "prompt_ids",
    "messages",
    "chat",
    "system",
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "stop",
    "stop_id",
    "ignore_eos",
    "min_tokens",
    "seed",
    "n",
    "logprobs",
    "drafter_off",
    "host_semantics",
];

/// A request as its author writes it: the flags of `generate`, or one line of a requests file.
///
/// The default has no prompt and decodes greedily. Nothing is promised of the values until
/// [`check`](Self::check) has passed; serializing gives the fields by their names in a request line.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpec {
    /// The name its results carry; without one, the number of its line.
    pub id: Option<String>,
    /// The prompt as text.
    pub prompt: Option<String>,
    /// The prompt as tokens.
    pub prompt_ids: Option<Vec<TokenId>>,
    /// The prompt as a conversation.
    pub messages: Option<Vec<Message>>,
    /// The prompt goes through the chat template as a user's turn.
    pub chat: bool,
    /// A system turn before it.
    pub system: Option<String>,
    /// Most tokens to generate, at least 1.
    pub max_tokens: usize,
    /// How logits become laws.
    pub sampling: RawParams,
    /// Texts that end a choice.
    pub stop: Vec<String>,
    /// Tokens that end a choice.
    pub stop_id: Vec<TokenId>,
    /// The target's end tokens do not end a choice.
    pub ignore_eos: bool,
    /// The seed; without one, the system gives it.
    pub seed: Option<u64>,
    /// Number of choices, 1 to 65,536.
    pub n: usize,
    /// Report log-probabilities, with this many of the likeliest tokens.
    pub logprobs: Option<usize>,
    /// Decode without drafts.
    pub drafter_off: bool,
}

impl Default for RequestSpec {
    fn default() -> Self {
        Self {
            id: None,
            prompt: None,
            prompt_ids: None,
            messages: None,
            chat: false,
            system: None,
            max_tokens: 256,
            sampling: RawParams::default(),
            stop: Vec::new(),
            stop_id: Vec::new(),
            ignore_eos: false,
            seed: None,
            n: 1,
            logprobs: None,
            drafter_off: false,
        }
    }
}

impl RequestSpec {
    /// Whether the prompt goes through the chat template.
    #[must_use]
    pub fn is_chat(&self) -> bool {
        self.chat || self.messages.is_some()
    }

    /// Checks all that can be checked without a model: ranges, and fields that exclude each other.
    ///
    /// # Errors
    /// [`RequestError`] naming the first field at fault.
    pub fn check(&self) -> Result<SamplingParams, RequestError> {
        self.check_prompt()?;
        if self.max_tokens == 0 {
            return Err(RequestError::value("max_tokens", "0", "must be at least 1"));
        }
        if !(1..=MAX_CHOICES).contains(&self.n) {
            let accepted = format!("must lie in 1..={MAX_CHOICES}");
            return Err(RequestError::value("n", self.n.to_string(), accepted));
        }
        if let Some(k) = self.logprobs.filter(|k| *k > MAX_LOGPROBS) {
            let accepted = format!("must lie in 0..={MAX_LOGPROBS}");
            return Err(RequestError::value("logprobs", k.to_string(), accepted));
        }
        if self.stop.iter().any(String::is_empty) {
            let accepted = "a stop text has at least one character";
            return Err(RequestError::value("stop", "\"\"", accepted));
        }
        Ok(SamplingParams::new(self.sampling.clone())?)
    }

    fn check_prompt(&self) -> Result<(), RequestError> {
        let contradiction = |field, reason| Err(RequestError::Contradiction { field, reason });
        match (&self.prompt, &self.prompt_ids, &self.messages) {
            (None, None, None) => {
                return contradiction(
                    "prompt",
                    "missing; give one of prompt, prompt_ids and messages",
                );
            }
            (Some(_), Some(_), _) => {
                return contradiction("prompt_ids", "cannot be used with prompt");
            }
            (Some(_), _, Some(_)) => {
                return contradiction("messages", "cannot be used with prompt");
            }
            (_, Some(_), Some(_)) => {
                return contradiction("messages", "cannot be used with prompt_ids");
            }
            (_, Some(ids), _) if ids.is_empty() => {
                return Err(RequestError::value(
                    "prompt_ids",
                    "[]",
                    "a prompt has at least one token",
                ));
            }
            (_, _, Some(turns)) if turns.is_empty() => {
                return Err(RequestError::value(
                    "messages",
                    "[]",
                    "a conversation has at least one message",
                ));
            }
            _ => {}
        }
        if self.chat && self.prompt_ids.is_some() {
            return contradiction("chat", "the chat template needs text, not prompt_ids");
        }
        if self.system.is_some() && !self.is_chat() {
            return contradiction("system", "needs chat or messages");
        }
        let first = self.messages.as_ref().and_then(|turns| turns.first());
        if self.system.is_some() && first.is_some_and(|turn| turn.role == "system") {
            return contradiction("system", "the messages begin with a system turn already");
        }
        Ok(())
    }
}

impl Serialize for RequestSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let p = &self.sampling;
        let bias = |x: f64| {
            if x == f64::NEG_INFINITY {
                "-inf".into()
            } else {
                serde_json::Value::from(x)
            }
        };
        let bias: serde_json::Map<_, _> = (p.logit_bias.iter())
            .map(|(id, x)| (id.to_string(), bias(*x)))
            .collect();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("prompt", &self.prompt)?;
        map.serialize_entry("prompt_ids", &self.prompt_ids)?;
        map.serialize_entry("messages", &self.messages)?;
        map.serialize_entry("chat", &self.chat)?;
        map.serialize_entry("system", &self.system)?;
        map.serialize_entry("max_tokens", &self.max_tokens)?;
        map.serialize_entry("temperature", &p.temperature)?;
        map.serialize_entry("top_k", &p.top_k)?;
        map.serialize_entry("top_p", &p.top_p)?;
        map.serialize_entry("min_p", &p.min_p)?;
        map.serialize_entry("repetition_penalty", &p.repetition_penalty)?;
        map.serialize_entry("presence_penalty", &p.presence_penalty)?;
        map.serialize_entry("frequency_penalty", &p.frequency_penalty)?;
        map.serialize_entry("logit_bias", &bias)?;
        map.serialize_entry("stop", &self.stop)?;
        map.serialize_entry("stop_id", &self.stop_id)?;
        map.serialize_entry("ignore_eos", &self.ignore_eos)?;
        map.serialize_entry("min_tokens", &p.min_tokens)?;
        map.serialize_entry("seed", &self.seed)?;
        map.serialize_entry("n", &self.n)?;
        map.serialize_entry("logprobs", &self.logprobs)?;
        map.serialize_entry("drafter_off", &self.drafter_off)?;
        map.serialize_entry("host_semantics", &(p.semantics == Semantics::Host))?;
        map.end()
    }
}
