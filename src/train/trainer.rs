//! Training: phases, epochs, steps, and where it is.
//!
//! Everything that a step does is a function of the recipe, the data and the step's place: the order of
//! an epoch is drawn from the seed and the epoch's number, and sums have a fixed order. So a training that
//! was saved and begun again takes the very steps of one that was not.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Recipe, TrainError,
    adam::{Adam, schedule},
    batch::{Batch, unrolled},
    data::{Data, Facts, Sequence},
    frozen::{self, Frozen},
    linalg::single,
    measure::Measured,
    net::{Form, Weights},
    random::Random,
    split::{Counted, split},
    start::{self, Start},
    start_eagle1,
    unroll::Unroll,
    vocab::{self, Coverage},
};
use crate::{
    TokenId,
    draft::eagle::Version,
    error::Result,
    model::{
        config::{RopeConfig, RopeScaling},
        load::Checkpoint,
    },
    sample::derive_line,
};

/// Sequences that start values and scales are made from, at most.
const SEEN: usize = 150;
/// Their tokens, or a few more.
const SEEN_TOKENS: usize = 40_000;
/// Sequences that are put in order of length before they are packed.
const SORTED: usize = 64;

/// The place of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// 0 or 1.
    pub phase: usize,
    /// Epoch of the phase.
    pub epoch: usize,
    /// Step of the epoch.
    pub batch: usize,
    /// Steps of the phase so far.
    pub step: usize,
}

/// As people count: phase and epoch, from 1.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phase {} epoch {}", self.phase + 1, self.epoch + 1)
    }
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// Where.
    pub place: Place,
    /// Steps of its phase.
    pub of: usize,
    /// Mean loss of the rows at the first unrolled step, in nats.
    pub loss: f64,
    /// Rows that were judged there.
    pub rows: usize,
    /// The rate.
    pub rate: f64,
    /// Length of the gradient before it was cut.
    pub gradient: f64,
    /// Whether it was the last of its epoch.
    pub ends_epoch: bool,
}

/// A head in training.
#[derive(Debug)]
pub struct Trainer {
    pub(super) form: Form,
    pub(super) weights: Weights,
    pub(super) adam: Adam,
    pub(super) frozen: Frozen,
    pub(super) recipe: Recipe,
    pub(super) place: Place,
    pub(super) scales: Vec<f32>,
    pub(super) data: Data,
    pub(super) coverage: Coverage,
    /// What is trained on, and measured with.
    pub(super) train: Counted,
    pub(super) held: Counted,
    /// What was measured so far, and after which step; `None`: before the first.
    pub(super) history: Vec<(Option<Place>, Measured)>,
    /// The epoch's steps, as places in `train`.
    order: Option<Arc<Vec<Vec<usize>>>>,
    /// Steps of each phase.
    totals: [usize; 2],
}

impl Trainer {
    /// A head for the target `checkpoint`, to be trained on its answers `data`. `forced` tokens are in
    /// its vocabulary: those that end an answer, and those of the chat template.
    ///
    /// # Errors
    /// If the target, the data and the recipe do not fit each other.
    pub fn new(
        checkpoint: &Checkpoint,
        data: Data,
        recipe: Recipe,
        forced: &[TokenId],
    ) -> Result<Self> {
        let mut trainer = Self::unstarted(checkpoint, data, recipe, forced)?;
        let seen = trainer.seen()?;
        if trainer.form.version == Version::Eagle3 {
            trainer.scales = start::scales(&seen, trainer.form.taps);
        }
        let start = Start {
            checkpoint,
            form: &trainer.form,
            frozen: &trainer.frozen,
            seen: &seen,
            scales: &trainer.scales,
            seed: trainer.recipe.seed,
        };
        trainer.weights = match trainer.form.version {
            Version::Eagle1 => start_eagle1::weights(&start)?,
            Version::Eagle3 => start.weights()?,
        };
        Ok(trainer)
    }

