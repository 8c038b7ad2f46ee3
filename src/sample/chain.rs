//! From a row of logits to its law.

use std::{ops::Deref, sync::Arc};

use super::{
    buffer::Buffer,
    counts::History,
    dist::{Dist, best},
    filter::filtered,
    params::{ParamError, SamplingParams},
    processor::Processor,
    row::{Row, Values},
    score::{Score, Scores},
    semantics::Semantics,
    wide::{first_max, survey},
};
use crate::TokenId;

/// Why no token can be chosen at a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The logits hold NaN or an infinity, or a processor made a score NaN or plus infinity, or the
    /// largest score over the temperature is more than a number holds.
    #[error("the logits are not finite")]
    NonFinite,
    /// Bias and masks leave nothing.
    #[error("bias and masks leave no token")]
    Masked,
    /// A [`Processor`] cannot go on; the text is its own.
    #[error("{0}")]
    Refused(Arc<str>),
}

/// Scores are kept within this, so that no penalty or temperature can reach infinity.
const LARGEST: f64 = 1e300;

/// Changes a score that is not masked, within what is kept; minus zero becomes zero, so that the two
/// tie.
fn change(z: &mut f64, to: impl FnOnce(f64) -> f64) {
    if *z > f64::NEG_INFINITY {
        *z = to(*z).clamp(-LARGEST, LARGEST) + 0.0;
    }
}

/// The processing of one request's logits: parameters, vocabulary and end tokens.
///
/// A pure function of logits and history. One chain serves every row of a request, the target's and
/// the drafter's.
#[derive(Clone, Debug)]
pub struct Chain {
    params: SamplingParams,
    vocab: usize,
    /// Columns that may be chosen: those before it.
    valid: usize,
    /// The token of each column, ascending; without it, a column's own number.
    ids: Option<Arc<[TokenId]>>,
    ends: Vec<TokenId>,
    processors: Vec<Arc<dyn Processor>>,
    /// Scores that processors see: the target's valid ids.
    full: usize,
}

impl Chain {
    /// The chain for rows of `vocab` logits, of which ids from `valid` on are masked (a head may be
    /// padded beyond the tokenizer), and `ends` too while `t < min_tokens`.
    ///
    /// # Errors
    /// If the logit bias names an id beyond the vocabulary.
    pub fn new(
        params: SamplingParams,
        vocab: usize,
        valid: usize,
        ends: Vec<TokenId>,
    ) -> Result<Self, ParamError> {
        let valid = valid.min(vocab);
        if let Some((id, bias)) = params
            .logit_bias
            .iter()
            .find(|(id, _)| **id as usize >= valid)
        {
            return Err(ParamError::new(
                "logit_bias",
                format!("{id}={bias}"),
                format!("the token id must be below {valid}"),
            ));
        }
        Ok(Self {
            params,
            vocab,
            valid,
            ids: None,
            ends,
            processors: Vec::new(),
            full: valid,
        })
    }

    /// The chain with `processors`, which change the scores in this order.
    #[must_use]
    pub fn with_processors(self, processors: Vec<Arc<dyn Processor>>) -> Self {
        Self { processors, ..self }
    }

    /// The same processing for rows of `vocab` logits: those of a drafter whose vocabulary is
    /// padded otherwise. Ids that the rows do not have are masked.
    #[must_use]
    pub fn narrowed(&self, vocab: usize) -> Self {
        Self {
            vocab,
            valid: self.valid.min(vocab),
            ..self.clone()
        }
    }

    /// The same processing for rows whose column `j` is the token `ids[j]`, ascending: those of a
    /// drafter with a reduced vocabulary. Tokens without a column are masked.
    ///
    /// ```
    /// use eyrie::sample::{Chain, Counts, History, RawParams, SamplingParams};
    ///
    /// let params = SamplingParams::new(RawParams::default())?;
    /// let reduced = Chain::new(params, 10, 10, vec![])?.mapped([2, 3, 7].into());
    /// let history = History { counts: &Counts::new(&[]), tokens: &[], path: &[] };
    /// assert_eq!(reduced.law(&[0.1, 0.2, 0.9], &history).unwrap().argmax(), 7);
    /// # Ok::<(), eyrie::sample::ParamError>(())
    /// ```
    ///
    /// # Panics
    /// If `ids` does not ascend: a bug of the caller.
    #[must_use]
    pub fn mapped(&self, ids: Arc<[TokenId]>) -> Self {
        assert!(ids.is_sorted_by(|a, b| a < b), "a map of tokens ascends");
        Self {
            vocab: ids.len(),
            valid: ids.partition_point(|&id| (id as usize) < self.valid),
            ids: Some(ids),
            ..self.clone()
        }
    }

