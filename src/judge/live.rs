//! The section live: the model and the drafter that were given.
//!
//! A live model hardly ever gives a prefix twice, so there is nothing to count. What is judged is the first token
//! of every round, placed on the unit interval by the target's own law at the anchor, in the order of p/q
//! ([`eyrie_verifier::pit`]): p by feeding the finished output to the target again, q as the drafter says it at the anchor
//! before any noise. Under every rule that token has law p whatever the rounds before did, so the numbers are
//! uniform and independent. An anchor at which the drafter has no guess says little about drafts and has no row; whether it has one
//! does not depend on the token. Without a drafter every anchor has a row, and q is uniform.

use std::{
    fmt,
    sync::{Arc, PoisonError},
};

use eyrie_verifier::{judge::pit, pit::Row, power::rows_needed, rng::Rng};

use super::{
    Settings,
    accept::ratio,
    conclude::{Evidence, Section, asked},
    engine::{Run, request, run},
    laws::Fed,
    settings::warm,
    subject::{Kind, Subject},
    witness::{Beliefs, Witness},
};
use crate::{
    TokenId,
    draft::{Drafter, NoDrafter, Pick},
    error::Result,
    model::Target,
    report::ChoiceReport,
    request::Request,
    sample::{Dist, SamplingParams, derive_line},
    schedule::{Engine, EngineOptions, Parts},
};

/// Tokens of a request, if the context allows: so many that texts begin to repeat themselves, and `ngram` to guess.
const TOKENS: usize = 160;

/// Tokens of a request whose tokens are compared.
const COMPARED_TOKENS: usize = 48;

/// Rounds for a row that is wanted, after which a drafter that hardly ever guesses is given up.
const PATIENCE: usize = 20;

/// Requests at once: what is remembered of a drafter is a law a round.
const BATCH: usize = 4;

/// Requests whose tokens are compared.
const COMPARED: usize = 8;

/// Prompts of random tokens, where no others are given.
const PROMPTS: usize = 8;

/// A model, a drafter for it, and how they run.
pub struct Live<'a> {
    /// The model.
    pub target: Arc<dyn Target>,
    /// Whether its drafter is one.
    pub drafts: bool,
    /// Makes its drafter, with this pick.
    pub drafter: &'a dyn Fn(Pick) -> Result<Box<dyn Drafter>>,
    /// The pick under the rule `match`.
    pub pick: Pick,
    /// Ids from here on are never generated.
    pub valid: usize,
    /// The engine's settings.
    pub options: EngineOptions,
    /// What to generate after; random tokens, if empty.
    pub prompts: Vec<Vec<TokenId>>,
}

impl fmt::Debug for Live<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Live");
        out.field("target", &self.target).field("pick", &self.pick);
        out.field("options", &self.options).finish_non_exhaustive()
    }
}

