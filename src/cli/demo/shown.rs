//! A demo in words.

use std::{fmt::Write, path::Path};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{
    Config,
    columns::{Look, Painted, side_by_side},
    law::Law,
};
use crate::{
    TokenId,
    cli::{
        bench::{Beside, Side},
        embedded,
    },
    report::RoundCount,
};

/// Where a small chat model and its head are looked for.
const SMOLLM2: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
const SMOLLM2_HEAD: &str = "assets/smollm2-135m-eagle3";

/// What is shown, and how.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) config: &'a Config,
    pub(super) beside: &'a Beside,
    pub(super) look: Look,
}

impl Shown<'_> {
    /// The two sides' names.
    fn names(&self) -> [&'static str; 2] {
        ["plain", self.beside.drafter()]
    }

    /// The answers, their tokens compared, and what the drafts cost and gave.
    pub(super) fn answers(&self) -> Result<String> {
        let [plain, drafted] = self.beside.sides()?;
        let names = self.names();
        let mut out = format!(
            "{} with drafts of {} ({}, chains of {}), temperature 0\nprompt: {}\n\n",
            self.config.model.display(),
            self.config.draft.display(),
            names[1],
            self.config.depth,
            crate::error::printable(&self.config.prompt),
        );
        let kept = if self.look.colour {
            ", accepted drafts in colour"
        } else {
            ""
        };
        let passes = [plain, drafted].map(|side| side.rounds().count());
        let titles = [
            format!("plain decoding: {} passes", passes[0]),
            format!("with drafts: {} passes{kept}", passes[1]),
        ];
        let texts = [self.painted(plain)?, self.painted(drafted)?];
        out += &side_by_side([&titles[0], &titles[1]], [&texts[0], &texts[1]], self.look);
        out.push('\n');
        let tokens = drafted.tokens().len();
        if self.beside.equal_tokens() {
            let repeats = self.config.repeats;
            writeln!(
                out,
                "The {tokens} tokens are the same, in all {repeats} repeats of both."
            )?;
        }
        out += &figures(plain, drafted, names)?;
        Ok(out)
    }

    /// An answer, its accepted drafts bright.
    fn painted(&self, side: Side<'_>) -> Result<Painted> {
        let accepted = accepted(side.rounds(), side.tokens().len());
        let mut text = Painted::default();
        let tokens = side.tokens().iter().zip(accepted);
        let Some(tokenizer) = &self.beside.opened().tokenizer else {
            for (token, bright) in tokens {
                text.push(&format!("{token} "), bright);
            }
            return Ok(text);
        };
        let mut stream = tokenizer.stream();
        for (&token, bright) in tokens {
            text.push(&stream.push(token)?, bright);
        }
        text.push(&stream.finish()?, false);
        Ok(text)
    }

    /// The law, the verdict, and what else there is to try.
    pub(super) fn verdict(&self, law: &Law, seconds: f64) -> Result<String> {
        let mut out = format!(
            "\nThe law of the first two tokens at temperature 1, enumerated in {} cells, against samples:\n",
            law.cells
        );
        for line in law.lines(self.names())? {
            writeln!(out, "{line}")?;
        }
        let (verdict, alpha) = (law.verdict(), self.config.alpha);
        writeln!(out, "{verdict} (alpha {alpha:e}, {seconds:.1} s in all)")?;
        let tiny = self.config.model == Path::new(embedded::MODEL);
        if let Some(more) = tiny.then(|| offer(Path::new("."))).flatten() {
            writeln!(out, "\n{SMOLLM2} is here. Try:\n  {more}")?;
        }
        Ok(out)
    }

    /// All of it as one object.
    pub(super) fn json(&self, law: &Law, seconds: f64) -> Result<String> {
        let [plain, drafted] = self.beside.sides()?;
        let tokens: &[TokenId] = drafted.tokens();
        let tokenizer = self.beside.opened().tokenizer.as_ref();
        let text = tokenizer.map(|tokenizer| tokenizer.decode(tokens));
        let object = json!({
            "verdict": law.verdict().name(),
            "equal_tokens": self.beside.equal_tokens(),
            "prompt_ids": self.beside.prompt()?,
            "tokens": tokens,
            "text": text.transpose()?,
            "plain": plain.json(),
            "drafted": drafted.json(),
            "law": law.json(self.names()),
            "seconds": seconds,
            "config": self.config,
            "setup": self.beside.setup(),
        });
        Ok(format!("{object}\n"))
    }
}

