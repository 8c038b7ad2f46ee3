//! The card of a target: what it is, how it was made, how well it knows the texts.

use std::{ffi::OsString, fmt::Write};

use anyhow::{Context, Result};

use super::{super::card::made, Config};
use crate::train::{TargetTrainer, Texts};

/// Writes `README.md` beside the model.
pub(super) fn write(
    config: &Config,
    texts: &Texts,
    trainer: &TargetTrainer,
    line: &[OsString],
) -> Result<()> {
    let path = config.out.join("README.md");
    let text = text(config, texts, trainer, line)?;
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

fn text(
    config: &Config,
    texts: &Texts,
    trainer: &TargetTrainer,
    line: &[OsString],
) -> Result<String> {
    let recipe = &config.recipe;
    let ((count, bytes), (train, held)) = (texts.size(), trainer.tokens());
    let (_, epochs) = trainer.epochs();
    let mut text = String::new();
    writeln!(
        text,
        "# A small llama\n\nIt goes on with text of the kind that it was made of. It knows nothing and \
         answers nothing; it is there to try decoding with.\n"
    )?;
    writeln!(text, "| | |\n|---|---|")?;
    writeln!(
        text,
        "| sizes | {} parameters: {} layers, width {}, feed-forward {}, {} heads, {} key heads, {} tokens, \
         {} positions, embedding and output head shared, bf16 |",
        recipe.parameters(),
        recipe.layers,
        recipe.hidden,
        recipe.ffn,
        recipe.heads,
        recipe.kv_heads,
        recipe.vocab,
        recipe.context,
    )?;
    writeln!(
        text,
        "| data | {count} texts, {bytes} bytes (sha256 of their lengths and bytes `{}`), {train} tokens, and \
         {held} held out: the last 2 % of each text |",
        texts.sha256(),
    )?;
    writeln!(
        text,
        "| training | {} steps of {} windows, {epochs:.2} epochs, AdamW, highest rate {}, seed {} |",
        recipe.steps, recipe.batch, recipe.rate, recipe.seed,
    )?;
    made(&mut text, line)?;
    if trainer.history().is_empty() {
        writeln!(text, "No text was held out to measure with.")?;
        return Ok(text);
    }
    writeln!(
        text,
        "## Perplexity\n\nOf the held-out tokens, in windows of {} that are read from their start, before \
         the weights are rounded.\n",
        recipe.context
    )?;
    writeln!(text, "| after steps | loss | perplexity |\n|---|---|---|")?;
    for (steps, loss) in trainer.history() {
        writeln!(text, "| {steps} | {loss:.3} | {:.1} |", loss.exp())?;
    }
    Ok(text)
}