    /// The chain with other parameters.
    #[cfg(feature = "mutants")]
    pub(crate) fn altered(&self, change: impl FnOnce(&mut super::RawParams)) -> Self {
        let mut raw = (*self.params).clone();
        change(&mut raw);
        Self {
            params: SamplingParams::new(raw).expect("a change keeps parameters in their ranges"),
            ..self.clone()
        }
    }

    /// The request's parameters.
    #[must_use]
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The law of the token that a row chooses; at temperature 0 all mass on the argmax.
    ///
    /// # Errors
    /// [`Fault::NonFinite`] if any logit is NaN or infinite, [`Fault::Masked`] if no token is left;
    /// what a processor refuses.
    ///
    /// # Panics
    /// If `logits` is not as wide as the chain was told: a bug of the caller.
    pub fn law(&self, logits: &[f32], h: &History<'_>) -> Result<Dist, Fault> {
        let largest = self.check(logits)?;
        if !self.params.is_greedy() {
            return self.warm(logits, largest, h);
        }
        let best = if self.touches(h) {
            first_max(&self.scores(logits, h)?)
        } else {
            largest
        };
        let best = best.ok_or(Fault::Masked)?;
        Ok(Dist::one_hot(self.token(best)))
    }

    /// The law whose logarithms are reported with a token: [`Chain::law`], but at temperature 0 the
    /// law at temperature 1 after bias, penalties and masks, without filters, because all the
    /// logarithms of a one-hot law would be 0.
    ///
    /// # Errors
    /// As [`Chain::law`].
    ///
    /// # Panics
    /// As [`Chain::law`].
    pub fn report_law(&self, logits: &[f32], h: &History<'_>) -> Result<Dist, Fault> {
        let largest = self.check(logits)?;
        if self.params.is_greedy() {
            let scores = self.scores(logits, h)?;
            let at = first_max(&scores).ok_or(Fault::Masked)?;
            return Ok(self.softmax(scores, at, 1.0));
        }
        self.warm(logits, largest, h)
    }

    /// The `k` most probable tokens of [`Chain::report_law`] with their `ln p`, descending, of equals
    /// the lower id first. The first is the argmax of [`Chain::law`].
    ///
    /// # Errors
    /// As [`Chain::law`].
    ///
    /// # Panics
    /// As [`Chain::law`].
    pub fn best(
        &self,
        logits: &[f32],
        h: &History<'_>,
        k: usize,
    ) -> Result<Vec<(TokenId, f64)>, Fault> {
        let largest = self.check(logits)?;
        if !self.params.is_greedy() {
            return Ok(self.warm(logits, largest, h)?.top(k));
        }
        let scores = self.scores(logits, h)?;
        let left: Vec<_> = self.open(&scores).collect();
        if left.is_empty() {
            return Err(Fault::Masked);
        }
        Ok(best(left, k))
    }

    /// The token of a column.
    fn token(&self, column: usize) -> TokenId {
        match &self.ids {
            Some(ids) => ids[column],
            None => TokenId::try_from(column).expect("a vocabulary has fewer than 2^32 tokens"),
        }
    }

    /// The column of a token that may be chosen.
    fn column(&self, token: TokenId) -> Option<usize> {
        let column = match &self.ids {
            Some(ids) => ids.binary_search(&token).ok(),
            None => Some(token as usize),
        };
        column.filter(|column| *column < self.valid)
    }

    /// Place of the first of the largest logits, of columns that may be chosen.
    fn check(&self, logits: &[f32]) -> Result<Option<usize>, Fault> {
        assert_eq!(logits.len(), self.vocab, "width of a row of logits");
        let (valid, beyond) = logits.split_at(self.valid);
        let (finite, largest) = survey(valid);
        if finite && survey(beyond).0 {
            Ok(largest)
        } else {
            Err(Fault::NonFinite)
        }
    }

    /// Whether bias, penalties, the mask of end tokens or a processor can change a row with this
    /// history.
    fn touches(&self, h: &History<'_>) -> bool {
        let params = &self.params;
        params.has_penalties()
            || params.repeats().is_some()
            || !params.logit_bias.is_empty()
            || !self.processors.is_empty()
            || self.holds_ends(h)
    }

    fn holds_ends(&self, h: &History<'_>) -> bool {
        h.index() < self.params.min_tokens
    }

    /// Logits of the valid columns after bias, penalties, masks and processors; masked is minus
    /// infinity.
    fn scores(&self, logits: &[f32], h: &History<'_>) -> Result<Buffer<f64>, Fault> {
        // Adding zero turns minus zero into zero, so that the two tie.
        let valid = logits[..self.valid].iter();
        let mut z: Buffer<f64> = valid.map(|&x| f64::from(x) + 0.0).collect();
        let params = &self.params;
        for (&id, &bias) in &params.logit_bias {
            if let Some(column) = self.column(id) {
                if bias == f64::NEG_INFINITY {
                    z[column] = bias;
                } else {
                    change(&mut z[column], |z| z + bias);
                }
            }
        }
        if let Some(dry) = params.repeats() {
            for (id, penalty) in dry.penalties(h) {
                if let Some(column) = self.column(id) {
                    change(&mut z[column], |z| z - penalty);
                }
            }
        }
        self.penalise(&mut z, h);
        if self.holds_ends(h) {
            for &id in &self.ends {
                if let Some(column) = self.column(id) {
                    z[column] = f64::NEG_INFINITY;
                }
            }
        }
        if self.processors.is_empty() {
            return Ok(z);
        }
        self.processed(z, h)
    }