impl Live<'_> {
    /// Findings that are no statistics. None where a row's bits depend on the rows beside it: only the
    /// law is promised there.
    pub(super) fn identities(&self, rules: &[Kind]) -> usize {
        let all = rules.len() + usize::from(rules.contains(&Kind::Match));
        if self.target.row_invariant() { all } else { 0 }
    }

    /// Judges `kind`: the transform, plain decoding at temperature 0, and under `match` the tokens of
    /// a seed.
    pub(super) fn judge(
        &self,
        subject: &dyn Subject,
        kind: Kind,
        settings: &Settings,
        take: &mut dyn FnMut(Evidence),
    ) -> Result<()> {
        let pick = match kind {
            Kind::Match => self.pick,
            Kind::Rejection | Kind::Block => kind.pick(),
        };
        let seed = derive_line(settings.seed, 2_000 + kind as u64);
        let subject = Judged {
            live: self,
            subject,
            kind,
            pick,
            prompts: self.prompts(seed),
        };
        let greedy = SamplingParams::default();
        let warm = SamplingParams::new(warm(|raw| (raw.temperature, raw.top_p) = (0.8, 0.95)))?;
        take(subject.transform(seed, settings)?);
        if !self.target.row_invariant() {
            return Ok(());
        }
        take(subject.identity("plain tokens at temperature 0", &greedy, seed)?);
        if kind == Kind::Match {
            take(subject.identity("plain tokens of a seed", &warm, seed)?);
        }
        Ok(())
    }

    /// Prompts that leave room for tokens to be generated.
    fn prompts(&self, seed: u64) -> Vec<Vec<TokenId>> {
        let most = (self.target.context() / 2).clamp(1, self.options.kv_tokens);
        let mut rng = Rng::new(seed);
        let mut id = || TokenId::try_from(rng.below(self.valid.max(1))).unwrap_or_default();
        let random = (0..PROMPTS).map(|i| (0..=i + 3).map(|_| id()).collect());
        let mut prompts: Vec<Vec<TokenId>> = if self.prompts.is_empty() {
            random.collect()
        } else {
            self.prompts.clone()
        };
        prompts.iter_mut().for_each(|prompt| prompt.truncate(most));
        prompts
    }

    fn engine(
        &self,
        kind: Kind,
        drafter: Box<dyn Drafter>,
        subject: &dyn Subject,
    ) -> Result<Engine> {
        let parts = Parts {
            target: Arc::clone(&self.target),
            text: None,
            eos: Vec::new(),
            valid: self.valid,
            drafter,
            rule: subject.rule(kind.rule()),
        };
        Engine::new(parts, self.options)
    }
}

/// One rule and one drafter over the model given.
struct Judged<'a> {
    live: &'a Live<'a>,
    subject: &'a dyn Subject,
    kind: Kind,
    pick: Pick,
    prompts: Vec<Vec<TokenId>>,
}

