//! The target answers prompts, and what it held at every token is kept.
//!
//! Prompts run in large batches: a prompt joins as soon as another's answer has ended. What is written
//! depends on none of that. Each answer's draws are keyed by the seed, the prompt's place and the
//! token's, the target's rows do not depend on each other
//! ([`Target::row_invariant`]), and answers are written in the
//! order of prompts, so an answer that ended early waits for those before it. How far it may be ahead
//! is bounded, and so is what a kill can lose.

use std::collections::BTreeMap;

use half::{f16, slice::HalfFloatSliceExt};
use rayon::prelude::*;

use super::{
    TrainError,
    data::{Record, Writer},
};
use crate::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    error::{ErrorKind, Result},
    model::{Rows, Target, Wanted},
    sample::{
        Chain, Counts, History, Keyed, RawParams, SamplingParams, choose, derive_choice,
        derive_line,
    },
};

/// Prompt tokens in one pass, but for those of one sequence.
const PREFILL: usize = 256;
/// Tokens of one prompt in one pass.
const CHUNK: usize = 64;
/// Answers may be ahead of the first that is not written by so many batches.
const AHEAD: usize = 4;

/// A prompt to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its place among all prompts.
    pub index: usize,
    /// Its tokens, one at least.
    pub tokens: Vec<TokenId>,
}

/// How prompts are answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answering {
    /// The streams to keep.
    pub taps: Vec<usize>,
    /// Most tokens of an answer.
    pub max_tokens: usize,
    /// Temperatures, one of which each prompt gets by a draw of its own.
    pub temperatures: Vec<f64>,
    /// Prompts in one pass.
    pub batch: usize,
    /// Seed of all draws.
    pub seed: u64,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
    /// Ids that may be answered: those below.
    pub valid: usize,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Prompts that are on disk, of this run.
    pub written: usize,
    /// Their answers' tokens.
    pub tokens: usize,
    /// Values that half precision has no number for: its largest was written.
    pub clipped: usize,
    /// Whether all prompts were answered.
    pub done: bool,
}

/// An answer in the making.
struct Open {
    place: usize,
    seq: SeqId,
    prompt_tokens: usize,
    temperature: f64,
    chain: Chain,
    draws: Keyed,
    counts: Counts,
    tokens: Vec<TokenId>,
    fed: usize,
    taps: Vec<f16>,
    finals: Vec<f16>,
}

/// Has `target` answer those of `prompts` (by ascending index) that `writer` does not have.
/// `progress` is called after each pass; if it says no, what is on disk by then is what there is.
///
/// # Errors
/// If a prompt is empty or too long for the target, a parameter is out of range, the target's numbers
/// are not finite, what is on disk has other prompts, or it cannot be written.
pub fn distill(
    target: &dyn Target,
    prompts: &[Prompt],
    how: &Answering,
    writer: &mut Writer,
    progress: &mut dyn FnMut(&Answered) -> bool,
) -> Result<Answered> {
    same_prompts(writer, prompts)?;
    let from = writer.next_prompt();
    let left: Vec<&Prompt> = prompts.iter().filter(|one| one.index >= from).collect();
    let mut state = Run::new(target, &left, how)?;
    let mut answered = Answered::default();
    while answered.written < left.len() {
        state.join()?;
        state.pass(&mut answered.clipped)?;
        while let Some(record) = state.finished.remove(&answered.written) {
            writer.append(&record)?;
            answered.written += 1;
            answered.tokens += record.tokens.len() - record.prompt_tokens;
        }
        state.first = answered.written;
        if !progress(&answered) {
            return Ok(answered);
        }
    }
    answered.done = true;
    Ok(answered)
}

/// Refuses to go on with answers to other prompts.
fn same_prompts(writer: &Writer, prompts: &[Prompt]) -> Result<()> {
    let data = writer.data();
    for (place, entry) in data.entries().iter().enumerate() {
        let tokens = data.tokens(entry)?;
        let given = &tokens[..entry.prompt_tokens];
        let same = |prompt: &Prompt| prompt.index == entry.prompt && prompt.tokens == given;
        if !prompts.get(place).is_some_and(same) {
            return Err(TrainError::Unfit(format!(
                "prompt {} is not the one that the data begin with; accepted are the same prompts, and \
                 more behind them, or another folder",
                entry.prompt
            ))
            .into());
        }
    }
    Ok(())
}

