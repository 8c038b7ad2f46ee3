//! What is asked: conversations from files, and the requests of their turns.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{plan::Plan, provenance::FileFacts};
use crate::{
    TokenId,
    cli::error::usage,
    request::{Request, RequestError, RequestSpec, Resolver},
    sample::{RawParams, derive_line},
    text::Message,
};

/// A line of a file of prompts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<String>,
    domain: Option<String>,
    #[serde(rename = "category")]
    _category: Option<String>,
    turns: Option<Vec<String>>,
    prompt: Option<String>,
    prompt_ids: Option<Vec<TokenId>>,
}

/// What a user says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// Messages, each after the answer to the one before.
    Turns(Vec<String>),
    /// One prompt as tokens.
    Ids(Vec<TokenId>),
}

/// A conversation to be had.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Conversation {
    pub(super) id: String,
    pub(super) domain: String,
    pub(super) said: Said,
}

impl Conversation {
    pub(super) fn turns(&self) -> usize {
        match &self.said {
            Said::Turns(turns) => turns.len(),
            Said::Ids(_) => 1,
        }
    }

    /// How its turn is called.
    pub(super) fn name(&self, turn: usize) -> String {
        match self.turns() {
            1 => self.id.clone(),
            _ => format!("{} turn {}", self.id, turn + 1),
        }
    }
}

/// What the files of prompts hold, each read once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompts {
    pub(super) conversations: Vec<Conversation>,
    /// Of the bytes that were read.
    pub(super) files: Vec<FileFacts>,
}

/// Reads the files of prompts, of each the first so many lines.
///
/// # Errors
/// A file that cannot be read or has no prompt, a line that is none, an id given twice; a flag for texts
/// where there are none.
pub(super) fn read(plan: &Plan) -> Result<Prompts> {
    let (mut all, mut files) = (Vec::new(), Vec::new());
    let mut ids = BTreeSet::new();
    for path in &plan.prompts {
        let about = || format!("--prompts {}", path.display());
        let content = std::fs::read(path).with_context(about)?;
        files.push(FileFacts::of_content(path, &content));
        let text = std::str::from_utf8(&content).with_context(about)?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy());
        let stem = stem.unwrap_or_default().into_owned();
        let lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
        let lines = lines.filter(|(line, _)| !line.trim().is_empty());
        let before = all.len();
        for (line, number) in lines.take(plan.take.unwrap_or(usize::MAX)) {
            let about = || format!("{}: line {number}", about());
            let conversation = conversation(line, &stem, number).with_context(about)?;
            if !ids.insert(conversation.id.clone()) {
                return Err(anyhow::anyhow!("id {:?} is given twice", conversation.id))
                    .with_context(about);
            }
            all.push(conversation);
        }
        if all.len() == before {
            return usage("--prompts", format!("{} has no prompt", path.display()));
        }
    }
    if let Some(chat) = plan.chat
        && self::ids(&all) == all.len()
    {
        let flag = if chat { "--chat" } else { "--raw" };
        return usage(flag, "needs a prompt of text; all are token ids");
    }
    Ok(Prompts {
        conversations: all,
        files,
    })
}

fn conversation(line: &str, stem: &str, number: usize) -> Result<Conversation> {
    let line: Line = serde_json::from_str(line)?;
    let said = match (line.turns, line.prompt, line.prompt_ids) {
        (Some(turns), None, None) if !turns.is_empty() => Said::Turns(turns),
        (None, Some(prompt), None) => Said::Turns(vec![prompt]),
        (None, None, Some(ids)) if !ids.is_empty() => Said::Ids(ids),
        _ => bail!("accepted is one of turns, prompt and prompt_ids, not empty"),
    };
    Ok(Conversation {
        id: line.id.unwrap_or_else(|| format!("{stem}:{number}")),
        domain: line.domain.unwrap_or_else(|| stem.to_owned()),
        said,
    })
}

/// Makes requests of turns.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) resolver: Resolver,
    /// Prompts go through the chat template.
    pub(super) chat: bool,
    pub(super) max_tokens: usize,
    pub(super) ignore_eos: bool,
    pub(super) seed: u64,
}

