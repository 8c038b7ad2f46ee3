//! What goes to stderr, and the exit status.

use std::io::ErrorKind;

use crate::error::printable;

/// The command line asks for something that cannot be meant: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Results cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("stdout")]
pub(super) struct Unwritable(#[source] pub(super) std::io::Error);

/// Wrong usage of `flag`.
pub(super) fn usage<T>(flag: &str, reason: impl std::fmt::Display) -> anyhow::Result<T> {
    Err(Usage(format!("{flag}: {reason}")).into())
}

/// One line: the message and its causes. A cause that its parent has spelled out is left away.
pub(super) fn line(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = one_line(&cause.to_string());
        if !parts.last().is_some_and(|parent| parent.ends_with(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// The exit status of a failed run.
pub(super) fn status(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        2
    } else {
        1
    }
}

/// Whether the reader of our results has gone, which is no failure of ours.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let stdout = error.downcast_ref::<Unwritable>();
    stdout.is_some_and(|Unwritable(error)| error.kind() == ErrorKind::BrokenPipe)
}

/// clap's message without its usage and pointers to help, which would be further lines.
pub(super) fn of_clap(error: &clap::Error) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing; eyrie --help lists them".to_owned();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let wanted = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more");
    let parts: Vec<String> = text.split("\n\n").filter(wanted).map(one_line).collect();
    parts.join("; ")
}

/// The text with every run of white space as one blank, and nothing that a terminal would obey.
pub(super) fn one_line(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn joins_causes_once() {
        let io = std::io::Error::new(ErrorKind::NotFound, "no\nsuch file");
        let error = anyhow::Error::from(io)
            .context("a.gguf: no such file")
            .context("--model");
        assert_eq!(line(&error), "--model: a.gguf: no such file");
        let other: anyhow::Result<()> = Err(anyhow::anyhow!("deep")).context("outer");
        assert_eq!(line(&other.unwrap_err()), "outer: deep");
    }

    #[test]
    fn a_line_has_nothing_that_a_terminal_obeys() {
        assert_eq!(
            one_line("a\x1b[31m\n\u{1c}\u{9b}é"),
            "a\\u{1b}[31m \\u{1c}\\u{9b}é"
        );
    }

    #[test]
    fn tells_usage_from_failure() {
        assert_eq!(status(&usage::<()>("--depth", "no").unwrap_err()), 2);
        assert_eq!(status(&anyhow::anyhow!("no")), 1);
        let pipe = || std::io::Error::from(ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&Unwritable(pipe()).into()));
        assert!(!is_broken_pipe(
            &anyhow::Error::from(pipe()).context("--trace f")
        ));
        let full = Unwritable(std::io::Error::other("full"));
        assert_eq!(line(&full.into()), "stdout: full");
    }
}