    /// All but the scales of taps, and weights.
    pub(super) fn unstarted(
        checkpoint: &Checkpoint,
        data: Data,
        recipe: Recipe,
        forced: &[TokenId],
    ) -> Result<Self> {
        let form = form(checkpoint, data.facts().taps.len(), &recipe)?;
        let (train, held) = split(&data, &recipe)?;
        let entries = train.iter().map(|(entry, _)| entry);
        fits(&recipe, data.facts())?;
        let (ids, coverage) = vocab::choose(&data, entries, recipe.draft_vocab, forced)?;
        let mut trainer = Self {
            frozen: Frozen::read(checkpoint, ids)?,
            weights: Weights::new(&form, |part| {
                let (rows, cols) = form.shape(part);
                Ok(vec![0.0; rows * cols])
            })?,
            adam: Adam::new(&form),
            place: Place::default(),
            scales: vec![1.0; form.taps],
            form,
            recipe,
            data,
            coverage,
            train,
            held,
            history: Vec::new(),
            order: None,
            totals: [0; 2],
        };
        for phase in 0..2 {
            let epochs = 0..trainer.recipe.epochs[phase];
            trainer.totals[phase] = epochs.map(|epoch| trainer.packed(phase, epoch).len()).sum();
        }
        trainer.skip_empty();
        Ok(trainer)
    }

    /// Sequences to make scales and start values from.
    fn seen(&self) -> Result<Vec<Sequence>> {
        let order = self.random(0).shuffled(self.train.len());
        let mut left = SEEN_TOKENS;
        let some = order.iter().map(|place| &self.train[*place].0);
        let some = some.take(SEEN).take_while(|entry| {
            let room = left > 0;
            left = left.saturating_sub(entry.tokens);
            room
        });
        let some = some.map(|entry| self.data.sequence(entry));
        Ok(some.collect::<Result<_, TrainError>>()?)
    }

    /// The draws of some purpose.
    fn random(&self, purpose: u64) -> Random {
        Random::new(derive_line(self.recipe.seed, purpose))
    }

    /// The steps of an epoch: sequences of like length together, in an order of the epoch's own.
    fn packed(&self, phase: usize, epoch: usize) -> Vec<Vec<usize>> {
        let epochs_before = if phase == 0 { 0 } else { self.recipe.epochs[0] };
        let mut random = self.random((epochs_before + epoch + 1) as u64);
        let rows = |place: &usize| {
            let (entry, from) = &self.train[*place];
            unrolled(entry.tokens, *from).len()
        };
        let mut steps = Vec::new();
        for some in random.shuffled(self.train.len()).chunks(SORTED) {
            let mut some = some.to_vec();
            some.sort_by_key(|place| (rows(place), *place));
            let (mut step, mut count) = (Vec::new(), 0);
            for place in some {
                count += rows(&place);
                step.push(place);
                if count >= self.recipe.rows {
                    steps.push(std::mem::take(&mut step));
                    count = 0;
                }
            }
            if !step.is_empty() {
                steps.push(step);
            }
        }
        let order = random.shuffled(steps.len());
        order
            .into_iter()
            .map(|at| std::mem::take(&mut steps[at]))
            .collect()
    }

    /// What has been trained so far.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Steps of each phase.
    #[must_use]
    pub fn totals(&self) -> [usize; 2] {
        self.totals
    }

