//! Chat templates: a conversation to the prompt that the model was trained on.

use std::{io, path::Path, sync::Arc};

use minijinja::value::Value as Jinja;
use minijinja::{Environment, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::render::{Bounded, FUEL, MAX_PROMPT, MAX_SOURCE, environment, with_deep_stack};
use super::{TextError, Tokenizer};
use crate::{
    model::load::{Files, Source},
    types::TokenId,
};

/// Stands for an answer when a template is asked what it puts behind one.
const PROBE: &str = "EyrieProbe";

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl Message {
    /// A turn.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// A parsed chat template with the special tokens it may name.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    name: String,
    source: Arc<str>,
    env: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

impl ChatTemplate {
    /// Parses a template. `name` is what errors call it; `bos` and `eos` are the strings behind
    /// `bos_token` and `eos_token`.
    ///
    /// # Errors
    ///
    /// The template does not parse, or is too long to.
    pub fn new(
        name: &str,
        source: &str,
        bos: Option<&str>,
        eos: Option<&str>,
    ) -> Result<Self, TextError> {
        if source.len() > MAX_SOURCE {
            let message = format!("{} bytes; at most {MAX_SOURCE} are accepted", source.len());
            return Err(refused(name, message));
        }
        let parsed = with_deep_stack(|| {
            let mut env = environment();
            env.add_template_owned(name.to_owned(), source.to_owned())
                .map_err(|error| explain(name, &error))?;
            Ok::<_, TextError>(env)
        });
        let env = parsed.map_err(|error| refused(name, error.to_string()))??;
        Ok(Self {
            name: name.to_owned(),
            source: source.into(),
            env,
            bos: bos.map(str::to_owned),
            eos: eos.map(str::to_owned),
        })
    }

    /// The template of a model directory: `chat_template.jinja`, else `chat_template` of
    /// `tokenizer_config.json` (of several, the one named `default`). `None` if there is neither.
    ///
    /// # Errors
    ///
    /// A file that is there and cannot be read, JSON of another shape, or a template that does not
    /// parse.
    pub fn from_dir(dir: impl Into<Files>) -> Result<Option<Self>, TextError> {
        let files = dir.into();
        let file = files.file("tokenizer_config.json");
        let path = file.path();
        let config = match read(&file)? {
            Some(text) => parse(path, &text)?,
            None => Value::Null,
        };
        let bos = special(path, &config, "bos_token")?;
        let eos = special(path, &config, "eos_token")?;

        let own = files.file("chat_template.jinja");
        let (name, source) = match read(&own)? {
            Some(source) => (own.path().display().to_string(), source),
            None => match chosen(path, &config)? {
                Some(source) => (format!("{} (chat_template)", path.display()), source),
                None => return Ok(None),
            },
        };
        Self::new(&name, &source, bos.as_deref(), eos.as_deref()).map(Some)
    }

    /// Where the template came from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The template itself.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The string behind `bos_token`.
    #[must_use]
    pub fn bos(&self) -> Option<&str> {
        self.bos.as_deref()
    }

    /// The string behind `eos_token`.
    #[must_use]
    pub fn eos(&self) -> Option<&str> {
        self.eos.as_deref()
    }

    /// The prompt. With `add_generation_prompt` it ends where the assistant's answer begins.
    ///
    /// # Errors
    ///
    /// The template refuses the conversation (with its own message), asks for something that does
    /// not exist here, or does not end within any sensible number of steps or length of text.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let mut prompt = Bounded::default();
        // An error of the engine holds values, which may be nested: it does not leave the stack.
        let rendered = with_deep_stack(|| {
            self.write(&mut prompt, messages, add_generation_prompt)
                .map_err(|error| explain(&self.name, &error))
        });
        let rendered = rendered.map_err(|error| refused(&self.name, error.to_string()))?;
        if prompt.overflowed {
            let message = format!("it writes more than {MAX_PROMPT} bytes");
            return Err(refused(&self.name, message));
        }
        rendered?;
        String::from_utf8(prompt.bytes).map_err(|error| refused(&self.name, error.to_string()))
    }

    fn write(
        &self,
        to: &mut Bounded,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<(), minijinja::Error> {
        let none = Jinja::from(());
        let mut context = vec![
            ("messages", Jinja::from_serialize(messages)),
            ("add_generation_prompt", add_generation_prompt.into()),
            ("tools", none.clone()),
            ("documents", none),
        ];
        for (key, token) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            if let Some(token) = token {
                context.push((key, token.as_str().into()));
            }
        }
        let context: Jinja = context.into_iter().collect();
        let template = self.env.get_template(&self.name)?;
        template.render_captured_to(context, to).map(drop)
    }

    /// The token that ends an assistant's turn, as `<|im_end|>`: the first thing that the template
    /// puts behind an answer, if it is an added token of the tokenizer.
    #[must_use]
    pub fn end_token(&self, tokenizer: &Tokenizer) -> Option<TokenId> {
        let turns = [Message::new("user", "?"), Message::new("assistant", PROBE)];
        let text = self.render(&turns, false).ok()?;
        let (_, behind) = text.rsplit_once(PROBE)?;
        tokenizer.added_at_start(behind.trim_start())
    }
}

/// The template engine's error in one line.
fn explain(name: &str, error: &minijinja::Error) -> TextError {
    let detail = error.detail().unwrap_or_default();
    let message = if error.kind() == ErrorKind::UnknownFunction && detail.contains("strftime_now") {
        "it asks for today's date (strftime_now), and a prompt here is a function of the messages \
         alone; use a template with a fixed date"
            .to_owned()
    } else if error.kind() == ErrorKind::OutOfFuel {
        format!("it does not end within {FUEL} steps")
    } else {
        let place = error.line().map(|line| format!(" (line {line})"));
        let place = place.unwrap_or_default();
        if detail.is_empty() {
            format!("{}{place}", error.kind())
        } else {
            format!("{}: {detail}{place}", error.kind())
        }
    };
    refused(name, message)
}

fn refused(name: &str, message: String) -> TextError {
    TextError::Template {
        name: name.to_owned(),
        message,
    }
}

/// The file's text, `None` if there is no such file.
fn read(file: &Source) -> Result<Option<String>, TextError> {
    let text = |bytes| String::from_utf8(bytes).map_err(io::Error::other);
    match file.read().and_then(text) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Read {
            path: file.path().to_owned(),
            source,
        }),
    }
}

