//! The section accept: production's rules and draws over adversarial tables.
//!
//! A sample is a request with a seed of its own, driven round by round until three tokens are out. Its drafts
//! are mostly rejected, so that most samples have two or three rounds, and draws that a round shares with
//! another show in the joint law. The three tokens fall into 1,024 cells: the first two exactly, the third by its
//! remainder by 4, so that hardly any cell is too light to be told apart; that each of the three has mass at
//! all is checked token by token.

use rayon::prelude::*;

use super::{
    Settings,
    conclude::{Evidence, Section, gof},
    subject::{Kind, Subject},
    tables::{Case, Table, TableDrafter, TableRows, VOCAB, cases},
};
use crate::{
    SeqId, TokenId,
    accept::Rule,
    draft::{Anchor, Drafter},
    error::Result,
    sample::{Chain, Counts, Dist, Fault, History, Keyed, SamplingParams, derive_line},
    tree::DraftTree,
};

/// Tokens of a sample.
const LENGTH: usize = 3;

/// What every sample begins with; the last is the anchor of the first round, and output.
const BEFORE: [TokenId; 3] = [1, 2, 5];

/// Samples that are driven by one drafter, on one thread.
const CHUNK: usize = 2_000;

/// Classes of the last token in a cell.
const CLASSES: usize = 4;

/// Children of a node by level: a chain, and a tree.
const CHAIN: [usize; 3] = [1, 1, 1];
const TREE: [usize; 2] = [2, 2];

/// Findings for one rule.
pub(super) fn count(kind: Kind) -> usize {
    cases().len() * kind.shapes()
}

/// Judges `kind` under every processing, on chains and, where it judges them, on trees.
pub(super) fn accept(
    subject: &dyn Subject,
    kind: Kind,
    settings: &Settings,
    take: &mut dyn FnMut(Evidence),
) -> Result<()> {
    let shapes = [("chain", &CHAIN[..]), ("tree", &TREE)];
    let shapes = shapes.into_iter().take(kind.shapes());
    for (s, (shape, widths)) in shapes.enumerate() {
        for (c, case) in cases().into_iter().enumerate() {
            // Every finding has seeds of its own.
            let place = 100 * kind as u64 + 50 * s as u64 + c as u64;
            let seed = derive_line(settings.seed, place);
            let drive = Drive::new(subject, kind, &case, widths)?;
            let name = format!("{}, {}, {shape}", kind.name(), case.name);
            take(drive.judge(name, seed, settings)?);
        }
    }
    Ok(())
}

/// How samples come about.
struct Drive<'a> {
    subject: &'a dyn Subject,
    kind: Kind,
    target: Table,
    chain: Chain,
    drafter: TableDrafter,
}

/// One sample, or many.
#[derive(Clone, Debug, Default)]
struct Driven {
    /// By `(first * 16 + second) * 16 + third`.
    cells: Vec<usize>,
    rounds: usize,
    drafted: usize,
    accepted: usize,
}

impl<'a> Drive<'a> {
    fn new(subject: &'a dyn Subject, kind: Kind, case: &Case, widths: &[usize]) -> Result<Self> {
        let target = Table::hard();
        let drafter = TableDrafter {
            table: target.opposite(),
            pick: kind.pick(),
            widths: widths.to_vec(),
            ids: case.draft_ids.clone(),
        };
        let params = SamplingParams::new(case.raw.clone())?;
        Ok(Self {
            subject,
            kind,
            target,
            chain: Chain::new(params, VOCAB, VOCAB, Vec::new())?,
            drafter,
        })
    }

    fn judge(&self, name: String, seed: u64, settings: &Settings) -> Result<Evidence> {
        let law = self.law()?;
        let samples = settings.samples;
        let chunks = 0..samples.div_ceil(CHUNK);
        let run = |chunk: usize| self.chunk(chunk * CHUNK..samples.min((chunk + 1) * CHUNK), seed);
        let driven: Result<Vec<Driven>> = chunks.into_par_iter().map(run).collect();
        let driven = match driven {
            Ok(driven) => driven.into_iter().fold(Driven::default(), Driven::with),
            Err(error) => {
                let evidence = Evidence::fact(Section::Accept, name, 0, false);
                return Ok(evidence.failed(error.to_string()));
            }
        };
        let coarse = |cell: usize| cell / VOCAB * CLASSES + cell % CLASSES;
        let mut p = vec![0.0; VOCAB * VOCAB * CLASSES];
        for (cell, mass) in law.iter().enumerate() {
            p[coarse(cell)] += mass;
        }
        let cells: Vec<usize> = driven.cells.iter().map(|cell| coarse(*cell)).collect();
        let evidence = gof((Section::Accept, name), &p, &cells, settings)?;
        let impossible = driven.cells.iter().find(|cell| law[**cell] == 0.0);
        if let Some(cell) = impossible {
            let tokens = [cell / VOCAB / VOCAB, cell / VOCAB % VOCAB, cell % VOCAB];
            return Ok(evidence.failed(format!("{tokens:?} was emitted and has no mass")));
        }
        Ok(evidence.note(format!(
            "{} of {} drafts accepted, {:.2} rounds a sample",
            driven.accepted,
            driven.drafted,
            ratio(driven.rounds, samples)
        )))
    }