    /// What the data were made from.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.data.facts()
    }

    /// The recipe.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Sequences that are trained on, and measured with.
    #[must_use]
    pub fn sequences(&self) -> (usize, usize) {
        (self.train.len(), self.held.len())
    }

    /// Tokens of all answers that are trained on.
    #[must_use]
    pub fn answer_tokens(&self) -> usize {
        let answers = self.train.iter();
        answers
            .map(|(entry, _)| entry.tokens - entry.prompt_tokens)
            .sum()
    }

    /// The share of answers' tokens that the draft vocabulary has.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "numbers of tokens")]
        let share = self.coverage.covered as f64 / self.coverage.tokens.max(1) as f64;
        share
    }

    /// Takes the next step; `None` when all are done.
    ///
    /// # Errors
    /// If the data cannot be read, or the loss is no number any more.
    pub fn step(&mut self) -> Result<Option<Stepped>> {
        let place = self.place;
        if place.phase > 1 {
            return Ok(None);
        }
        if place.step == 0 {
            self.adam = Adam::new(&self.form);
        }
        let order = match &self.order {
            Some(order) => Arc::clone(order),
            None => Arc::new(self.packed(place.phase, place.epoch)),
        };
        self.order = Some(Arc::clone(&order));
        let steps = if place.phase == 0 {
            1
        } else {
            self.recipe.unroll
        };
        let batch = self.batch(&order[place.batch], steps)?;
        let losses = self.unroll(&batch).losses(steps, self.recipe.decay)?;
        let (total, gradient) = (losses.total, losses.gradients.length());
        if !(total.is_finite() && gradient.is_finite()) {
            return Err(TrainError::Unfit(format!(
                "the loss is {total} and its gradient {gradient} long at step {} of phase {}; accepted are \
                 finite numbers: begin again at lower rates",
                place.step + 1,
                place.phase + 1
            ))
            .into());
        }
        let of = self.totals[place.phase];
        let factor = schedule(place.step, of, self.recipe.ends[place.phase]);
        let rate = self.recipe.rates[place.phase] * factor;
        let shrink = (self.recipe.clip / gradient.max(1e-12)).min(1.0);
        self.adam.step(
            &mut self.weights,
            &losses.gradients,
            single(rate),
            single(shrink),
        )?;
        let ends_epoch = place.batch + 1 == order.len();
        self.place.step += 1;
        self.place.batch += 1;
        if ends_epoch {
            self.order = None;
            self.place.batch = 0;
            self.place.epoch += 1;
            self.skip_empty();
        }
        Ok(Some(Stepped {
            place,
            of,
            loss: losses.first,
            rows: losses.rows,
            rate,
            gradient,
            ends_epoch,
        }))
    }

    /// Whether a place is one of this training's, or its end.
    pub(super) fn has(&self, place: Place) -> bool {
        let Place { phase, epoch, .. } = place;
        let epochs = self.recipe.epochs.get(phase);
        epochs.is_none_or(|epochs| {
            epoch < *epochs
                && place.step < self.totals[phase]
                && place.batch < self.packed(phase, epoch).len()
        })
    }

    /// Goes on to the next phase that has an epoch left.
    fn skip_empty(&mut self) {
        while self.place.phase < 2 && self.place.epoch >= self.recipe.epochs[self.place.phase] {
            self.place = Place {
                phase: self.place.phase + 1,
                ..Place::default()
            };
        }
    }

    fn batch(&self, places: &[usize], steps: usize) -> Result<Batch> {
        let sequences = places.iter().map(|place| {
            let (entry, from) = &self.train[*place];
            Ok((self.data.sequence(entry)?, *from))
        });
        let sequences: Vec<_> = sequences.collect::<Result<_, TrainError>>()?;
        Batch::new(&sequences, &self.scales, &self.form, &self.frozen, steps)
    }

    pub(super) fn unroll<'a>(&'a self, batch: &'a Batch) -> Unroll<'a> {
        Unroll {
            form: &self.form,
            weights: &self.weights,
            frozen: &self.frozen,
            batch,
        }
    }
}

/// Refuses a draft vocabulary that the head cannot have.
fn fits(recipe: &Recipe, facts: &Facts) -> Result<(), TrainError> {
    if recipe.head == Version::Eagle3 || recipe.draft_vocab == facts.vocab {
        return Ok(());
    }
    Err(TrainError::Unfit(format!(
        "a draft vocabulary of {} tokens; accepted is the target's {}, among which EAGLE-1 heads guess",
        recipe.draft_vocab, facts.vocab
    )))
}

/// The shape of a head for a target.
fn form(checkpoint: &Checkpoint, taps: usize, recipe: &Recipe) -> Result<Form> {
    let config = checkpoint.config();
    if recipe.unroll == 0 {
        let what = "an unroll of 0 steps; accepted is 1 or more";
        return Err(TrainError::Unfit(what.to_owned()).into());
    }
    frozen::fits(config)?;
    let kv_heads = recipe.kv_heads.unwrap_or(config.heads);
    start::fits(config, kv_heads)?;
    let rope = RopeConfig {
        theta: config.rope.theta,
        scaling: RopeScaling::None,
    };
    Ok(Form {
        version: recipe.head,
        hidden: config.hidden,
        taps: match recipe.head {
            Version::Eagle1 => 1,
            Version::Eagle3 => taps,
        },
        heads: config.heads,
        kv_heads,
        head_dim: config.head_dim,
        intermediate: config.intermediate,
        eps: single(config.eps),
        rope: rope.rotary(config.head_dim),
    })
}