fn parse(path: &Path, text: &str) -> Result<Value, TextError> {
    let value: Value = serde_json::from_str(text).map_err(|error| json(path, error.to_string()))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(json(path, "must be an object".to_owned()))
    }
}

fn json(path: &Path, message: String) -> TextError {
    TextError::Json {
        path: path.to_owned(),
        message,
    }
}

/// `chat_template`: a string, or a list of `{name, template}`.
fn chosen(path: &Path, config: &Value) -> Result<Option<String>, TextError> {
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => Ok(Some(source.clone())),
        Some(Value::Array(list)) => {
            let default = list
                .iter()
                .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
            let source = default
                .and_then(|entry| entry.get("template"))
                .and_then(Value::as_str);
            source.map(|source| Some(source.to_owned())).ok_or_else(|| {
                json(
                    path,
                    "chat_template is a list without a template named \"default\"".to_owned(),
                )
            })
        }
        Some(other) => Err(json(
            path,
            format!("chat_template {other}: must be a string or a list of {{name, template}}"),
        )),
    }
}

/// A special token: a string, or an object with `content`.
fn special(path: &Path, config: &Value, key: &str) -> Result<Option<String>, TextError> {
    let value = config.get(key).unwrap_or(&Value::Null);
    match value.get("content").unwrap_or(value) {
        Value::Null => Ok(None),
        Value::String(token) => Ok(Some(token.clone())),
        other => Err(json(
            path,
            format!("{key} {other}: must be a string or an object with `content`"),
        )),
    }
}

#[cfg(test)]
mod tests;
