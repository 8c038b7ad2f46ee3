//! A training from its beginning, or from where it was stopped, to its end.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rayon::ThreadPoolBuilder;

use super::{
    super::run::{LINE, STATE, print},
    Config, card,
};
use crate::{
    cli::{error::usage, interrupt, say},
    train::{HeadType, TargetStepped, TargetTrainer, Texts},
};

/// How often it is measured.
const MEASURED: usize = 8;

pub(super) fn run(config: &Config, line: &[OsString]) -> Result<()> {
    let texts = Texts::read(&config.text).context("--text")?;
    interrupt::listen()?;
    let pool = ThreadPoolBuilder::new().num_threads(config.threads);
    // A second command in one process keeps the first one's threads.
    let _ = pool.build_global();
    let folder = config.out.join(STATE);
    let state = folder.join("state.safetensors");
    let recipe = config.recipe.clone();
    let trainer = if state.exists() {
        say("note", &format!("going on from {}", state.display()));
        TargetTrainer::resume(&state, &texts, recipe)?
    } else {
        if config.out.join("model.safetensors").exists() {
            let out = config.out.display();
            let reason = format!("{out} has a model already; accepted is a new folder");
            return usage("--out", reason);
        }
        let trainer = TargetTrainer::new(&texts, recipe)?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        trainer
    };
    let (count, bytes) = texts.size();
    let (train, held) = trainer.tokens();
    let (_, epochs) = trainer.epochs();
    print(&format!(
        "{count} texts of {bytes} bytes, {train} tokens and {held} held out; {} parameters; {} steps, {epochs:.1} \
         epochs",
        config.recipe.parameters(),
        config.recipe.steps,
    ))?;
    let mut run = Run {
        config,
        trainer,
        state,
        spent: Duration::ZERO,
        tokens: 0,
    };
    run.train()?;
    run.trainer.export(HeadType::Bf16, &config.out)?;
    card::write(config, &texts, &run.trainer, line)?;
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    print(&config.out.display().to_string())
}

struct Run<'a> {
    config: &'a Config,
    trainer: TargetTrainer,
    state: PathBuf,
    /// Time that steps took.
    spent: Duration,
    /// Tokens in them.
    tokens: usize,
}

impl Run<'_> {
    fn train(&mut self) -> Result<()> {
        let steps = self.config.recipe.steps;
        let between = steps.div_ceil(MEASURED);
        if self.trainer.history().is_empty() {
            self.measure()?;
        }
        let every = Duration::from_secs(self.config.save_every.into());
        let (mut saved, mut told) = (Instant::now(), Instant::now());
        loop {
            let begun = Instant::now();
            let Some(stepped) = self.trainer.step()? else {
                return Ok(());
            };
            self.spent += begun.elapsed();
            self.tokens += stepped.tokens;
            let measures = stepped.step.is_multiple_of(between) || stepped.step == steps;
            if told.elapsed() >= LINE || measures {
                self.tell(&stepped)?;
                told = Instant::now();
            }
            if measures {
                self.measure()?;
            }
            let asked = interrupt::asked();
            if asked || measures || saved.elapsed() >= every {
                self.trainer.save(&self.state)?;
                saved = Instant::now();
            }
            if asked {
                bail!(
                    "stopped; saved in {}: the same command goes on",
                    self.state.display()
                );
            }
        }
    }

    fn tell(&self, stepped: &TargetStepped) -> Result<()> {
        #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
        let speed = self.tokens as f64 / self.spent.as_secs_f64();
        print(&format!(
            "step {}/{}: loss {:.3}, gradient {:.2}, rate {:.1e}, {speed:.0} tokens/s",
            stepped.step, self.config.recipe.steps, stepped.loss, stepped.gradient, stepped.rate,
        ))
    }

    fn measure(&mut self) -> Result<()> {
        let steps = self.trainer.steps();
        let Some(loss) = self.trainer.note()? else {
            return Ok(());
        };
        let perplexity = loss.exp();
        print(&format!(
            "after {steps} steps: held out: loss {loss:.3}, perplexity {perplexity:.1}"
        ))
    }
}
