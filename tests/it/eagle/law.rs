//! Drawn drafts of a head with a reduced vocabulary, chains and trees, under the rules that judge by law.
//!
//! N = 4,000 a test, alpha 1e-6 for each of 8 comparisons of 64 cells.

use std::sync::Arc;

use eyrie::{
    accept::{Block, Rejection, Rule},
    draft::{
        Pick, Shape,
        eagle::{EagleDrafter, Version, VocabMap},
    },
    request::Request,
};
use eyrie_verifier::chi2;

use super::heads::{Made, table_head};
use crate::support::{Lab, drawn, table_target};

const ALPHA: f64 = 1e-6;
const N: usize = 4_000;

type Make = fn() -> Box<dyn Rule>;

/// Logits of the next token, by the last.
const TARGET: [[f32; 4]; 4] = [
    [1.2, 0.1, -0.7, 0.4],
    [-0.3, 0.9, 0.8, -1.0],
    [0.0, -1.2, 0.5, 1.1],
    [0.6, 0.6, -0.9, 0.2],
];

/// Logits of the head, by the last token, for the tokens 0, 2 and 3.
const HEAD: [[f32; 4]; 3] = [
    [0.3, -1.0, 0.9, 0.2],
    [1.0, 0.4, -0.6, 0.0],
    [-0.8, 0.5, 0.1, 1.3],
];

fn head(version: Version) -> Made {
    let mut made = table_head(version, 4, 1.0);
    (made.config.own_head, made.config.draft_vocab) = (true, 3);
    made.config.vocab_map = VocabMap::Reduced([0, 2, 3].into());
    // The norm before it makes a vector of length 2 of the embedding.
    let halves = HEAD.as_flattened().iter().map(|x| x / 2.0);
    made.tensors
        .insert("lm_head.weight".to_owned(), halves.collect());
    made
}

fn softmax(row: &[f32; 4]) -> [f64; 4] {
    let p = row.map(|x| f64::from(x).exp());
    let total: f64 = p.iter().sum();
    p.map(|x| x / total)
}

/// The law of three tokens after token 0, by `16 a + 4 b + c`.
fn joint() -> Vec<f64> {
    let p = TARGET.map(|row| softmax(&row));
    let cells = (0..64).map(|cell| (cell / 16, cell / 4 % 4, cell % 4));
    cells.map(|(a, b, c)| p[0][a] * p[a][b] * p[b][c]).collect()
}

#[test]
fn drawn_drafts_of_a_reduced_vocabulary_keep_the_law() {
    let table: Vec<Vec<f32>> = TARGET.map(Vec::from).into();
    let target = table_target(&table);
    let rules: [(Make, usize); 3] = [
        (|| Box::new(Rejection), 1),
        (|| Box::new(Rejection), 3),
        (|| Box::new(Block), 1),
    ];
    let mut seed = 400;
    for version in [Version::Eagle1, Version::Eagle3] {
        for (rule, topk) in rules {
            seed += 1;
            let lab = Lab::new(Arc::clone(&target)).with(|lab| {
                lab.rule = rule;
                lab.options.nodes = (topk > 1).then_some(8);
            });
            let request = Request {
                max_tokens: 6,
                n: N,
                ..drawn(&[0], 1.0, seed)
            };
            let pick = Pick::Drawn;
            let drafter =
                EagleDrafter::new(head(version).head(&target), Shape { pick, topk }, 4096);
            let run = lab.run(Box::new(drafter), &[request]);
            let what = format!("{version:?}, {} with {topk} children", rule().name());
            let drafted = run.traces.iter().flat_map(|trace| &trace.drafted);
            assert!(drafted.clone().count() > 2 * N, "{what}");
            assert!(drafted.clone().all(|token| *token != 1), "{what}");
            let (drafts, accepted) = run.drafted_accepted();
            assert!(0 < accepted && accepted < drafts, "{what}");

            let mut counts = vec![0_u64; 64];
            for tokens in run.tokens() {
                let cell = tokens[..3].iter().fold(0, |cell, token| cell * 4 + token);
                counts[cell as usize] += 1;
            }
            let fit = chi2::goodness_of_fit(&counts, &joint()).expect("counts");
            assert!(!fit.rejects(ALPHA), "{what}: {fit:?}");
        }
    }
}
