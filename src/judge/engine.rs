//! The section engine: everything that runs, over a built-in target of four tokens.

use std::sync::Arc;

use super::{
    Settings,
    accept::ratio,
    conclude::{Evidence, Section, gof},
    memory::Memory,
    settings::warm,
    subject::{Kind, Subject},
};
use crate::{
    TokenId,
    draft::{Drafter, ModelDrafter, Ngram, Script},
    error::Result,
    model::Target,
    report::ChoiceReport,
    request::Request,
    sample::{Chain, Counts, History, SamplingParams, derive_line},
    schedule::{Engine, EngineOptions, Event, Parts},
};

/// Drafters under which each rule is judged.
pub(super) const DRAFTERS: usize = 3;

/// Size of the vocabulary.
const VOCAB: u16 = 4;

/// Tokens of a choice that are judged, and that are generated: one more, so that the drafts of the
/// first round are as long as they may be.
const LENGTH: usize = 3;
const GENERATED: usize = 4;

/// Has every token behind its last one, so that `ngram` always finds something.
const PROMPT: [TokenId; 11] = [1, 0, 3, 1, 1, 2, 1, 3, 0, 2, 1];

/// Choices of one request.
const BATCH: usize = 8_000;

const OPTIONS: EngineOptions = EngineOptions {
    depth: 3,
    nodes: None,
    max_batch: 32,
    kv_tokens: 1 << 10,
    prefill_chunk: 4,
};

/// Judges `kind` with every drafter.
pub(super) fn engine(
    subject: &dyn Subject,
    kind: Kind,
    settings: &Settings,
    take: &mut dyn FnMut(Evidence),
) -> Result<()> {
    let params = SamplingParams::new(warm(|raw| {
        raw.temperature = 0.8;
        raw.frequency_penalty = -1.0;
    }))?;
    let width = usize::from(VOCAB);
    let chain = Chain::new(params.clone(), width, width, Vec::new())?;
    let law = law(&chain)?;
    for which in 0..DRAFTERS {
        let drafter = drafter(which, kind);
        let name = format!("{}, {}", kind.name(), drafter.name());
        let request = Request {
            params: params.clone(),
            max_tokens: GENERATED,
            seed: derive_line(settings.seed, 1_000 + 100 * kind as u64 + which as u64),
            ..request(&PROMPT)
        };
        let parts = Parts {
            target: Arc::new(TARGET),
            text: None,
            eos: Vec::new(),
            valid: width,
            drafter: subject.drafter(drafter),
            rule: subject.rule(kind.rule()),
        };
        let mut engine = Engine::new(parts, OPTIONS)?;
        let reports = choices(&mut engine, &request, settings.engine())?;
        take(judged(name, &reports, &law, settings)?);
    }
    Ok(())
}

const TARGET: Memory = Memory {
    vocab: VOCAB,
    seed: 11,
};

/// Another model, the latest tokens, and a list.
fn drafter(which: usize, kind: Kind) -> Box<dyn Drafter> {
    match which {
        0 => {
            let other: Arc<dyn Target> = Arc::new(Memory { seed: 12, ..TARGET });
            let (room, chunk) = (OPTIONS.kv_tokens, OPTIONS.prefill_chunk);
            Box::new(ModelDrafter::new(other, kind.pick(), room, chunk))
        }
        1 => Box::new(Ngram),
        _ => Box::new(Script::new(vec![vec![0, 3, 1], vec![2, 1], vec![3]])),
    }
}

/// The joint law of the first tokens, by `16 first + 4 second + third`.
fn law(chain: &Chain) -> Result<Vec<f64>> {
    let p = |more: &[TokenId]| {
        let mut counts = Counts::new(&PROMPT);
        more.iter().for_each(|token| counts.push(*token));
        let tokens = &[&PROMPT, more].concat();
        let logits = TARGET.logits(tokens);
        let history = History {
            counts: &counts,
            tokens,
            path: &[],
        };
        chain.law(&logits, &history)
    };
    let ids = || (0..VOCAB).map(TokenId::from);
    let mut law = Vec::new();
    for a in ids() {
        for b in ids() {
            for c in ids() {
                law.push(p(&[])?.p(a) * p(&[a])?.p(b) * p(&[a, b])?.p(c));
            }
        }
    }
    Ok(law)
}

fn judged(
    name: String,
    reports: &[ChoiceReport],
    law: &[f64],
    settings: &Settings,
) -> Result<Evidence> {
    let (mut drafted, mut accepted, mut cells) = (0, 0, Vec::new());
    for report in reports {
        let Some(tokens) = report.tokens.get(..LENGTH) else {
            let why = report.error.clone().unwrap_or_default();
            let what = format!("a choice ended after {} tokens: {why}", report.tokens.len());
            return Ok(Evidence::fact(Section::Engine, name, 0, false).failed(what));
        };
        let digit = |cell: usize, token: &TokenId| cell * usize::from(VOCAB) + *token as usize;
        cells.push(tokens.iter().fold(0, digit));
        drafted += report
            .rounds
            .iter()
            .map(|round| round.drafted)
            .sum::<usize>();
        accepted += report
            .rounds
            .iter()
            .map(|round| round.accepted)
            .sum::<usize>();
    }
    let evidence = gof((Section::Engine, name), law, &cells, settings)?;
    let rounds: usize = reports.iter().map(|report| report.rounds.len()).sum();
    let rounds = ratio(rounds, reports.len());
    Ok(evidence.note(format!(
        "{accepted} of {drafted} drafts accepted, {rounds:.2} rounds a choice"
    )))
}

/// `n` choices, as requests of several.
fn choices(engine: &mut Engine, request: &Request, n: usize) -> Result<Vec<ChoiceReport>> {
    let mut all = Vec::new();
    for (batch, begin) in (0..n).step_by(BATCH).enumerate() {
        let request = Request {
            n: BATCH.min(n - begin),
            seed: derive_line(request.seed, batch as u64),
            ..request.clone()
        };
        all.extend(run(engine, &[request])?.reports);
    }
    Ok(all)
}

/// What a run gave.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Results as they finished.
    pub(super) reports: Vec<ChoiceReport>,
    /// Anchors of all rounds: the request's id, and their index in prompt and output.
    pub(super) anchors: Vec<(String, usize)>,
}

/// Runs requests to their ends.
pub(super) fn run(engine: &mut Engine, requests: &[Request]) -> Result<Run> {
    for request in requests {
        engine.submit(request.clone())?;
    }
    let mut run = Run::default();
    while !engine.is_idle() {
        for event in engine.step() {
            match event {
                Event::Finished { report, .. } => run.reports.push(report),
                Event::Round { trace, .. } => run.anchors.push((trace.request, trace.position)),
                Event::Piece { .. } => {}
            }
        }
    }
    Ok(run)
}

/// A request for 1 greedy token after `prompt`, to be changed by struct update.
pub(super) fn request(prompt: &[TokenId]) -> Request {
    Request {
        id: String::new(),
        prompt: prompt.to_vec(),
        params: SamplingParams::default(),
        max_tokens: 1,
        stop: Vec::new(),
        stop_ids: Vec::new(),
        ignore_eos: true,
        seed: 0,
        n: 1,
        logprobs: None,
        drafter_off: false,
        processors: Vec::new(),
    }
}
