//! What came back.

use std::time::Duration;

use serde_json::Value;

use crate::{Expect, Request};

/// What came of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The HTTP status; none if there was no answer.
    pub status: Option<u16>,
    /// What went wrong: the server's message, or what the client could not read.
    pub error: Option<String>,
    /// The choices, by index; of a stream with their pieces joined.
    pub choices: Vec<Choice>,
    /// The last `usage` that the server sent.
    pub usage: Option<Value>,
    /// Whether a stream ended with `[DONE]`.
    pub done_marker: bool,
    /// Whether the client left before the answer was complete.
    pub left: bool,
    /// Until the first byte of the body.
    pub first_byte: Option<Duration>,
    /// Until the end.
    pub total: Duration,
}

/// A choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Its text.
    pub text: String,
    /// Why it ended.
    pub finish_reason: Option<String>,
    /// Its tokens, if log probabilities were asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// Calls of tools.
    pub tool_calls: Vec<Value>,
    /// Events of a stream that had something for this choice; 1 without a stream.
    pub chunks: usize,
}

/// A token and its log probability; none where the server wrote `null`.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Its text.
    pub token: String,
    /// As the server gave it.
    pub logprob: Option<f64>,
    /// The alternatives, as the server gave them: a text or an id, and the log probability.
    pub top: Vec<(Value, Option<f64>)>,
}

impl Outcome {
    /// Whether this is what `request` expects.
    ///
    /// # Errors
    /// The first thing that is not.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        match request.expect {
            Expect::Gone if self.left => Ok(()),
            Expect::Gone => Err(format!("the client should have left: {}", self.line())),
            Expect::Refused if self.error.is_some() && self.choices.is_empty() => Ok(()),
            Expect::Refused => Err(format!("should have been refused: {}", self.line())),
            Expect::Ok => self.check_complete(request),
        }
    }

    fn check_complete(&self, request: &Request) -> Result<(), String> {
        let say = |what: &str| Err(format!("{what}: {}", self.line()));
        if self.status != Some(200) || self.error.is_some() || self.left {
            return say("should have been answered");
        }
        if self.choices.len() != request.choices() {
            return say(&format!("{} choices were asked for", request.choices()));
        }
        if self.choices.iter().any(|c| c.finish_reason.is_none()) {
            return say("a choice without a finish reason");
        }
        if request.logprobs() && self.choices.iter().any(|c| c.logprobs.is_empty()) {
            return say("log probabilities were asked for");
        }
        if request.streams() && !self.done_marker {
            return say("a stream without [DONE]");
        }
        Ok(())
    }

    fn line(&self) -> String {
        let ends: Vec<_> = self.choices.iter().map(|c| &c.finish_reason).collect();
        format!(
            "status {:?}, error {:?}, finish reasons {ends:?}, [DONE] {}, left {}",
            self.status, self.error, self.done_marker, self.left
        )
    }

    /// Takes the data of an event, or a whole answer.
    pub(crate) fn take(&mut self, text: &str) {
        if text == "[DONE]" {
            self.done_marker = true;
            return;
        }
        let Ok(Value::Object(answer)) = serde_json::from_str(text) else {
            return self.fail(format!("not a JSON object: {text:?}"));
        };
        if let Some(usage) = answer.get("usage").filter(|usage| !usage.is_null()) {
            self.usage = Some(usage.clone());
        }
        match answer.get("choices").and_then(Value::as_array) {
            Some(choices) => choices.iter().for_each(|choice| self.take_choice(choice)),
            None => self.fail(message(text)),
        }
    }

    /// Notes an error; the first one stays.
    pub(crate) fn fail(&mut self, what: String) {
        self.error.get_or_insert(what);
    }

    fn take_choice(&mut self, choice: &Value) {
        let index = choice.get("index").and_then(Value::as_u64);
        let index = index.and_then(|index| usize::try_from(index).ok());
        // No test asks for more choices.
        let Some(index) = index.filter(|index| *index < 1024) else {
            return self.fail(format!("a choice without a usable index: {choice}"));
        };
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, Choice::default);
        }
        self.choices[index].take(choice);
    }
}

impl Choice {
    fn take(&mut self, choice: &Value) {
        self.chunks += 1;
        let message = choice.get("delta").or_else(|| choice.get("message"));
        let text = message.map_or_else(|| choice.get("text"), |message| message.get("content"));
        self.text.extend(text.and_then(Value::as_str));
        let calls = message.and_then(|message| message.get("tool_calls"));
        self.tool_calls.extend(
            calls
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .cloned(),
        );
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish_reason = Some(reason.to_owned());
        }
        let logprobs = choice
            .get("logprobs")
            .filter(|logprobs| logprobs.is_object());
        match logprobs.map(|logprobs| (logprobs, logprobs.get("content"))) {
            Some((_, Some(Value::Array(tokens)))) => self.logprobs.extend(tokens.iter().map(token)),
            Some((one, None)) => self.logprobs.push(token(one)),
            _ => {}
        }
    }
}

fn token(of: &Value) -> TokenLogprob {
    let number = |of: &Value| of.get("logprob").and_then(Value::as_f64);
    let top = of.get("top_logprobs").and_then(Value::as_array);
    TokenLogprob {
        token: of
            .get("token")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        logprob: number(of),
        top: top
            .into_iter()
            .flatten()
            .map(|other| {
                (
                    other.get("token").cloned().unwrap_or_default(),
                    number(other),
                )
            })
            .collect(),
    }
}

/// The message of an error answer: mistral.rs writes `message`, OpenAI `error.message`, axum bare text.
pub(crate) fn message(text: &str) -> String {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let inner = json.get("error").unwrap_or(&json).get("message");
    inner.and_then(Value::as_str).unwrap_or(text).to_owned()
}
