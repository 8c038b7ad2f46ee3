//! What the counts say, in words.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ALPHA, ENOUGH, Variant, reading::Reading, sign::sign_test};
use crate::TokenId;

/// What is to be thought of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It guesses better than all floors, and than any other way to put it together.
    Right,
    /// Something is wrong with it.
    Wrong,
    /// There are too few rows, or the text is too easy, to tell.
    Short,
}

/// One way to put the head together, or the floor of always the same token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Which.
    pub name: String,
    /// Share of right guesses by position.
    pub rates: Vec<f64>,
    /// Rows at position 1 where the head as it is was right and this was not.
    pub worse: u32,
    /// Rows at position 1 where this was right and the head was not.
    pub better: u32,
    /// Whether the head has to be better than this.
    pub floor: bool,
}

/// What looks wrong, or cannot be told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// In words, and what to do.
    pub words: String,
    /// Of the sign test.
    pub p_value: f64,
}

/// How a head stands on some texts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// Rows that were guessed at position 1.
    pub rows: u32,
    /// Rows by position.
    pub counts: Vec<u32>,
    /// Share of right guesses by position, of those whose guesses before are all right.
    pub given_before: Vec<f64>,
    /// The head as it is, then beside what it stands.
    pub standings: Vec<Standing>,
    /// What looks wrong.
    pub findings: Vec<Finding>,
}

/// Right guesses on all texts so far.
#[derive(Debug)]
pub(super) struct Tally {
    /// By position: rows.
    rows: Vec<u32>,
    /// By position: rows whose guesses before are right, and of these those right here.
    before: Vec<(u32, u32)>,
    /// By variant and position.
    right: Vec<Vec<u32>>,
    /// By variant, at position 1: where only the head as it is was right, and where only the variant.
    only: Vec<(u32, u32)>,
    /// What the target said at position 1 by token: how often, and how often the head was right.
    said: BTreeMap<TokenId, (u32, u32)>,
}

impl Tally {
    pub(super) fn new(variants: usize, depth: usize) -> Self {
        Self {
            rows: vec![0; depth],
            before: vec![(0, 0); depth],
            right: vec![vec![0; depth]; variants],
            only: vec![(0, 0); variants],
            said: BTreeMap::new(),
        }
    }

    /// Adds the rows of a text: by variant and row, whether each guess was right.
    pub(super) fn add(&mut self, hits: &[Vec<Vec<bool>>], reading: &Reading) {
        let own = &hits[0];
        for (row, guesses) in own.iter().enumerate() {
            let mut so_far = true;
            for (at, right) in guesses.iter().enumerate() {
                self.rows[at] += 1;
                self.before[at].0 += u32::from(so_far);
                so_far &= right;
                self.before[at].1 += u32::from(so_far);
                for (variant, hits) in hits.iter().enumerate() {
                    self.right[variant][at] += u32::from(hits[row][at]);
                }
            }
            let first = guesses[0];
            for (only, hits) in self.only.iter_mut().zip(hits) {
                only.0 += u32::from(first && !hits[row][0]);
                only.1 += u32::from(!first && hits[row][0]);
            }
            let said = reading.says[reading.from + row + 1];
            let said = self.said.entry(said).or_default();
            *said = (said.0 + 1, said.1 + u32::from(first));
        }
    }
}

/// The counts of `tally` in words.
pub(super) fn report(tally: &Tally, variants: Vec<Variant>) -> Report {
    let rows = tally.rows.first().copied().unwrap_or(0);
    let share = |part: u32, all: u32| f64::from(part) / f64::from(all.max(1));
    let mut standings = Vec::new();
    let mut findings = Vec::new();
    for ((variant, right), only) in variants.into_iter().zip(&tally.right).zip(&tally.only) {
        let (worse, better) = *only;
        let p_value = sign_test(better, worse);
        if let Some(words) = variant.hint.filter(|_| p_value < ALPHA) {
            let words = format!("{} guesses better: {words}", variant.name);
            findings.push(Finding { words, p_value });
        }
        let rates = right.iter().zip(&tally.rows);
        standings.push(Standing {
            name: variant.name,
            rates: rates.map(|(right, rows)| share(*right, *rows)).collect(),
            worse,
            better,
            floor: variant.floor,
        });
    }
    let commonest = tally.said.iter().max_by_key(|(_, (count, _))| *count);
    if let Some((token, &(count, right))) = commonest {
        let own = tally.right[0].first().copied().unwrap_or(0);
        standings.push(Standing {
            name: format!("always token {token}, the commonest"),
            rates: vec![share(count, rows)],
            worse: own - right,
            better: count - right,
            floor: true,
        });
    }
    let mut short = rows == 0;
    for standing in standings.iter().filter(|standing| standing.floor) {
        let p_value = sign_test(standing.worse, standing.better);
        if p_value < ALPHA {
            continue;
        }
        // What a head that is always right would have shown.
        let taken = standing.rates.first().copied().unwrap_or(0.0);
        let most = f64::from(rows) * (1.0 - taken);
        let telling = rows >= ENOUGH && 0.5_f64.powf(most) < ALPHA;
        if telling {
            let name = &standing.name;
            let words =
                format!("below chance-adjusted floor, check mapping/taps: not better than {name}");
            findings.push(Finding { words, p_value });
        } else {
            short = true;
        }
    }
    Report {
        verdict: match (findings.is_empty(), short) {
            (false, _) => Verdict::Wrong,
            (true, true) => Verdict::Short,
            (true, false) => Verdict::Right,
        },
        rows,
        counts: tally.rows.clone(),
        given_before: (tally.before.iter())
            .map(|(before, right)| share(*right, *before))
            .collect(),
        standings,
        findings,
    }
}