/// Which of `tokens` tokens were accepted drafts; the first one is the prompt's.
fn accepted(rounds: impl Iterator<Item = RoundCount>, tokens: usize) -> Vec<bool> {
    let mut all = vec![false];
    for round in rounds {
        all.extend((0..round.emitted).map(|at| at < round.accepted));
    }
    all.resize(tokens, false);
    all
}

/// Acceptance, time and speed.
fn figures(plain: Side<'_>, drafted: Side<'_>, names: [&str; 2]) -> Result<String> {
    let mut out = String::new();
    let acceptance = drafted.acceptance();
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"));
    let rates: Vec<String> = acceptance.unconditional().into_iter().map(number).collect();
    writeln!(
        out,
        "Acceptance: {} tokens a pass (with the target's own); by position {} of the rounds with drafts.",
        number(acceptance.mean_acceptance_length()),
        rates.join(" ")
    )?;
    for (side, name) in [plain, drafted].into_iter().zip(names) {
        let shares = shares(side.stages());
        let rate = side.tokens_per_s().unwrap_or_default();
        writeln!(out, "  {name:<10} {rate:.0} tokens/s; time: {shares}")?;
    }
    writeln!(out, "Speed: {}", drafted.verdict().unwrap_or_default())?;
    if cfg!(debug_assertions) {
        writeln!(
            out,
            "  A build with debug assertions: its times are no evidence; build with --release."
        )?;
    }
    Ok(out)
}

/// The stages that took time, with their shares of it.
fn shares(stages: &Map<String, Value>) -> String {
    let shares = stages.iter().filter_map(|(stage, share)| {
        let percent = 100.0 * share.as_f64()?;
        (percent >= 0.05).then(|| format!("{stage} {percent:.1} %"))
    });
    shares.collect::<Vec<_>>().join(", ")
}

/// A command for the chat model, if it lies in the folder; with its head, if that does.
fn offer(folder: &Path) -> Option<String> {
    let ask = "--prompt \"Explain what a prime number is.\"";
    match [SMOLLM2, SMOLLM2_HEAD].map(|path| folder.join(path).exists()) {
        [false, _] => None,
        [true, true] => Some(format!(
            "eyrie demo --model {SMOLLM2} --draft {SMOLLM2_HEAD} {ask}"
        )),
        [true, false] => Some(format!(
            "eyrie generate --model {SMOLLM2} --chat --drafter ngram {ask}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_drafts_are_the_first_of_a_round() {
        let round = |accepted, emitted| RoundCount {
            drafted: 4,
            accepted,
            emitted,
        };
        let rounds = [round(2, 3), round(0, 1), round(1, 1)];
        let expected = [false, true, true, false, false, true];
        assert_eq!(accepted(rounds.into_iter(), 6), expected);
        assert_eq!(accepted([].into_iter(), 1), [false]);
    }

    #[test]
    fn the_chat_model_is_offered_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(offer(dir.path()), None);
        std::fs::create_dir(dir.path().join("models")).unwrap();
        std::fs::write(dir.path().join(SMOLLM2), "").unwrap();
        assert!(offer(dir.path()).unwrap().starts_with("eyrie generate "));
        std::fs::create_dir_all(dir.path().join(SMOLLM2_HEAD)).unwrap();
        assert!(offer(dir.path()).unwrap().starts_with("eyrie demo "));
    }
}