    /// Takes the penalties for having occurred off the scores.
    fn penalise(&self, z: &mut [f64], h: &History<'_>) {
        let params = &self.params;
        if !params.has_penalties() {
            return;
        }
        let (presence, frequency) = (params.presence_penalty, params.frequency_penalty);
        let r = params.repetition_penalty;
        let repeated = |z: f64| if z > 0.0 { z / r } else { z * r };
        h.for_each(|id, seen| {
            let Some(column) = self.column(id) else {
                return;
            };
            change(&mut z[column], |z| match params.semantics {
                Semantics::Eyrie => {
                    let once = if seen.output > 0.0 { presence } else { 0.0 };
                    repeated(z) - frequency * seen.output - once
                }
                Semantics::Host => repeated(z - frequency * seen.all - presence),
            });
        });
    }

    /// The scores after every processor, each of which sees the whole vocabulary of the target.
    fn processed(&self, mut z: Buffer<f64>, h: &History<'_>) -> Result<Buffer<f64>, Fault> {
        if self.ids.is_none() && self.valid == self.full {
            self.process(&mut z, h)?;
        } else {
            let mut all = vec![f64::NEG_INFINITY; self.full];
            for (column, z) in z.iter().enumerate() {
                all[self.token(column) as usize] = *z;
            }
            self.process(&mut all, h)?;
            for (column, z) in z.iter_mut().enumerate() {
                *z = all[self.token(column) as usize];
            }
        }
        z.iter_mut().for_each(|z| change(z, |z| z));
        Ok(z)
    }

    fn process(&self, all: &mut [f64], h: &History<'_>) -> Result<(), Fault> {
        for processor in &self.processors {
            processor.process(all, h)?;
            let sound = all
                .iter()
                .fold(true, |sound, x| sound & (*x < f64::INFINITY));
            if !sound {
                return Err(Fault::NonFinite);
            }
        }
        Ok(())
    }

    /// The law at a temperature above 0; `largest` is what [`Chain::check`] found.
    fn warm(&self, logits: &[f32], largest: Option<usize>, h: &History<'_>) -> Result<Dist, Fault> {
        if self.touches(h) {
            let scores = self.scores(logits, h)?;
            let at = first_max(&scores).ok_or(Fault::Masked)?;
            if !(scores[at] / self.params.temperature).is_finite() {
                return Err(Fault::NonFinite);
            }
            Ok(self.tempered(scores, at))
        } else {
            let at = largest.ok_or(Fault::Masked)?;
            Ok(self.tempered(&logits[..self.valid], at))
        }
    }

    /// The law of scores that temperature and filters are still to come for, the first of the largest
    /// at place `at`.
    fn tempered<S: Score, V>(&self, values: V, at: usize) -> Dist
    where
        V: Deref<Target = [S]> + Into<Buffer<S>>,
        Values: From<Buffer<S>>,
    {
        let temperature = self.params.temperature;
        if !self.params.has_filters() {
            return self.softmax(values, at, temperature);
        }
        let scores = Scores {
            values: &values,
            at,
            temperature,
        };
        filtered(scores, |column| self.token(column), &self.params)
    }

    /// The softmax over what is not masked, at this temperature; the largest at place `at`.
    fn softmax<S: Score, V>(&self, values: V, at: usize, temperature: f64) -> Dist
    where
        V: Deref<Target = [S]> + Into<Buffer<S>>,
        Values: From<Buffer<S>>,
    {
        if self.ids.is_none() {
            let open = values.iter().filter(|z| **z > S::MASKED);
            if open.take(2).count() == 1 {
                return Dist::one_hot(self.token(at));
            }
            let values: Buffer<S> = values.into();
            return Dist::of_row(Row::new(values.into(), at, temperature));
        }
        let scores = Scores {
            values: &values,
            at,
            temperature,
        };
        let left = self.open(&values).map(|(id, z)| (id, scores.over(z)));
        let (ids, scores) = left.unzip();
        Dist::softmax(ids, scores)
    }

    /// The scores that are not masked, with their tokens.
    fn open<S: Score>(&self, z: &[S]) -> impl Iterator<Item = (TokenId, S)> {
        z.iter()
            .enumerate()
            .filter(|(_, z)| **z > S::MASKED)
            .map(|(column, &z)| (self.token(column), z))
    }
}
