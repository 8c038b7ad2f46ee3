//! What `generate --host-semantics` gives for a request of a server.

use eyrie::{
    cli::prepare,
    report::ChoiceReport,
    request::{RequestSpec, Resolver},
    schedule::{Engine, Event},
};
use eyrie_fixtures::tokenizer;
use eyrie_host_client::Request;
use eyrie_mistralrs::Options;
use serde_json::{Map, Value, json};

/// An engine without a host around it.
pub(crate) struct Bare {
    engine: Engine,
    resolver: Resolver,
}

impl Bare {
    pub(crate) fn new(options: &Options) -> Self {
        let prepared = prepare(&options.setup, options.rule).expect("it loads");
        Self {
            engine: Engine::new(prepared.parts, prepared.options).expect("valid settings"),
            resolver: prepared.resolver,
        }
    }

    /// The choices of `request`, by index.
    pub(crate) fn answer(&mut self, request: &Request, seed: u64) -> Vec<ChoiceReport> {
        let line = Value::Object(line(request)).to_string();
        let spec = RequestSpec::from_line(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let resolved = self.resolver.resolve(&spec, "1", seed);
        let resolved = resolved.unwrap_or_else(|error| panic!("{line}: {error}"));
        self.engine.submit(resolved).expect("a valid request");
        let mut choices = Vec::new();
        while !self.engine.is_idle() {
            let ended = self
                .engine
                .step()
                .into_iter()
                .filter_map(|event| match event {
                    Event::Finished { report, .. } => Some(report),
                    Event::Piece { .. } | Event::Round { .. } => None,
                });
            choices.extend(ended);
        }
        choices.sort_by_key(|choice| choice.choice);
        choices
    }

    /// The text of a token by itself.
    pub(crate) fn spell(&self, id: u32) -> String {
        let tokenizer = self.resolver.tokenizer.as_ref().expect("a tokenizer");
        tokenizer.hf().decode(&[id], false).expect("a token")
    }
}

/// The line of a requests file that asks for the same as the body of `request`.
fn line(request: &Request) -> Map<String, Value> {
    // Without a length the host goes on to the end of the context, and without a temperature it is 1.
    let mut line = Map::from_iter([
        ("host_semantics".to_owned(), json!(true)),
        ("max_tokens".to_owned(), json!(1000)),
        ("temperature".to_owned(), json!(1.0)),
    ]);
    let chat = request.path.contains("chat");
    for (key, value) in &request.body {
        match key.as_str() {
            "stream" | "top_logprobs" => {}
            "stop" => stops(value, &mut line),
            "logprobs" if chat => {
                let top = request.body.get("top_logprobs").cloned();
                line.insert(key.clone(), top.unwrap_or(json!(1)));
            }
            _ => {
                line.insert(key.clone(), value.clone());
            }
        }
    }
    line
}

/// The host makes a stop token of a stop text that is one token, if no other token begins with it.
fn stops(value: &Value, line: &mut Map<String, Value>) {
    let texts = value.as_array().cloned().unwrap_or(vec![value.clone()]);
    let tokens = tokenizer::tokens();
    let (ids, texts): (Vec<_>, Vec<_>) = texts.into_iter().partition(|text| {
        let text = text.as_str().expect("a text");
        let begins = |token: &&String| token.starts_with(text) && *token != text;
        tokens.contains(&text.to_owned()) && !tokens.iter().any(|token| begins(&token))
    });
    let id = |text: &Value| tokens.iter().position(|token| text == token);
    line.insert("stop_id".to_owned(), ids.iter().map(id).collect());
    line.insert("stop".to_owned(), texts.into());
}
