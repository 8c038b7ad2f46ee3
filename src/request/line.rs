//! One line of a requests file: a JSON object with the fields of [`RequestSpec`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{RequestError, RequestSpec};
use crate::{TokenId, json, sample::Semantics, text::Message};

type Result<T> = std::result::Result<T, RequestError>;

impl RequestSpec {
    /// Reads and [checks](Self::check) a line.
    ///
    /// # Errors
    /// [`RequestError`], naming the field and what would be accepted, for anything but a JSON object
    /// whose keys are fields of a request, each once and of its type and range.
    pub fn from_line(line: &str) -> Result<Self> {
        let spec = Self::from_object(&object(line)?)?;
        spec.check()?;
        Ok(spec)
    }

    /// The `id` of a line, whatever else is wrong with it, if it can be read.
    #[must_use]
    pub fn id_of(line: &str) -> Option<String> {
        // Without the check for keys given twice, so that such a line keeps its name.
        let value: Value = serde_json::from_str(line).ok()?;
        value.get("id")?.as_str().map(str::to_owned)
    }

    fn from_object(object: &Map<String, Value>) -> Result<Self> {
        let mut spec = Self::default();
        for (field, value) in object {
            let at = At { field, value };
            let sampling = &mut spec.sampling;
            match field.as_str() {
                "id" => spec.id = Some(at.text()?),
                "prompt" => spec.prompt = Some(at.text()?),
                "prompt_ids" => {
                    spec.prompt_ids = Some(at.list("a list of token ids", |at| at.token())?)
                }
                "messages" => {
                    spec.messages = Some(at.list("a list of messages", |at| at.message())?);
                }
                "chat" => spec.chat = at.flag()?,
                "system" => spec.system = Some(at.text()?),
                "max_tokens" => spec.max_tokens = at.count()?,
                "temperature" => sampling.temperature = at.number()?,
                "top_k" => sampling.top_k = at.count()?,
                "top_p" => sampling.top_p = at.number()?,
                "min_p" => sampling.min_p = at.number()?,
                "repetition_penalty" => sampling.repetition_penalty = at.number()?,
                "presence_penalty" => sampling.presence_penalty = at.number()?,
                "frequency_penalty" => sampling.frequency_penalty = at.number()?,
                "logit_bias" => sampling.logit_bias = at.biases()?,
                "stop" => spec.stop = at.list("a list of texts", |at| at.text())?,
                "stop_id" => spec.stop_id = at.list("a list of token ids", |at| at.token())?,
                "ignore_eos" => spec.ignore_eos = at.flag()?,
                "min_tokens" => sampling.min_tokens = at.count()?,
                "seed" => spec.seed = Some(at.seed()?),
                "n" => spec.n = at.count()?,
                "logprobs" => spec.logprobs = Some(at.count()?),
                "drafter_off" => spec.drafter_off = at.flag()?,
                "host_semantics" => {
                    sampling.semantics = if at.flag()? {
                        Semantics::Host
                    } else {
                        Semantics::Eyrie
                    };
                }
                _ => return Err(RequestError::UnknownField(field.clone())),
            }
        }
        Ok(spec)
    }
}

fn object(line: &str) -> Result<Map<String, Value>> {
    match json::parse(line)? {
        Value::Object(object) => Ok(object),
        other => Err(RequestError::NotAnObject(json::brief(&other))),
    }
}

/// A value and the field that an error about it names.
#[derive(Clone, Copy)]
struct At<'a> {
    field: &'a str,
    value: &'a Value,
}

impl At<'_> {
    fn refuse<T>(self, accepted: &str) -> Result<T> {
        Err(RequestError::value(
            self.field,
            json::brief(self.value),
            accepted,
        ))
    }

    fn or_refuse<T>(self, read: Option<T>, accepted: &str) -> Result<T> {
        read.map_or_else(|| self.refuse(accepted), Ok)
    }

    fn flag(self) -> Result<bool> {
        self.or_refuse(self.value.as_bool(), "must be true or false")
    }

    fn text(self) -> Result<String> {
        let text = self.value.as_str().map(str::to_owned);
        self.or_refuse(text, "must be a text")
    }

    fn number(self) -> Result<f64> {
        self.or_refuse(self.value.as_f64(), "must be a number")
    }

    fn seed(self) -> Result<u64> {
        let accepted = "must be a whole number in 0..=18446744073709551615";
        self.or_refuse(self.value.as_u64(), accepted)
    }

    fn count(self) -> Result<usize> {
        let read = self.value.as_u64().and_then(|x| usize::try_from(x).ok());
        self.or_refuse(read, "must be a whole number of at least 0")
    }

    fn token(self) -> Result<TokenId> {
        let read = self.value.as_u64().and_then(|x| TokenId::try_from(x).ok());
        self.or_refuse(read, "must be a token id")
    }

    fn list<T>(self, what: &str, item: impl Fn(At<'_>) -> Result<T>) -> Result<Vec<T>> {
        let items = self.or_refuse(self.value.as_array(), &format!("must be {what}"))?;
        let at = |(i, value)| {
            let field = format!("{}[{i}]", self.field);
            item(At {
                field: &field,
                value,
            })
        };
        items.iter().enumerate().map(at).collect()
    }

    fn message(self) -> Result<Message> {
        let accepted = "must be an object with the texts role and content";
        let object = self.or_refuse(self.value.as_object(), accepted)?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        match (text("role"), text("content")) {
            (Some(role), Some(content)) if object.len() == 2 => Ok(Message::new(role, content)),
            _ => self.refuse(accepted),
        }
    }

    fn biases(self) -> Result<BTreeMap<TokenId, f64>> {
        let accepted = "must be an object from token id to bias";
        let object = self.or_refuse(self.value.as_object(), accepted)?;
        let mut biases = BTreeMap::new();
        for (key, value) in object {
            let field = format!("{}[{key:?}]", self.field);
            let at = At {
                field: &field,
                value,
            };
            // Only the plain spelling, so that no two keys can mean one token.
            let id: Option<TokenId> = key.parse().ok();
            let id = at.or_refuse(
                id.filter(|id| id.to_string() == *key),
                "the key must be a token id",
            )?;
            let bias = match value.as_str() {
                Some("-inf") => Some(f64::NEG_INFINITY),
                _ => value.as_f64(),
            };
            let bias = at.or_refuse(bias, "must be a number in -100..=100, or \"-inf\"")?;
            biases.insert(id, bias);
        }
        Ok(biases)
    }
}