    /// The joint law of the tokens of a sample, by the target alone.
    fn law(&self) -> Result<Vec<f64>> {
        let mut law = vec![0.0; VOCAB.pow(3)];
        let counts = before();
        let p = |path: &[TokenId]| self.p(&counts, path);
        for (a, ln_a) in p(&[])?.iter() {
            for (b, ln_b) in p(&[a])?.iter() {
                for (c, ln_c) in p(&[a, b])?.iter() {
                    law[cell([a, b, c])] = (ln_a + ln_b + ln_c).exp();
                }
            }
        }
        Ok(law)
    }

    /// The target's law after what `counts` has and `path`, of which one is not empty.
    fn p(&self, counts: &Counts, path: &[TokenId]) -> Result<Dist, Fault> {
        let row = self.target.row(&BEFORE, path);
        let history = History {
            counts,
            tokens: &BEFORE,
            path,
        };
        self.chain.law(row, &history)
    }

    fn chunk(&self, samples: std::ops::Range<usize>, seed: u64) -> Result<Driven> {
        let rule = self.subject.rule(self.kind.rule());
        let mut drafter = self.subject.drafter(Box::new(self.drafter.clone()));
        let mut all = Driven::default();
        for sample in samples {
            let mut keyed = Keyed::new(derive_line(seed, sample as u64));
            self.sample(rule.as_ref(), drafter.as_mut(), &mut keyed, &mut all)?;
            drafter.forget(SeqId(0));
        }
        Ok(all)
    }

    /// Drives one request until its tokens are out.
    fn sample(
        &self,
        rule: &dyn Rule,
        drafter: &mut dyn Drafter,
        keyed: &mut Keyed,
        all: &mut Driven,
    ) -> Result<()> {
        let mut tokens = BEFORE.to_vec();
        let mut counts = before();
        for round in 0.. {
            let out = tokens.len() - BEFORE.len();
            if out >= LENGTH {
                break;
            }
            let anchor = Anchor {
                seq: SeqId(0),
                tokens: &tokens,
                round,
                depth: self.drafter.widths.len(),
                nodes: usize::MAX,
                chain: &self.chain,
                counts: &counts,
                draws: keyed,
            };
            let mut tree = DraftTree::new();
            drafter.propose(&mut [anchor], std::slice::from_mut(&mut tree))?;
            let tree = &tree;
            let mut rows = TableRows {
                table: &self.target,
                chain: &self.chain,
                tokens: &tokens,
                counts: &counts,
                tree,
            };
            let first = counts.output_len() as u64;
            let verdict = rule.decide(tree, &mut rows, first, &mut keyed.clone());
            all.rounds += 1;
            all.drafted += tree.len();
            all.accepted += verdict.path.len();
            let path = verdict.path.iter().map(|node| tree.token(*node));
            let emitted: Vec<_> = path.chain([verdict.next?]).collect();
            for token in emitted {
                tokens.push(token);
                counts.push(token);
            }
        }
        let out = &tokens[BEFORE.len()..];
        all.cells.push(cell([out[0], out[1], out[2]]));
        Ok(())
    }
}

impl Driven {
    fn with(mut self, more: Self) -> Self {
        self.cells.extend(more.cells);
        self.rounds += more.rounds;
        self.drafted += more.drafted;
        self.accepted += more.accepted;
        self
    }
}

/// The counts at the first anchor.
fn before() -> Counts {
    let [prompt @ .., anchor] = BEFORE;
    let mut counts = Counts::new(&prompt);
    counts.push(anchor);
    counts
}

fn cell(tokens: [TokenId; LENGTH]) -> usize {
    let digit = |cell: usize, token: &TokenId| cell * VOCAB + (*token as usize).min(VOCAB - 1);
    tokens.iter().fold(0, digit)
}

/// A quotient of counts.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(super) fn ratio(a: usize, b: usize) -> f64 {
    a as f64 / (b.max(1)) as f64
}
