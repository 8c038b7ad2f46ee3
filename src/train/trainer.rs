//! Training: phases, epochs, steps, and where it is.
//!
//! Everything that a step does is a function of the recipe, the data and the step's place: the order of
//! an epoch is drawn from the seed and the epoch's number, and sums have a fixed order. So a training that
//! was saved and begun again takes the very steps of one that was not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    TrainError,
    adam::{Adam, schedule},
    batch::{Batch, unrolled},
    data::{Data, Entry, Facts, Sequence},
    frozen::{self, Frozen},
    linalg::single,
    measure::Measured,
    net::{Form, Gradients, Part, Weights},
    objective::{self, Rows},
    random::Normal,
    start::{self, Start},
    unroll::Unroll,
    vocab::{self, Coverage},
};
use crate::{
    TokenId,
    error::Result,
    model::{config::RopeConfig, load::Checkpoint},
};

/// Sequences that start values and scales are made from.
const SEEN: usize = 150;
/// Sequences that are put in order of length before they are packed.
const SORTED: usize = 64;

/// How a head is trained. Phase 1 unrolls one step, phase 2 several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Rows of the output head.
    pub draft_vocab: usize,
    /// Key heads; `None`: as many as heads.
    pub kv_heads: Option<usize>,
    /// Epochs of each phase.
    pub epochs: [usize; 2],
    /// Steps unrolled in phase 2.
    pub unroll: usize,
    /// Highest rate of each phase.
    pub rates: [f64; 2],
    /// Where the rate of each phase ends, as a share of the highest.
    pub ends: [f64; 2],
    /// Each unrolled step counts for so much of the one before.
    pub decay: f64,
    /// Rows judged in a step of training, or a few more: sequences stay whole.
    pub rows: usize,
    /// Longest gradient.
    pub clip: f64,
    /// Whether rows whose next token was given count too.
    pub prompt_rows: bool,
    /// Sequences to measure with, not trained on.
    pub held_out: usize,
    /// Only the first so many sequences of the data; `None`: all.
    pub limit: Option<usize>,
    /// Seed of start values and of orders.
    pub seed: u64,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            draft_vocab: 8192,
            kv_heads: None,
            epochs: [3, 2],
            unroll: 3,
            rates: [2.5e-3, 1.2e-3],
            ends: [0.3, 0.05],
            decay: 0.8,
            rows: 290,
            clip: 0.5,
            prompt_rows: false,
            held_out: 40,
            limit: None,
            seed: 0,
        }
    }
}

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
    /// What is trained on, and measured with: each sequence with the first of its tokens that counts.
    pub(super) train: Vec<(Entry, usize)>,
    pub(super) held: Vec<(Entry, usize)>,
    /// What was measured so far.
    pub(super) history: Vec<(Place, Measured)>,
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
        trainer.scales = start::scales(&seen, trainer.form.taps);
        let start = Start {
            checkpoint,
            form: &trainer.form,
            frozen: &trainer.frozen,
            seen: &seen,
            scales: &trainer.scales,
            seed: trainer.recipe.seed,
        };
        trainer.weights = start.weights()?;
        Ok(trainer)
    }

    /// All but scales and weights.
    pub(super) fn unstarted(
        checkpoint: &Checkpoint,
        data: Data,
        recipe: Recipe,
        forced: &[TokenId],
    ) -> Result<Self> {
        let form = form(checkpoint, data.facts().taps.len(), &recipe)?;
        let (ids, coverage) = vocab::choose(&data, recipe.draft_vocab, forced)?;
        let (train, held) = split(&data, &recipe)?;
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
        let mut random = Normal::new(self.recipe.seed ^ 0x5eed);
        let order = random.shuffled(self.train.len());
        let some = order.iter().take(SEEN);
        let some = some.map(|place| self.data.sequence(&self.train[*place].0));
        Ok(some.collect::<Result<_, TrainError>>()?)
    }

    /// The steps of an epoch: sequences of like length together, in an order of the epoch's own.
    fn packed(&self, phase: usize, epoch: usize) -> Vec<Vec<usize>> {
        let number = (phase * 1_000_003 + epoch + 1) as u64;
        let mut random = Normal::new(
            self.recipe
                .seed
                .wrapping_mul(0x9e37_79b9)
                .wrapping_add(number),
        );
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
        let (loss, rows, gradients) = self.gradients(&batch, steps)?;
        if !loss.is_finite() {
            return Err(TrainError::Unfit(format!(
                "the loss is {loss} at step {} of phase {}; accepted are numbers: try a lower rate",
                place.step + 1,
                place.phase + 1
            ))
            .into());
        }
        let of = self.totals[place.phase];
        let factor = schedule(place.step, of, self.recipe.ends[place.phase]);
        let rate = self.recipe.rates[place.phase] * factor;
        let (rate32, clip) = (single(rate), single(self.recipe.clip));
        let gradient = self
            .adam
            .step(&mut self.weights, &gradients, rate32, clip)?;
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
            loss,
            rows,
            rate,
            gradient,
            ends_epoch,
        }))
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
        Batch::new(&sequences, &self.scales, &self.frozen, steps)
    }

    /// Mean loss at the first step, the rows judged there, and all gradients.
    pub(super) fn gradients(&self, batch: &Batch, steps: usize) -> Result<(f64, usize, Gradients)> {
        let subject = Subject {
            form: &self.form,
            weights: &self.weights,
            frozen: &self.frozen,
        };
        let losses = subject.losses(batch, steps, self.recipe.decay)?;
        Ok((losses.first, losses.rows, losses.gradients))
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

/// What has a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) form: &'a Form,
    pub(super) weights: &'a Weights,
    pub(super) frozen: &'a Frozen,
}

