//! The card of a head: what it is, how it was made, how well it guesses.

use std::{ffi::OsString, fmt::Write, path::Path};

use anyhow::{Context, Result};

use super::Config;
use crate::{
    cli::{bench::COMMIT, models::Opened},
    draft::eagle::Version,
    train::Trainer,
};

/// Writes `README.md` beside the head.
pub(super) fn write(
    config: &Config,
    target: &Opened,
    trainer: &Trainer,
    line: &[OsString],
) -> Result<()> {
    let path = config.out.join("README.md");
    let text = text(config, target, trainer, line)?;
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

/// The rows of a card that say how it was made: the command, the version, the commit.
pub(super) fn made(text: &mut String, line: &[OsString]) -> Result<()> {
    let command: Vec<_> = line.iter().map(|word| word.to_string_lossy()).collect();
    writeln!(text, "| command | `{}` |", command.join(" "))?;
    let version = env!("CARGO_PKG_VERSION");
    writeln!(text, "| made by | eyrie {version}, commit {COMMIT} |\n")?;
    Ok(())
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn text(config: &Config, target: &Opened, trainer: &Trainer, line: &[OsString]) -> Result<String> {
    let mut text = String::new();
    let (recipe, facts) = (&config.recipe, trainer.facts());
    let (sequences, held) = trainer.sequences();
    let [first, second] = trainer.totals();
    let model = name(target.checkpoint.path());
    let (name, paper, feature) = match recipe.head {
        Version::Eagle1 => {
            let feature =
                "the target's normed last stream as its feature, and the target's output head";
            ("EAGLE-1", "2401.15077", feature.to_owned())
        }
        Version::Eagle3 => {
            let feature = format!(
                "taps {:?} (layer inputs), {} draft tokens",
                facts.taps, recipe.draft_vocab
            );
            ("EAGLE-3", "2503.01840", feature)
        }
    };
    writeln!(text, "# {name} head for {model}\n")?;
    writeln!(
        text,
        "A draft head for speculative decoding ({name}, arXiv {paper}), in the form of the paper's own code: one \
         layer, {feature}, {}.\n",
        crate::train::HeadType::from(config.head_type).name(),
    )?;
    writeln!(text, "| | |\n|---|---|")?;
    writeln!(
        text,
        "| target | {model} (fingerprint `{}`) |",
        facts.target
    )?;
    writeln!(
        text,
        "| data | {sequences} answers of the target itself, {} tokens, at temperatures {:?}, at most {} \
         tokens each, weights {}, seed {} |",
        trainer.answer_tokens(),
        facts.temperatures,
        facts.max_tokens,
        facts.dtype,
        facts.seed,
    )?;
    writeln!(
        text,
        "| training | {first} steps of {} epochs on true features, {second} of {} unrolled {} steps, about {} \
         rows a step, rates {:?} |",
        recipe.epochs[0], recipe.epochs[1], recipe.unroll, recipe.rows, recipe.rates,
    )?;
    writeln!(
        text,
        "| coverage | {:.1} % of the answers' tokens are draft tokens |",
        100.0 * trainer.coverage()
    )?;
    made(&mut text, line)?;
    if trainer.history().is_empty() {
        writeln!(text, "No answers were held out to measure with.")?;
        return Ok(text);
    }
    writeln!(
        text,
        "## Acceptance\n\nOn {held} held-out answers at the lowest temperature of the data: how often the guess at \
         each position is right if all before it are, and the mean acceptance length of chains of {} \
         guesses, the token after them included. `ngram` guesses that the text repeats itself, and costs \
         nothing; \"both\" asks it first and the head where it is silent. These answers chose nothing, but \
         they are of the same prompts' kinds as the training data.\n",
        crate::train::DEPTH
    )?;
    writeln!(
        text,
        "| after | loss | 1 | 2 | 3 | 4 | length | ngram | both |\n|---|---|---|---|---|---|---|---|---|"
    )?;
    for (after, measured) in trainer.history() {
        let [a, b, c, d] = measured.rates();
        let [head, ngram, both] = measured.walks.map(|walk| walk.length());
        let after = after.map_or_else(|| "the start values".to_owned(), |place| place.to_string());
        writeln!(
            text,
            "| {after} | {:.3} | {a:.3} | {b:.3} | {c:.3} | {d:.3} | {head:.3} | {ngram:.3} | {both:.3} |",
            measured.loss
        )?;
    }
    Ok(text)
}