impl Judged<'_> {
    fn request(&self, i: usize, tokens: usize, params: &SamplingParams, seed: u64) -> Request {
        let prompt = &self.prompts[i % self.prompts.len()];
        let room = self.live.target.context() - prompt.len();
        Request {
            id: i.to_string(),
            params: params.clone(),
            max_tokens: tokens.min(room + 1),
            seed: derive_line(seed, i as u64),
            ..request(prompt)
        }
    }

    fn name(&self, what: &str, drafter: &str) -> String {
        format!("{}, {drafter}, {what}", self.kind.name())
    }

    /// Whether requests give the tokens of plain decoding.
    fn identity(&self, what: &str, params: &SamplingParams, seed: u64) -> Result<Evidence> {
        let request = |i| self.request(i, COMPARED_TOKENS, params, seed);
        let requests: Vec<_> = (0..COMPARED).map(request).collect();
        let drafter = self.subject.drafter((self.live.drafter)(self.pick)?);
        let name = self.name(what, drafter.name());
        let mut engine = self.live.engine(self.kind, drafter, self.subject)?;
        let drafted = in_order(run(&mut engine, &requests)?.reports);
        let mut compared = 0;
        for (request, drafted) in requests.iter().zip(&drafted) {
            let honest = &super::Honest;
            let mut plain = self.live.engine(Kind::Match, Box::new(NoDrafter), honest)?;
            let plain = run(&mut plain, std::slice::from_ref(request))?.reports;
            let errors = plain
                .iter()
                .chain([drafted])
                .filter_map(|report| report.error.as_ref());
            if let Some(error) = errors.into_iter().next() {
                let evidence = Evidence::fact(Section::Live, name, compared, false);
                return Ok(evidence.failed(error));
            }
            let plain = plain.first().map_or(&[][..], |report| &report.tokens);
            let equal = plain
                .iter()
                .zip(&drafted.tokens)
                .take_while(|(a, b)| a == b);
            let equal = equal.count();
            compared += plain.len();
            if equal < plain.len() || drafted.tokens.len() != plain.len() {
                let what = format!("request {} differs from token {equal} on", request.id);
                return Ok(Evidence::fact(Section::Live, name, compared, false).note(what));
            }
        }
        let note = format!("tokens of {COMPARED} requests");
        Ok(Evidence::fact(Section::Live, name, compared, true).note(note))
    }

    /// The transform of the first token of every round.
    fn transform(&self, seed: u64, settings: &Settings) -> Result<Evidence> {
        let params = SamplingParams::new(warm(|_| ()))?;
        let (mut rows, mut rounds, mut requested) = (Vec::new(), 0, 0);
        let wanted = settings.live();
        let mut name = String::new();
        while rows.len() < wanted && rounds < PATIENCE * wanted {
            let next = |i| self.request(requested + i, TOKENS, &params, seed);
            let requests: Vec<_> = (0..BATCH).map(next).collect();
            requested += BATCH;
            let beliefs = Beliefs::default();
            let witness = Witness {
                judged: self.subject.drafter((self.live.drafter)(self.pick)?),
                asked: (self.live.drafter)(Pick::Drawn)?,
                beliefs: Arc::clone(&beliefs),
            };
            name = self.name("transform of tokens", witness.name());
            let mut engine = self
                .live
                .engine(self.kind, Box::new(witness), self.subject)?;
            let run = run(&mut engine, &requests)?;
            if let Some(error) = run.reports.iter().find_map(|report| report.error.as_ref()) {
                let evidence = Evidence::fact(Section::Live, name, rows.len(), false);
                return Ok(evidence.failed(error));
            }
            if run.anchors.is_empty() {
                break;
            }
            rounds += run.anchors.len();
            self.place(&requests, run, &beliefs, &mut rows)?;
        }
        let note = format!("first tokens of rounds, at the guesses among {rounds} anchors");
        if rows.is_empty() {
            return Ok(Evidence::fact(Section::Live, name, 0, true).note(note));
        }
        let judged = pit(&rows, asked(settings))?;
        let needed = rows_needed(settings.alpha);
        let evidence = Evidence::tested(Section::Live, name, rows.len(), &judged);
        let enough = needed.is_some_and(|needed| rows.len() >= 2 * needed);
        Ok(evidence.note(note).powerful(enough))
    }

    /// Adds a row for every round that gave a token, where the drafter had a guess.
    fn place(
        &self,
        requests: &[Request],
        run: Run,
        beliefs: &Beliefs,
        rows: &mut Vec<Row>,
    ) -> Result<()> {
        let beliefs = beliefs.lock().unwrap_or_else(PoisonError::into_inner);
        let vocab = self.live.target.vocab();
        let uniform = vec![1.0 / ratio(vocab, 1); vocab];
        for (request, report) in requests.iter().zip(in_order(run.reports)) {
            let all = [&request.prompt[..], &report.tokens].concat();
            let own = run.anchors.iter().filter(|(id, _)| *id == request.id);
            let mut anchors: Vec<usize> = own.map(|(_, at)| *at).collect();
            anchors.sort_unstable();
            let guessed = |at: usize| !self.live.drafts || beliefs.contains_key(&all[..=at]);
            anchors.retain(|at| at + 1 < all.len() && guessed(*at));
            let fed = Fed {
                target: &*self.live.target,
                params: &request.params,
                valid: self.live.valid,
                chunk: self.live.options.prefill_chunk,
                prompt: request.prompt.len(),
                tokens: &all,
            };
            let laws = fed.laws(&anchors)?;
            for (at, p) in anchors.into_iter().zip(laws) {
                let q = beliefs.get(&all[..=at]);
                let q = q.map_or_else(|| uniform.clone(), |q| dense(q, vocab));
                let row = Row::of(&dense(&p, vocab), &q, all[at + 1] as usize);
                rows.push(row?);
            }
        }
        Ok(())
    }
}

/// The reports in the order of their requests, whose ids are numbers.
fn in_order(mut reports: Vec<ChoiceReport>) -> Vec<ChoiceReport> {
    reports.sort_by_key(|report| report.id.parse::<usize>().unwrap_or(usize::MAX));
    reports
}

fn dense(law: &Dist, vocab: usize) -> Vec<f64> {
    let mut all = vec![0.0; vocab];
    for (id, ln_p) in law.iter() {
        if let Some(p) = all.get_mut(id as usize) {
            *p = ln_p.exp();
        }
    }
    all
}
