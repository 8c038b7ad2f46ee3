//! Steps of a target's training.
//!
//! What a step does is a function of the recipe, the texts and its number, as for a head
//! ([`Trainer`](crate::train::Trainer)).

use super::{
    adamw::AdamW,
    net::{Net, Windows},
    recipe::{TargetRecipe, unfit},
    texts::{TextFacts, Texts, Tokens},
};
use crate::{
    error::Result,
    sample::derive_line,
    train::{adam::schedule, linalg::single, random::Random},
};

/// Where the rate ends, as a share of the highest.
const END: f64 = 0.05;
/// Longest gradient.
const CLIP: f64 = 1.0;
/// Windows that are measured at once.
const MEASURED: usize = 32;

/// What a step of a target was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetStepped {
    /// Its number, from 1.
    pub step: usize,
    /// Mean loss of its tokens, in nats.
    pub loss: f64,
    /// Its tokens.
    pub tokens: usize,
    /// The rate.
    pub rate: f64,
    /// Length of the gradient before it was cut.
    pub gradient: f64,
}

/// A target in training.
#[derive(Debug)]
pub struct TargetTrainer {
    pub(super) recipe: TargetRecipe,
    pub(super) net: Net,
    pub(super) adam: AdamW,
    /// Steps taken.
    pub(super) step: usize,
    /// Steps before, and the mean loss on what is held out, in nats a token.
    pub(super) history: Vec<(usize, f64)>,
    /// `tokenizer.json`
    pub(super) tokenizer: String,
    pub(super) facts: TextFacts,
    pub(super) tokens: Tokens,
    /// Where the windows of an epoch begin.
    order: Option<(usize, Vec<usize>)>,
}

impl TargetTrainer {
    /// A llama with random weights, and a tokenizer made of the texts.
    ///
    /// # Errors
    /// If the sizes do not fit each other, or the texts are too short for them.
    pub fn new(texts: &Texts, recipe: TargetRecipe) -> Result<Self> {
        recipe.check()?;
        let tokenizer = texts.tokenizer(recipe.vocab)?;
        Self::with(texts, recipe, tokenizer)
    }

    /// As [`new`](Self::new), with a tokenizer.
    pub(super) fn with(texts: &Texts, recipe: TargetRecipe, tokenizer: String) -> Result<Self> {
        recipe.check()?;
        let tokens = texts.tokens(&tokenizer, &recipe)?;
        let net = Net::new(&recipe, &mut random(&recipe, 0))?;
        Ok(Self {
            adam: AdamW::new(&net.vars),
            net,
            step: 0,
            history: Vec::new(),
            tokenizer,
            facts: texts.facts().clone(),
            tokens,
            order: None,
            recipe,
        })
    }

    /// The recipe.
    #[must_use]
    pub fn recipe(&self) -> &TargetRecipe {
        &self.recipe
    }

    /// Tokens that are trained on, and held out.
    #[must_use]
    pub fn tokens(&self) -> (usize, usize) {
        (self.tokens.train.len(), self.tokens.held.len())
    }

    /// What was measured: the steps before, and the mean loss of a held-out token, in nats.
    #[must_use]
    pub fn history(&self) -> &[(usize, f64)] {
        &self.history
    }

    /// Steps taken.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.step
    }

    /// How often each text has been seen, and will have been at the end.
    #[must_use]
    pub fn epochs(&self) -> (f64, f64) {
        #[expect(clippy::cast_precision_loss, reason = "numbers of windows")]
        let of = |steps: usize| (steps * self.recipe.batch) as f64 / self.windows() as f64;
        (of(self.step), of(self.recipe.steps))
    }

    /// Windows of an epoch.
    fn windows(&self) -> usize {
        let context = self.recipe.context;
        (self.tokens.train.len() - context) / context
    }

    /// Where window `at` of all epochs begins. Each epoch cuts the texts at other places, in an order of
    /// its own.
    fn start(&mut self, at: usize) -> usize {
        let (count, context) = (self.windows(), self.recipe.context);
        let (epoch, place) = (at / count, at % count);
        let order = match self.order.take() {
            Some((of, order)) if of == epoch => order,
            _ => {
                let mut random = random(&self.recipe, epoch as u64 + 1);
                let offset = random.shuffled(context)[0];
                let order = random.shuffled(count).into_iter();
                order.map(|window| offset + window * context).collect()
            }
        };
        let start = order[place];
        self.order = Some((epoch, order));
        start
    }

    /// Takes the next step; `None` when all are done.
    ///
    /// # Errors
    /// If the loss is no number any more.
    pub fn step(&mut self) -> Result<Option<TargetStepped>> {
        let (at, of, batch) = (self.step, self.recipe.steps, self.recipe.batch);
        if at >= of {
            return Ok(None);
        }
        let starts = (at * batch..(at + 1) * batch).map(|window| self.start(window));
        let starts: Vec<usize> = starts.collect();
        let windows = Windows::of(&self.tokens.train, self.recipe.context, &starts);
        let (loss, gradients) = self.net.gradients(&windows)?;
        let squares = gradients.iter().flatten();
        let gradient = squares.map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if !(loss.is_finite() && gradient.is_finite()) {
            return Ok(unfit(format!(
                "the loss is {loss} and its gradient {gradient} long at step {}; accepted are finite numbers: \
                 begin again at a lower rate",
                at + 1
            ))?);
        }
        let rate = self.recipe.rate * schedule(at, of, END);
        let shrink = (CLIP / gradient.max(1e-12)).min(1.0);
        self.adam
            .step(&self.net.vars, &gradients, single(rate), single(shrink))?;
        self.step += 1;
        Ok(Some(TargetStepped {
            step: self.step,
            loss,
            tokens: windows.tokens.len(),
            rate,
            gradient,
        }))
    }

    /// Measures the mean loss of a held-out token, in nats, and keeps it; `None` if nothing is held out.
    ///
    /// # Errors
    /// If a product fails.
    pub fn note(&mut self) -> Result<Option<f64>> {
        let held = &self.tokens.held;
        let Some(last) = held.len().checked_sub(1).filter(|last| *last > 0) else {
            return Ok(None);
        };
        let context = self.recipe.context.min(last);
        let starts: Vec<usize> = (0..last / context).map(|window| window * context).collect();
        let mut total = 0.0;
        for some in starts.chunks(MEASURED) {
            total += self.net.loss(&Windows::of(held, context, some))?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
        let mean = total / (starts.len() * context) as f64;
        self.history.push((self.step, mean));
        Ok(Some(mean))
    }
}

/// The draws of some purpose.
fn random(recipe: &TargetRecipe, purpose: u64) -> Random {
    Random::new(derive_line(recipe.seed, purpose))
}
