//! A training from its beginning, or from where it was stopped, to its end.

use std::{
    ffi::OsString,
    fs,
    io::Write,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rayon::ThreadPoolBuilder;

use super::{Config, card};
use crate::{
    TokenId,
    cli::{
        error::{Unwritable, usage},
        interrupt,
        models::Opened,
        say,
    },
    text::Message,
    train::{Data, Measured, Place, Stepped, Trainer},
};

/// Between two lines of progress.
pub(super) const LINE: Duration = Duration::from_secs(15);
/// Where the state is kept, in the folder of the head.
pub(super) const STATE: &str = "training";

pub(super) fn run(config: &Config, target: &Opened, line: &[OsString]) -> Result<()> {
    for warning in &target.warnings {
        say("warning", warning);
    }
    let about = || format!("--data {}", config.data.display());
    let data = Data::of(&config.data, &target.checkpoint).with_context(about)?;
    interrupt::listen()?;
    let pool = ThreadPoolBuilder::new().num_threads(config.threads);
    // A second command in one process keeps the first one's threads.
    let _ = pool.build_global();
    let folder = config.out.join(STATE);
    let state = folder.join("state.safetensors");
    let forced = forced(target)?;
    let (recipe, checkpoint) = (config.recipe.clone(), &target.checkpoint);
    let trainer = if state.exists() {
        say("note", &format!("going on from {}", state.display()));
        Trainer::resume(&state, checkpoint, data, recipe, &forced)?
    } else {
        let finished = config.out.join("model.safetensors");
        if finished.exists() {
            let out = config.out.display();
            let reason = format!("{out} has a head already; accepted is a new folder");
            return usage("--out", reason);
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Trainer::new(checkpoint, data, recipe, &forced)?
    };
    let mut run = Run {
        config,
        trainer,
        state,
        spent: Duration::ZERO,
        rows: 0,
    };
    run.introduce()?;
    run.train()?;
    run.trainer
        .export(checkpoint, config.head_type.into(), &config.out)?;
    card::write(config, target, &run.trainer, line)?;
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    print(&config.out.display().to_string())
}

/// Tokens that the draft vocabulary has to have: those that end an answer, and those of the template.
fn forced(target: &Opened) -> Result<Vec<TokenId>> {
    let mut forced = target.eos();
    if let (Some(chat), Some(tokenizer)) = (&target.chat, &target.tokenizer) {
        let turns = [Message::new("user", "?"), Message::new("assistant", "?")];
        forced.extend(tokenizer.encode(&chat.render(&turns, true)?)?);
    }
    Ok(forced)
}

struct Run<'a> {
    config: &'a Config,
    trainer: Trainer,
    state: PathBuf,
    /// Time that steps took.
    spent: Duration,
    /// Rows judged in them.
    rows: usize,
}

impl Run<'_> {
    fn introduce(&self) -> Result<()> {
        let trainer = &self.trainer;
        let (sequences, held) = trainer.sequences();
        let [first, second] = trainer.totals();
        print(&format!(
            "{sequences} sequences with {} answer tokens, {held} held out; {} draft tokens cover {:.1} % of the \
             answers; {first} + {second} steps",
            trainer.answer_tokens(),
            trainer.recipe().draft_vocab,
            100.0 * trainer.coverage(),
        ))
    }

    fn train(&mut self) -> Result<()> {
        if self.trainer.history().is_empty() {
            self.measure(None)?;
        }
        let every = Duration::from_secs(self.config.save_every.into());
        let (mut saved, mut told) = (Instant::now(), Instant::now());
        loop {
            let begun = Instant::now();
            let Some(stepped) = self.trainer.step()? else {
                return Ok(());
            };
            self.spent += begun.elapsed();
            self.rows += stepped.rows;
            if told.elapsed() >= LINE || stepped.ends_epoch {
                self.tell(&stepped)?;
                told = Instant::now();
            }
            if stepped.ends_epoch {
                self.measure(Some(stepped.place))?;
            }
            if interrupt::asked() {
                self.trainer.save(&self.state)?;
                bail!(
                    "stopped; saved in {}: the same command goes on",
                    self.state.display()
                );
            }
            if saved.elapsed() >= every || stepped.ends_epoch {
                self.trainer.save(&self.state)?;
                saved = Instant::now();
            }
        }
    }

    fn tell(&self, stepped: &Stepped) -> Result<()> {
        let place = stepped.place;
        #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
        let speed = self.rows as f64 / self.spent.as_secs_f64();
        print(&format!(
            "{place}/{} step {}/{}: loss {:.3}, gradient {:.2}, rate {:.1e}, {speed:.0} rows/s",
            self.config.recipe.epochs[place.phase],
            place.step + 1,
            stepped.of,
            stepped.loss,
            stepped.gradient,
            stepped.rate,
        ))
    }

    /// Measures after a step, or before the first, if anything is held out.
    fn measure(&mut self, after: Option<Place>) -> Result<()> {
        if self.config.recipe.held_out == 0 {
            return Ok(());
        }
        let measured = words(self.trainer.note(after)?);
        let when = after.map_or_else(|| "start".to_owned(), |place| place.to_string());
        print(&format!("{when}: {measured}"))
    }
}

/// What was measured, in a line.
fn words(measured: &Measured) -> String {
    let rates = measured.rates().map(|rate| format!("{:.1}", 100.0 * rate));
    let [head, ngram, both] = measured.walks.map(|walk| walk.length());
    format!(
        "held out: loss {:.3}; right {} % if all before are; length {head:.3} (ngram {ngram:.3} and {:.1} %, ngram \
         else head {both:.3}); {} rows, {:.1} % covered",
        measured.loss,
        rates.join(" "),
        100.0 * measured.ngram_rate(),
        measured.rows,
        100.0 * measured.coverage(),
    )
}

pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    Ok(written.map_err(Unwritable)?)
}
