//! Requests as data: what to send, how the client behaves, what should come of it.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;

/// A request to an OpenAI server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Its name, unique in its file.
    pub name: String,
    /// `/v1/chat/completions` or `/v1/completions`.
    pub path: String,
    /// The body, without the model.
    pub body: Map<String, Value>,
    /// What the client does after it has asked.
    #[serde(default)]
    pub client: Behaviour,
    /// What should come of it.
    #[serde(default)]
    pub expect: Expect,
    /// What it needs of the server.
    #[serde(default)]
    pub tags: Vec<Tag>,
}

/// What a client does after it has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Behaviour {
    /// Reads to the end.
    #[default]
    Wait,
    /// Closes the connection after this many events of a stream.
    Cancel(usize),
    /// Closes the connection after this many milliseconds.
    Disconnect(u64),
}

/// What should come of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// A complete answer.
    #[default]
    Ok,
    /// An error and no text.
    Refused,
    /// The client left before the answer was complete.
    Gone,
}

/// What a request needs that only an inference server does, not a bare decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tag {
    /// A grammar over the output.
    Grammar,
    /// The DRY penalty.
    Dry,
    /// Tool calls.
    Tools,
}

impl Request {
    /// A chat request of one user message.
    #[must_use]
    pub fn chat(name: &str, message: &str) -> Self {
        let message = serde_json::json!([{"role": "user", "content": message}]);
        Self::new(name, "/v1/chat/completions", "messages", message)
    }

    /// A completion request.
    #[must_use]
    pub fn completion(name: &str, prompt: &str) -> Self {
        Self::new(name, "/v1/completions", "prompt", prompt.into())
    }

    fn new(name: &str, path: &str, key: &str, value: Value) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            body: Map::from_iter([(key.to_owned(), value)]),
            client: Behaviour::Wait,
            expect: Expect::Ok,
            tags: Vec::new(),
        }
    }

    /// The request with one more field of the body.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.body.insert(key.to_owned(), value.into());
        self
    }

    /// Whether the answer is a stream.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool) == Some(true)
    }

    /// How many choices are asked for.
    #[must_use]
    pub fn choices(&self) -> usize {
        let n = self.body.get("n").and_then(Value::as_u64).unwrap_or(1);
        usize::try_from(n).unwrap_or(usize::MAX)
    }

    /// Whether log probabilities are asked for: chat says it with `true`, completions with a number.
    #[must_use]
    pub fn logprobs(&self) -> bool {
        let asked = self.body.get("logprobs");
        asked.is_some_and(|value| value != &Value::Bool(false) && !value.is_null())
    }

    /// Whether the request needs something that only an inference server does.
    #[must_use]
    pub fn needs(&self, tag: Tag) -> bool {
        self.tags.contains(&tag)
    }

    /// The body as JSON, with the model.
    #[must_use]
    pub fn json(&self, model: &str) -> String {
        let mut body = self.body.clone();
        body.insert("model".to_owned(), model.into());
        Value::Object(body).to_string()
    }
}

/// Thirty-two requests of all kinds to a tiny model with the fixtures' tokenizer: lower-case letters,
/// digits and punctuation, `<eos>` is token 2, the context has 256 positions.
///
/// # Errors
/// As [`parse`].
pub fn mixed() -> Result<Vec<Request>, Error> {
    parse(include_str!("../requests.jsonl"))
}

/// Requests, one a line.
///
/// # Errors
/// If a line is no request; the error says which.
pub fn parse(text: &str) -> Result<Vec<Request>, Error> {
    let read = |(line, text)| {
        serde_json::from_str(text).map_err(|source| Error::Line {
            line: line + 1,
            source,
        })
    };
    text.lines().enumerate().map(read).collect()
}