/// The losses of a batch.
#[derive(Debug)]
pub(super) struct Losses {
    /// Mean over the rows of step 0.
    pub(super) first: f64,
    /// Rows judged at step 0.
    pub(super) rows: usize,
    /// What the gradients are of: the sum over steps, weighted.
    pub(super) total: f64,
    pub(super) gradients: Gradients,
}

impl Subject<'_> {
    /// Losses and gradients of a batch, unrolled `steps` steps; step k counts for `decay` to the k-th.
    pub(super) fn losses(&self, batch: &Batch, steps: usize, decay: f64) -> Result<Losses> {
        let unroll = Unroll {
            form: self.form,
            weights: self.weights,
            frozen: self.frozen,
            batch,
        };
        let pass = unroll.forward(steps)?;
        let laws = objective::laws(&batch.finals, &self.frozen.lm_head)?;
        let (hidden, all) = (self.form.hidden, batch.rows.len());
        let mut losses = Losses {
            first: 0.0,
            rows: 0,
            total: 0.0,
            gradients: Gradients::zeros(self.form),
        };
        let mut outputs = Vec::with_capacity(steps);
        let mut share = 1.0;
        for step in 0..steps {
            let judged = batch.judged(step);
            #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
            let weight = share / all.max(1) as f64;
            let mut d = vec![0.0; all * hidden];
            if !judged.is_empty() {
                let rows = Rows {
                    outputs: &pass
                        .output(step)
                        .gather(judged.iter().map(|(query, _)| *query))?,
                    laws: &laws.gather(judged.iter().map(|(_, law)| *law))?,
                    norm: self.weights.get(Part::Norm),
                    lm_head: &self.frozen.lm_head,
                    eps: self.form.eps,
                    weight: single(weight),
                };
                let loss = rows.loss()?;
                for ((query, _), from) in judged.iter().zip(loss.outputs.chunks(hidden)) {
                    d[query * hidden..(query + 1) * hidden].copy_from_slice(from);
                }
                super::mat::add(losses.gradients.get_mut(Part::Norm), &loss.norm);
                losses.total += weight * loss.sum;
                if step == 0 {
                    #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
                    let mean = loss.sum / judged.len() as f64;
                    (losses.first, losses.rows) = (mean, judged.len());
                }
            }
            outputs.push(d);
            share *= decay;
        }
        unroll.backward(&pass, outputs, &mut losses.gradients)?;
        Ok(losses)
    }
}

/// The shape of a head for a target.
fn form(checkpoint: &Checkpoint, taps: usize, recipe: &Recipe) -> Result<Form> {
    let config = checkpoint.config();
    frozen::fits(config)?;
    let kv_heads = recipe.kv_heads.unwrap_or(config.heads);
    start::fits(config, kv_heads)?;
    let (theta, scaling) = frozen::theta(config);
    Ok(Form {
        hidden: config.hidden,
        taps,
        heads: config.heads,
        kv_heads,
        head_dim: config.head_dim,
        intermediate: config.intermediate,
        eps: single(config.eps),
        rope: RopeConfig { theta, scaling }.rotary(config.head_dim),
    })
}

type Counted = Vec<(Entry, usize)>;

/// Sequences to train on and to measure with. Those to measure with are spread evenly over the answers at
/// the lowest temperature that has enough of them.
fn split(data: &Data, recipe: &Recipe) -> Result<(Counted, Counted)> {
    let shared = if recipe.prompt_rows { shared(data)? } else { 0 };
    let all = data
        .entries()
        .iter()
        .take(recipe.limit.unwrap_or(usize::MAX));
    let all = all.map(|entry| {
        let from = if recipe.prompt_rows {
            shared
        } else {
            entry.prompt_tokens
        };
        (*entry, from.min(entry.prompt_tokens).max(1))
    });
    let (usable, _): (Counted, Counted) =
        all.partition(|(entry, from)| !unrolled(entry.tokens, *from).is_empty());
    let coldest = usable.iter().map(|(entry, _)| entry.temperature);
    let coldest = coldest.fold(f64::INFINITY, f64::min);
    let cold = |entry: &Entry| entry.temperature <= coldest;
    let count = usable.iter().filter(|(entry, _)| cold(entry)).count();
    let held_out = recipe.held_out;
    if held_out >= count {
        return Err(TrainError::Unfit(format!(
            "{held_out} sequences held out of {count} at temperature {coldest}; accepted are fewer than \
             these, 0 to measure nothing"
        ))
        .into());
    }
    let (mut train, mut held, mut at) = (Vec::new(), Vec::new(), 0);
    for (entry, from) in usable {
        let is_held = cold(&entry) && {
            at += 1;
            // The i-th of the cold ones is held if a multiple of count / held_out lies in it.
            at * held_out / count > (at - 1) * held_out / count
        };
        if is_held {
            held.push((entry, entry.prompt_tokens));
        } else {
            train.push((entry, from));
        }
    }
    if train.is_empty() {
        let what = "no sequence to train on; accepted are data with answers of two tokens or more";
        return Err(TrainError::Unfit(what.to_owned()).into());
    }
    Ok((train, held))
}

/// Tokens that all sequences begin with: the system prompt.
fn shared(data: &Data) -> Result<usize> {
    let mut common: Option<Vec<TokenId>> = None;
    for entry in data.entries() {
        let tokens = data.tokens(entry)?;
        let prefix = match common {
            None => tokens[..entry.prompt_tokens].to_vec(),
            Some(mut common) => {
                let same = common.iter().zip(&tokens).take_while(|(a, b)| a == b);
                common.truncate(same.count());
                common
            }
        };
        common = Some(prefix);
    }
    Ok(common.map_or(0, |common| common.len()))
}
