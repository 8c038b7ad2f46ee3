//! Broken variants, each caught by the law of the tokens that rounds emit.
//!
//! Every test plays its rounds with the variant and without it, by the same seeds, and compares both
//! with the exact law of plain decoding. `docs/MUTANTS.md` has what was seen, and every row of it
//! is checked by the test that it names.

use std::{path::Path, sync::Arc};

use eyrie::{
    accept::{Block, Match, Rejection, Rule},
    draft::Pick,
    mutant::Mutant,
};
use eyrie_verifier::{
    chi2,
    judge::{self, Settings},
    verdict::Verdict,
};
use rayon::prelude::*;

use super::{
    ALPHA,
    rounds::{Play, Table},
    walk::warm,
};

/// Bounds of p-values in the table.
const BOUNDS: [f64; 8] = [1e-6, 1e-9, 1e-12, 1e-20, 1e-50, 1e-100, 1e-300, 0.0];

const TABLE: &str = "docs/MUTANTS.md";

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    std::fs::read_to_string(path).expect("the table of variants is there")
}

/// A table of logits within `-spread..spread`, by a small generator.
fn table(rows: usize, vocab: usize, spread: f32, seed: u32) -> Vec<Vec<f32>> {
    let mut state = seed;
    let mut logit = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f32::from(u16::try_from(state >> 16).unwrap()) / 32_768.0 - 1.0) * spread
    };
    let mut row = || (0..vocab).map(|_| logit()).collect();
    (0..rows).map(|_| row()).collect()
}

/// The least favourable drafter: it likes what the target does not.
fn minus(table: &[Vec<f32>]) -> Table {
    let minus = |row: &Vec<f32>| row.iter().map(|x| -x).collect();
    Arc::new(table.iter().map(minus).collect())
}

/// A rule, with one draft a round that is picked as the rule has it, by the opposite of the target.
fn play(rule: &str, rows: usize, vocab: usize) -> Play {
    let rule: fn() -> Box<dyn Rule> = match rule {
        "match" => || Box::new(Match),
        "rejection" => || Box::new(Rejection),
        _ => || Box::new(Block),
    };
    let target = table(rows, vocab, 1.2, 5);
    Play {
        drafter: minus(&target),
        target: Arc::new(target),
        raw: warm(|_| {}),
        tree: vec![None],
        pick: if rule().name() == "match" {
            Pick::Coupled
        } else {
            Pick::Drawn
        },
        rule,
        length: 1,
    }
}

/// Fails unless the variant is rejected under every rule that it breaks, the honest code is not, and
/// the document says so.
fn caught(mutant: Mutant, n: u64, play: impl Fn(&str) -> Play) {
    let mut lines = Vec::new();
    for rule in mutant.rules() {
        let play = play(rule);
        assert_eq!((play.rule)().name(), *rule);
        let law = play.law();
        let fit = |mutant| chi2::goodness_of_fit(&play.counts(mutant, 0..n), &law).unwrap();
        let (broken, honest) = (fit(Some(mutant)), fit(None));
        assert!(!honest.rejects(ALPHA), "honest {rule}: {honest}");
        assert!(
            broken.rejects(ALPHA),
            "{} of {rule}: {broken}",
            mutant.name()
        );
        let bound = BOUNDS.iter().rfind(|bound| broken.p_value <= **bound);
        let p = match bound {
            Some(0.0) if broken.statistic.is_infinite() => "0: impossible tokens".to_owned(),
            Some(bound) if *bound > 0.0 => format!("below {bound:e}"),
            _ => "below 1e-300".to_owned(),
        };
        let (name, test) = (mutant.name(), test_of(mutant));
        lines.push(format!(
            "| `{name}` | {rule} | `law::mutants::{test}` | {n} | {p} |"
        ));
    }
    lacking(&lines);
}

/// Fails if the document lacks a row.
pub(super) fn lacking(rows: &[String]) {
    let document = document();
    let lacks: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|row| !document.contains(row))
        .collect();
    assert!(lacks.is_empty(), "{TABLE} lacks:\n{}", lacks.join("\n"));
}