impl Asker {
    /// The request of turn `answers.len()` of the conversation at `place`, after these answers.
    pub(super) fn ask(
        &self,
        conversation: &Conversation,
        place: usize,
        answers: &[String],
        temperature: f64,
    ) -> Result<Request, RequestError> {
        let turn = answers.len();
        let mut spec = RequestSpec {
            max_tokens: self.max_tokens,
            ignore_eos: self.ignore_eos,
            sampling: RawParams {
                temperature,
                ..RawParams::default()
            },
            ..RequestSpec::default()
        };
        match &conversation.said {
            Said::Ids(ids) => spec.prompt_ids = Some(ids.clone()),
            Said::Turns(turns) if self.chat => spec.messages = Some(messages(turns, answers)),
            Said::Turns(turns) => spec.prompt = Some(joined(turns, answers)),
        }
        let seed = derive_line(derive_line(self.seed, place as u64), turn as u64);
        self.resolver.resolve(&spec, &conversation.id, seed)
    }

    /// Refuses what cannot be asked whatever is answered: every turn has to fit behind empty answers.
    ///
    /// # Errors
    /// Naming the turn.
    pub(super) fn check(&self, conversations: &[Conversation]) -> Result<()> {
        for (place, conversation) in conversations.iter().enumerate() {
            for turn in 0..conversation.turns() {
                let asked = self.ask(conversation, place, &vec![String::new(); turn], 0.0);
                asked.with_context(|| format!("--prompts: {}", conversation.name(turn)))?;
            }
        }
        Ok(())
    }

    /// The beginning of a conversation's first prompt, as the model is shown it.
    pub(super) fn head(&self, conversation: &Conversation) -> String {
        const MOST: usize = 240;
        let text = match (&conversation.said, &self.resolver.chat) {
            (Said::Ids(ids), _) => format!("{ids:?}"),
            (Said::Turns(turns), Some(template)) if self.chat => template
                .render(&messages(turns, &[]), true)
                .unwrap_or_else(|error| error.to_string()),
            (Said::Turns(turns), _) => joined(turns, &[]),
        };
        text.chars().take(MOST).collect()
    }
}

/// The conversation so far and the next message.
fn messages(turns: &[String], answers: &[String]) -> Vec<Message> {
    let mut messages = Vec::new();
    for (i, turn) in turns.iter().take(answers.len() + 1).enumerate() {
        messages.push(Message::new("user", turn));
        messages.extend(answers.get(i).map(|text| Message::new("assistant", text)));
    }
    messages
}

/// The same as plain text, a blank line before each further message.
fn joined(turns: &[String], answers: &[String]) -> String {
    let mut text = String::new();
    for (i, turn) in turns.iter().take(answers.len() + 1).enumerate() {
        text += turn;
        if let Some(answer) = answers.get(i) {
            text += answer;
            text += "\n\n";
        }
    }
    text
}

/// How many conversations are token ids instead of text.
pub(super) fn ids(conversations: &[Conversation]) -> usize {
    let ids = |conversation: &&Conversation| matches!(conversation.said, Said::Ids(_));
    conversations.iter().filter(ids).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_line_is_a_conversation() {
        let one = conversation(r#"{"turns":["a","b"],"domain":"d","category":"c"}"#, "f", 3);
        let one = one.expect("a conversation");
        assert_eq!(
            (one.id.as_str(), one.domain.as_str(), one.turns()),
            ("f:3", "d", 2)
        );
        let two = conversation(r#"{"prompt":"a","id":"x"}"#, "f", 1).expect("a prompt");
        assert_eq!(
            (two.id.as_str(), two.domain.as_str(), two.turns()),
            ("x", "f", 1)
        );
        for wrong in [
            "{}",
            r#"{"turns":[]}"#,
            r#"{"prompt_ids":[]}"#,
            r#"{"prompt":"a","turns":["b"]}"#,
            r#"{"promt":"a"}"#,
            r#"{"prompt":"a","prompt":"b"}"#,
            "[1]",
        ] {
            conversation(wrong, "f", 1).expect_err(wrong);
        }
    }

    #[test]
    fn answers_go_into_the_next_prompt() {
        let (turns, answers) = (texts(&["a", "b", "c"]), texts(&["1", "2"]));
        assert_eq!(joined(&turns, &answers[..1]), "a1\n\nb");
        let said = messages(&turns, &answers);
        let said: Vec<_> = said
            .iter()
            .map(|m| (m.role.as_str(), m.content.as_str()))
            .collect();
        let user = |text| ("user", text);
        let assistant = |text| ("assistant", text);
        let whole = [
            user("a"),
            assistant("1"),
            user("b"),
            assistant("2"),
            user("c"),
        ];
        assert_eq!(said, whole);
    }
}