/// What runs.
struct Run<'a> {
    target: &'a dyn Target,
    prompts: &'a [&'a Prompt],
    how: &'a Answering,
    /// The taps, and the last stream behind them.
    streams: Vec<usize>,
    cache: KvCache,
    open: Vec<Open>,
    /// By place, what waits to be written.
    finished: BTreeMap<usize, Record>,
    /// The first prompt that has not been written, and the first that has not begun.
    first: usize,
    next: usize,
}

impl<'a> Run<'a> {
    fn new(target: &'a dyn Target, prompts: &'a [&'a Prompt], how: &'a Answering) -> Result<Self> {
        let context = target.context();
        let fits = |prompt: &&&Prompt| (1..=context).contains(&prompt.tokens.len());
        if let Some(prompt) = prompts.iter().find(|prompt| !fits(prompt)) {
            return Err(TrainError::Unfit(format!(
                "prompt {} of {} tokens; accepted are 1 to {context}",
                prompt.index,
                prompt.tokens.len()
            ))
            .into());
        }
        let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max();
        let longest = longest.unwrap_or(0) + how.max_tokens;
        let mut streams = how.taps.clone();
        streams.push(target.layers());
        Ok(Self {
            target,
            prompts,
            how,
            streams,
            cache: target.new_cache(how.batch * longest.min(context)),
            open: Vec::new(),
            finished: BTreeMap::new(),
            first: 0,
            next: 0,
        })
    }

    /// Lets prompts join while there is room.
    fn join(&mut self) -> Result<()> {
        let most = self.first + AHEAD * self.how.batch;
        while self.open.len() < self.how.batch && self.next < self.prompts.len().min(most) {
            let open = self.begin(self.next)?;
            self.open.push(open);
            self.next += 1;
        }
        Ok(())
    }

    fn begin(&self, place: usize) -> Result<Open> {
        let prompt = self.prompts[place];
        let seed = derive_line(self.how.seed, prompt.index as u64);
        let temperature = temperature(&self.how.temperatures, seed);
        let params = SamplingParams::new(RawParams {
            temperature,
            ..RawParams::default()
        })?;
        let eos = self.how.eos.clone();
        let chain = Chain::new(params, self.target.vocab(), self.how.valid, eos)?;
        Ok(Open {
            place,
            seq: SeqId(place as u64),
            prompt_tokens: prompt.tokens.len(),
            temperature,
            chain,
            draws: Keyed::new(seed),
            counts: Counts::new(&prompt.tokens),
            tokens: prompt.tokens.clone(),
            fed: 0,
            taps: Vec::new(),
            finals: Vec::new(),
        })
    }

    /// Feeds each open answer what it has not been fed, the prompts in chunks, and goes on with those
    /// that were fed all.
    fn pass(&mut self, clipped: &mut usize) -> Result<()> {
        let mut rows = Rows::new();
        let (mut fed, mut prefill) = (Vec::new(), 0);
        for (i, open) in self.open.iter().enumerate() {
            let left = open.tokens.len() - open.fed;
            if left > 1 && prefill >= PREFILL {
                continue;
            }
            let now = left.min(CHUNK);
            prefill += if left > 1 { now } else { 0 };
            let wanted = if now == left {
                Wanted::Last
            } else {
                Wanted::None
            };
            let tokens = &open.tokens[open.fed..open.fed + now];
            rows.chain(open.seq, open.fed, tokens, wanted)?;
            fed.push((i, now));
        }
        let Some(mut txn) = Txn::begin(&mut self.cache, &rows.want()) else {
            return Err(ErrorKind::Cache("no room for the answers".to_owned()).into());
        };
        let out = self.target.forward(&rows, &mut txn, &self.streams)?;
        for (i, _) in &fed {
            txn.commit_all(self.open[*i].seq)?;
        }
        drop(txn);
        let Some(streams) = &out.taps else {
            return Err(TrainError::Unfit("the target gave no streams".to_owned()).into());
        };
        self.keep(&fed, streams, clipped)?;
        self.go_on(&fed, &out.logits)
    }

    /// Keeps the streams of rows, halved.
    fn keep(
        &mut self,
        fed: &[(usize, usize)],
        streams: &Matrix,
        clipped: &mut usize,
    ) -> Result<()> {
        let hidden = self.target.hidden();
        let split = streams.cols() - hidden;
        let rows = || (0..streams.rows()).map(|row| streams.row(row));
        let mut finals = Matrix::new(
            hidden,
            rows().flat_map(|row| row[split..].to_vec()).collect(),
        );
        self.target.final_norm(&mut finals);
        let mut row = 0;
        for (i, count) in fed {
            let open = &mut self.open[*i];
            for row in row..row + count {
                *clipped += halve(&streams.row(row)[..split], &mut open.taps);
                *clipped += halve(finals.row(row), &mut open.finals);
            }
            row += count;
            open.fed += count;
            let sound = |kept: &[f16]| kept.iter().all(|x| x.is_finite());
            if !(sound(&open.taps[open.taps.len() - count * split..])
                && sound(&open.finals[open.finals.len() - count * hidden..]))
            {
                return Err(TrainError::Unfit(format!(
                    "the target's streams are not finite at token {} of prompt {}",
                    open.fed - count,
                    self.prompts[open.place].index
                ))
                .into());
            }
        }
        Ok(())
    }

    /// The next tokens of the answers that have logits; those that have ended are finished.
    fn go_on(&mut self, fed: &[(usize, usize)], logits: &Matrix) -> Result<()> {
        let ready = fed.iter().map(|(i, _)| *i);
        let ready: Vec<usize> = ready
            .filter(|i| self.open[*i].fed == self.open[*i].tokens.len())
            .collect();
        let open = &self.open;
        let next: Vec<Result<TokenId>> = ready
            .par_iter()
            .enumerate()
            .map(|(row, i)| open[*i].choose(logits.row(row)))
            .collect();
        for (i, token) in ready.into_iter().zip(next) {
            let one = &mut self.open[i];
            let token = token?;
            one.tokens.push(token);
            one.counts.push(token);
        }
        let (how, context) = (self.how, self.target.context());
        let ended = |open: &Open| {
            let answer = open.tokens.len() - open.prompt_tokens;
            let last = open
                .tokens
                .last()
                .is_some_and(|last| how.eos.contains(last));
            let whole = answer > 0 && open.fed + 1 == open.tokens.len();
            whole && (last || answer >= how.max_tokens || open.fed >= context)
        };
        let (done, open) = std::mem::take(&mut self.open).into_iter().partition(ended);
        self.open = open;
        for one in done {
            let one: Open = one;
            self.cache.release(one.seq);
            let record = Record {
                prompt: self.prompts[one.place].index,
                prompt_tokens: one.prompt_tokens,
                temperature: one.temperature,
                tokens: one.tokens,
                taps: one.taps,
                finals: one.finals,
            };
            self.finished.insert(one.place, record);
        }
        Ok(())
    }
}

impl Open {
    fn choose(&self, logits: &[f32]) -> Result<TokenId> {
        let history = History {
            counts: &self.counts,
            tokens: &self.tokens,
            path: &[],
        };
        let law = self.chain.law(logits, &history)?;
        Ok(choose(&law, history.index() as u64, &self.draws))
    }
}

/// The temperature of a prompt with this seed: any of them, as likely as another.
fn temperature(all: &[f64], seed: u64) -> f64 {
    let draw = derive_choice(seed, 1) >> 32;
    let count = all.len().max(1) as u64;
    let pick = usize::try_from(draw % count).unwrap_or(0);
    all.get(pick).copied().unwrap_or(0.0)
}

/// Appends `values` in half precision; how many were beyond its range.
fn halve(values: &[f32], to: &mut Vec<f16>) -> usize {
    let largest = f32::from(f16::MAX);
    let from = to.len();
    to.resize(from + values.len(), f16::ZERO);
    let beyond = values.iter().filter(|x| x.is_finite() && x.abs() > largest);
    let beyond = beyond.count();
    if beyond == 0 {
        to[from..].convert_from_f32_slice(values);
    } else {
        // Not a number stays what it is, for the caller to find.
        let kept = |x: &f32| {
            if x.is_finite() {
                x.clamp(-largest, largest)
            } else {
                *x
            }
        };
        let kept: Vec<f32> = values.iter().map(kept).collect();
        to[from..].convert_from_f32_slice(&kept);
    }
    beyond
}