/// By convention.
fn test_of(mutant: Mutant) -> String {
    format!("{}_is_caught", mutant.name().replace('-', "_"))
}

#[test]
fn always_accept_is_caught() {
    caught(Mutant::AlwaysAccept, 1_000, |rule| play(rule, 1, 16));
}

#[test]
fn inverse_ratio_is_caught() {
    caught(Mutant::InverseRatio, 1_000, |rule| play(rule, 1, 16));
}

#[test]
fn sibling_left_in_is_caught() {
    caught(Mutant::SiblingLeftIn, 20_000, |rule| Play {
        tree: vec![None, None],
        ..play(rule, 1, 16)
    });
}

#[test]
fn resample_from_p_is_caught() {
    caught(Mutant::ResampleFromP, 4_000, |rule| play(rule, 1, 16));
}

#[test]
fn drafted_zeroed_is_caught() {
    caught(Mutant::DraftedZeroed, 4_000, |rule| play(rule, 1, 16));
}

#[test]
fn q_without_temperature_is_caught() {
    caught(Mutant::QWithoutTemperature, 20_000, |rule| Play {
        raw: warm(|raw| raw.temperature = 0.7),
        ..play(rule, 1, 16)
    });
}

#[test]
fn q_unfiltered_is_caught() {
    caught(Mutant::QUnfiltered, 10_000, |rule| Play {
        raw: warm(|raw| raw.top_k = 11),
        ..play(rule, 1, 16)
    });
}

#[test]
fn uniform_reused_is_caught() {
    caught(Mutant::UniformReused, 10_000, |rule| play(rule, 1, 16));
}

#[test]
fn sibling_unnormalised_is_caught() {
    caught(Mutant::SiblingUnnormalised, 30_000, |rule| Play {
        tree: vec![None, None],
        ..play(rule, 1, 16)
    });
}

/// The mildest: the noise of the draft says only a little about what replaces it.
#[test]
fn shared_noise_is_caught() {
    caught(Mutant::SharedNoise, 100_000, |rule| play(rule, 1, 16));
}

#[test]
fn filter_skipped_is_caught() {
    caught(Mutant::FilterSkipped, 1_000, |rule| Play {
        raw: warm(|raw| raw.top_k = 8),
        ..play(rule, 1, 16)
    });
}

#[test]
fn dropped_by_value_is_caught() {
    caught(Mutant::DroppedByValue, 10_000, |rule| play(rule, 1, 16));
}

#[test]
fn penalty_twice_is_caught() {
    caught(Mutant::PenaltyTwice, 20_000, |rule| Play {
        raw: warm(|raw| raw.frequency_penalty = 1.5),
        length: 2,
        ..play(rule, 1, 6)
    });
}

#[test]
fn stale_q_is_caught() {
    caught(Mutant::StaleQ, 20_000, |rule| Play {
        tree: vec![None, Some(0)],
        length: 2,
        ..play(rule, 6, 6)
    });
}

#[test]
fn keys_without_anchor_is_caught() {
    caught(Mutant::KeysWithoutAnchor, 10_000, |rule| Play {
        length: 2,
        ..play(rule, 6, 6)
    });
}

/// Needs rounds whose drafts behind the cut were looked at and come back.
#[test]
fn keys_by_position_is_caught() {
    caught(Mutant::KeysByPosition, 40_000, |rule| Play {
        tree: vec![None, Some(0), Some(1)],
        length: 3,
        ..play(rule, 4, 4)
    });
}

#[test]
fn keys_without_node_is_caught() {
    caught(Mutant::KeysWithoutNode, 10_000, |rule| Play {
        tree: vec![None, Some(0)],
        length: 2,
        ..play(rule, 6, 6)
    });
}

#[test]
fn argmax_claims_softmax_is_caught() {
    caught(Mutant::ArgmaxClaimsSoftmax, 1_000, |rule| play(rule, 1, 16));
}

#[test]
fn fresh_draw_is_caught() {
    caught(Mutant::FreshDraw, 10_000, |rule| play(rule, 1, 16));
}

