//! What goes to stdout: streamed text, or results in input order.

use std::{
    collections::BTreeMap,
    io::{Stdout, Write},
};

use anyhow::Result;
use serde::Serialize;

use super::{error::Unwritable, plan::Plan};
use crate::{TokenId, report::ChoiceReport};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object a line.
    Json,
    /// The text of the only choice, as it comes.
    Stream,
    /// The texts of several, each under a header.
    Sections,
}

/// A line of `--json`.
#[derive(Debug, Serialize)]
struct Record<'a> {
    #[serde(flatten)]
    report: &'a ChoiceReport,
    config: &'a Plan,
}

/// Writer of results. A result waits for those before it.
#[derive(Debug)]
pub(super) struct Output {
    form: Form,
    to: Stdout,
    /// Results that are expected of each request.
    choices: Vec<usize>,
    /// Request and choice that is printed next.
    next: (usize, usize),
    waiting: BTreeMap<(usize, usize), String>,
    /// The stream's last character ended a line.
    line_ended: bool,
}

impl Output {
    pub(super) fn new(form: Form, choices: Vec<usize>) -> Self {
        Self {
            form,
            to: std::io::stdout(),
            choices,
            next: (0, 0),
            waiting: BTreeMap::new(),
            line_ended: true,
        }
    }

    /// Request `index` failed before it had choices: one result is expected of it.
    pub(super) fn refused(&mut self, index: usize) {
        self.choices[index] = 1;
    }

    /// A token was delivered, and with it `text`; a model without a tokenizer has `None`.
    pub(super) fn piece(&mut self, token: Option<TokenId>, text: Option<&str>) -> Result<()> {
        if self.form != Form::Stream {
            return Ok(());
        }
        let piece = match (text, token) {
            (Some(text), _) => text.to_owned(),
            (None, Some(token)) if self.line_ended => token.to_string(),
            (None, Some(token)) => format!(" {token}"),
            (None, None) => String::new(),
        };
        if !piece.is_empty() {
            self.line_ended = piece.ends_with('\n');
            self.write(&piece)?;
            self.to.flush().map_err(Unwritable)?;
        }
        Ok(())
    }

    /// Choice `report.choice` of request `index` ended.
    pub(super) fn finished(
        &mut self,
        index: usize,
        report: &ChoiceReport,
        config: &Plan,
    ) -> Result<()> {
        let text = match self.form {
            Form::Json => format!("{}\n", serde_json::to_string(&Record { report, config })?),
            Form::Stream if self.line_ended => String::new(),
            Form::Stream => "\n".to_owned(),
            Form::Sections => section(report, self.choices[index]),
        };
        self.waiting.insert((index, report.choice), text);
        while let Some(text) = self.waiting.remove(&self.next) {
            self.write(&text)?;
            self.next.1 += 1;
            if self.next.1 >= self.choices[self.next.0] {
                self.next = (self.next.0 + 1, 0);
            }
        }
        Ok(self.to.flush().map_err(Unwritable)?)
    }

    fn write(&mut self, text: &str) -> Result<(), Unwritable> {
        self.to.write_all(text.as_bytes()).map_err(Unwritable)
    }
}

/// A result under its header.
fn section(report: &ChoiceReport, choices: usize) -> String {
    let choice = match choices {
        1 => String::new(),
        _ => format!(" choice {}", report.choice),
    };
    let body = match (&report.text, &report.error) {
        (_, Some(error)) if report.tokens.is_empty() => format!("error: {error}"),
        (Some(text), _) => text.clone(),
        (None, _) => {
            let ids: Vec<_> = report.tokens.iter().map(u32::to_string).collect();
            ids.join(" ")
        }
    };
    let end = if body.ends_with('\n') { "" } else { "\n" };
    format!("== {}{choice}\n{body}{end}", report.id)
}