#[test]
fn noise_without_index_is_caught() {
    caught(Mutant::NoiseWithoutIndex, 2_000, |rule| Play {
        length: 2,
        ..play(rule, 6, 6)
    });
}

#[test]
fn noise_of_the_anchor_is_caught() {
    caught(Mutant::NoiseOfTheAnchor, 10_000, |rule| Play {
        length: 2,
        ..play(rule, 6, 6)
    });
}

/// Why more than one token of a request is looked at: the first alone has the right law under variants
/// of keys.
#[test]
fn one_token_a_request_does_not_show_a_broken_key() {
    for mutant in [
        Mutant::KeysWithoutAnchor,
        Mutant::KeysByPosition,
        Mutant::NoiseWithoutIndex,
        Mutant::NoiseOfTheAnchor,
    ] {
        let play = play(mutant.rules()[0], 6, 6);
        let counts = play.counts(Some(mutant), 0..10_000);
        let fit = chi2::goodness_of_fit(&counts, &play.law()).unwrap();
        assert!(!fit.rejects(ALPHA), "{mutant:?}: {fit}");
    }
}

/// Plain decoding and rounds under every rule, each with seeds of its own, against the law and
/// against each other: 1,000 times, at the default alpha. 1,200 samples of 8 cells exclude a TV of
/// 0.15.
#[test]
fn honest_systems_pass_on_999_of_1000_seeds() {
    const N: u64 = 1_200;
    let siblings = |rule| Play {
        tree: vec![None, None, Some(0)],
        ..play(rule, 1, 8)
    };
    let plain = Play {
        tree: vec![],
        ..play("match", 1, 8)
    };
    let chain = |rule| Play {
        tree: vec![None, Some(0)],
        ..play(rule, 1, 8)
    };
    let systems = [
        siblings("match"),
        chain("rejection"),
        siblings("rejection"),
        chain("block"),
    ];
    let law = plain.law();
    let passes = |i: u64, which: u64, system: &Play| -> [bool; 2] {
        let settings = Settings {
            tv: 0.15,
            seed: i,
            ..Settings::default()
        };
        let seeds = |arm: u64| {
            let begin = ((i * 8 + which) * 2 + arm) * N;
            begin..begin + N
        };
        let cells = system.cells(None, seeds(0));
        let count = |cells: &[usize]| {
            let mut counts = vec![0; law.len()];
            cells.iter().for_each(|cell| counts[*cell] += 1);
            counts
        };
        let other = plain.cells(None, seeds(1));
        let one = judge::gof(&law, &cells, settings).unwrap();
        let two = judge::two_sample(
            &count(&cells),
            &count(&other),
            Settings {
                tv: 0.2,
                ..settings
            },
        );
        [one.verdict, two.unwrap().verdict].map(|verdict| verdict == Verdict::Pass)
    };
    for (which, system) in (0..).zip(&systems) {
        let all: Vec<[bool; 2]> = (0..1_000u64)
            .into_par_iter()
            .map(|i| passes(i, which, system))
            .collect();
        for test in 0..2 {
            let passed = all.iter().filter(|passes| passes[test]).count();
            let rule = (system.rule)().name();
            assert!(
                passed >= 999,
                "{rule} on {:?}: {passed} of 1,000",
                system.tree
            );
        }
    }
}

/// Every variant has rows in the document, and they name a test of this file.
#[test]
fn every_variant_is_in_the_table_with_a_test() {
    let (document, tests) = (document(), include_str!("mutants.rs"));
    for mutant in Mutant::ALL {
        assert!(tests.contains(&format!("#[test]\nfn {}() {{\n", test_of(mutant))));
        assert!(tests.contains(&format!("    caught(Mutant::{mutant:?}, ")));
        for rule in mutant.rules() {
            let row = format!(
                "| `{}` | {rule} | `law::mutants::{}` |",
                mutant.name(),
                test_of(mutant)
            );
            assert_eq!(document.matches(&row).count(), 1, "{row}");
        }
        assert!(document.contains(mutant.what()), "{}", mutant.what());
    }
}
