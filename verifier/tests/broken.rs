//! Whole judgements: honest systems pass, broken ones fail, weak tests say so.

use eyrie_verifier::{
    judge::{self, Settings},
    pit::Row,
    power::{PIT, PIT_ROWS, rows_needed, upper_share},
    rng::Rng,
    verdict::Verdict,
};

/// What is broken, if anything, in speculation with one drafted token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Engine {
    Honest,
    AcceptAll,
    FromP,
    Zeroed,
    StaleQ,
    SharedNoise,
    Lenient,
    Reused,
}

const BROKEN: [Engine; 7] = [
    Engine::AcceptAll,
    Engine::FromP,
    Engine::Zeroed,
    Engine::StaleQ,
    Engine::SharedNoise,
    Engine::Lenient,
    Engine::Reused,
];

/// Target law, draft law, and the draft law of the row before.
struct Laws {
    p: Vec<f64>,
    q: Vec<f64>,
    stale: Vec<f64>,
}

fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * rng.unit().ln()).sqrt() * (2.0 * std::f64::consts::PI * rng.unit()).cos()
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f64::MIN, f64::max);
    let e: Vec<f64> = logits.iter().map(|x| (x - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.into_iter().map(|x| x / sum).collect()
}

/// Random laws over `n` tokens with an acceptance of about two thirds.
fn laws(n: usize, before: &[f64], rng: &mut Rng) -> Laws {
    let p: Vec<f64> = (0..n).map(|_| 1.5 * normal(rng)).collect();
    let q: Vec<f64> = p.iter().map(|x| x + 0.9 * normal(rng)).collect();
    Laws {
        p: softmax(&p),
        q: softmax(&q),
        stale: before.to_vec(),
    }
}

/// The first index at which the running sum of the weights is above `u` of their total.
fn inverse(weights: &[f64], u: f64) -> usize {
    let target = u * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    let found = weights.iter().position(|w| {
        sum += w;
        sum > target
    });
    found.unwrap_or_else(|| weights.iter().rposition(|w| *w > 0.0).unwrap())
}

/// Argmax of ln w + G: a draw of the law of the weights.
fn gumbel(weights: &[f64], noise: &[f64]) -> usize {
    let value = |i: usize| weights[i].ln() + noise[i];
    (0..weights.len())
        .max_by(|&a, &b| value(a).total_cmp(&value(b)))
        .unwrap()
}

fn emit(engine: Engine, laws: &Laws, rng: &mut Rng) -> usize {
    let Laws { p, q, stale } = laws;
    let noise: Vec<f64> = match engine {
        Engine::SharedNoise => p.iter().map(|_| -(-rng.unit().ln()).ln()).collect(),
        _ => Vec::new(),
    };
    let x = match engine {
        Engine::SharedNoise => gumbel(q, &noise),
        _ => inverse(q, rng.unit()),
    };
    let judged = if engine == Engine::StaleQ { stale } else { q };
    let ratio = p[x] / judged[x];
    let u = rng.unit();
    let accepted = match engine {
        Engine::AcceptAll => true,
        Engine::Lenient => u < ratio * 1.05,
        _ => u < ratio,
    };
    if accepted {
        return x;
    }
    let weights: Vec<f64> = match engine {
        Engine::FromP => p.clone(),
        Engine::Zeroed => (0..p.len())
            .map(|i| if i == x { 0.0 } else { p[i] })
            .collect(),
        _ => p
            .iter()
            .zip(judged)
            .map(|(p, q)| (p - q).max(0.0))
            .collect(),
    };
    match engine {
        Engine::SharedNoise => gumbel(&weights, &noise),
        Engine::Reused => inverse(&weights, u),
        _ => inverse(&weights, rng.unit()),
    }
}

/// Cells of `n` tokens of one pair of laws over 16 tokens.
fn sample(engine: Engine, laws: &Laws, n: usize, rng: &mut Rng) -> Vec<usize> {
    (0..n).map(|_| emit(engine, laws, rng)).collect()
}

fn counts(cells: &[usize], n: usize) -> Vec<u64> {
    let mut counts = vec![0; n];
    for &cell in cells {
        counts[cell] += 1;
    }
    counts
}

/// Rows of a trace, each with laws of its own.
fn trace(engine: Engine, n: usize, vocab: usize, rng: &mut Rng) -> Vec<Row> {
    let mut before = laws(vocab, &[], rng).q;
    (0..n)
        .map(|_| {
            let laws = laws(vocab, &before, rng);
            let x = emit(engine, &laws, rng);
            before.clone_from(&laws.q);
            Row::of(&laws.p, &laws.q, x).unwrap()
        })
        .collect()
}

/// Laws over 16 tokens that disagree much, and no cell too light to stand.
fn fixed() -> Laws {
    let mut rng = Rng::new(77);
    let mut logits =
        |scale: f64| -> Vec<f64> { (0..16).map(|_| scale * normal(&mut rng)).collect() };
    let p = logits(0.7);
    Laws {
        q: softmax(&p.iter().map(|x| -x).collect::<Vec<_>>()),
        p: softmax(&p),
        stale: softmax(&logits(0.7)),
    }
}

#[test]
fn honest_systems_pass_on_999_of_1000_seeds() {
    let laws = fixed();
    let settings = |seed| Settings {
        seed,
        ..Settings::default()
    };
    let mut passed = [0; 3];
    for seed in 0..1_000 {
        let mut rng = Rng::new(Rng::new(seed).bits());
        let a = sample(Engine::Honest, &laws, 20_000, &mut rng);
        let b = sample(Engine::Honest, &laws, 20_000, &mut rng);
        let rows = trace(Engine::Honest, rows_needed(1e-6).unwrap(), 16, &mut rng);
        let verdicts = [
            judge::gof(&laws.p, &a, settings(seed)).unwrap().verdict,
            judge::two_sample(&counts(&a, 16), &counts(&b, 16), settings(seed))
                .unwrap()
                .verdict,
            judge::pit(&rows, settings(seed)).unwrap().verdict,
        ];
        for (count, verdict) in passed.iter_mut().zip(verdicts) {
            *count += u32::from(verdict == Verdict::Pass);
        }
    }
    assert!(
        passed.iter().all(|count| *count >= 999),
        "{passed:?} of 1,000"
    );
}

/// 200,000 samples see all; the mildest need them.
#[test]
fn broken_engines_fail() {
    let laws = fixed();
    for engine in BROKEN {
        let mut rng = Rng::new(4);
        let n = if engine == Engine::Lenient {
            600_000
        } else {
            200_000
        };
        let cells = sample(engine, &laws, n, &mut rng);
        let seen = judge::gof(&laws.p, &cells, Settings::default()).unwrap();
        assert_eq!(seen.verdict, Verdict::Fail, "{engine:?}: {seen:?}");
        let honest = sample(Engine::Honest, &laws, n, &mut rng);
        let two = judge::two_sample(
            &counts(&cells, 16),
            &counts(&honest, 16),
            Settings::default(),
        )
        .unwrap();
        assert_eq!(two.verdict, Verdict::Fail, "{engine:?}: {two:?}");
    }
}

#[test]
fn weak_tests_are_undecided() {
    let laws = fixed();
    let mut rng = Rng::new(9);
    let cells = sample(Engine::Honest, &laws, 2_000, &mut rng);
    let seen = judge::gof(&laws.p, &cells, Settings::default()).unwrap();
    assert_eq!(seen.verdict, Verdict::Undecided, "{seen:?}");
    let enough = Settings {
        tv: 0.12,
        ..Settings::default()
    };
    assert_eq!(
        judge::gof(&laws.p, &cells, enough).unwrap().verdict,
        Verdict::Pass
    );
    let rows = trace(Engine::Honest, 100, 16, &mut rng);
    assert_eq!(
        judge::pit(&rows, Settings::default()).unwrap().verdict,
        Verdict::Undecided
    );
}

/// A deviation between two cells of one pool: only the test inside pools and the evidence can see it, and
/// power is not claimed for what lies in there.
#[test]
fn what_pools_hide_is_seen_inside_or_not_claimed() {
    let coarse = Settings {
        alpha: 1e-4,
        ..Settings::default()
    };
    let mut p = vec![0.96];
    p.extend([0.001; 40]);
    let mut cells = vec![0; 960];
    // Pools are of five cells each: five samples in the first cell of each, none in the others.
    cells.extend((1..=40).step_by(5).flat_map(|first| [first; 5]));
    let seen = judge::gof(&p, &cells, coarse).unwrap();
    let inside = seen
        .tests
        .iter()
        .find(|t| t.test == "inside pools")
        .unwrap();
    assert!(
        inside.holm.unwrap() < 1e-4 && seen.verdict == Verdict::Fail,
        "{seen:?}"
    );
    assert!(seen.pooled.unwrap() > 0.039 && seen.excluded_tv > seen.pooled);
    assert!(seen.tests[0].p_value > 0.9, "{seen:?}");
    // The same for two samples.
    let mut a = vec![980];
    a.extend([1; 20]);
    let mut b = a.clone();
    b[1..].fill(0);
    b[1] = 20;
    let seen = judge::two_sample(&a, &b, coarse).unwrap();
    let inside = seen
        .tests
        .iter()
        .find(|t| t.test == "inside pools")
        .unwrap();
    assert!(inside.p_value < 1e-3, "{seen:?}");
}

/// Where so many samples are inside pools that the simulation cannot reach alpha, it does not count.
#[test]
fn a_coarse_simulation_does_not_count() {
    let cells: Vec<usize> = (0..4_000).collect();
    let seen = judge::gof(&[1.0 / 4_000.0; 4_000], &cells, Settings::default()).unwrap();
    let inside = seen
        .tests
        .iter()
        .find(|t| t.test == "inside pools")
        .unwrap();
    assert_eq!(
        (inside.holm, seen.verdict),
        (None, Verdict::Undecided),
        "{seen:?}"
    );
    assert_eq!(seen.excluded_tv, Some(1.0));
}

/// The rule of three and its like: 1 - .01^(1/n) of none in n; symmetric numbers of the binomial.
#[test]
fn upper_shares() {
    let none = upper_share(0.0, 1_000.0, 0.99);
    assert!((none - (1.0 - 0.01f64.powf(1e-3))).abs() < 1e-9, "{none}");
    assert!((upper_share(5.0, 10.0, 0.95) - 0.777_56).abs() < 1e-4);
    assert_eq!(upper_share(10.0, 10.0, 0.99), 1.0);
}

fn power(engine: Engine, n: usize, runs: u32, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let fails = (0..runs)
        .filter(|_| {
            let rows = trace(engine, n, 64, &mut rng);
            judge::pit(&rows, Settings::default()).unwrap().verdict == Verdict::Fail
        })
        .count();
    f64::from(u32::try_from(fails).unwrap()) / f64::from(runs)
}

/// Part of the table again, with other seeds: what passes must see the gross mutants.
#[test]
fn the_power_table_holds() {
    let at = PIT_ROWS
        .iter()
        .position(|n| Some(*n) == rows_needed(1e-6))
        .unwrap();
    for (engine, row) in BROKEN.into_iter().zip(PIT) {
        let power = power(engine, PIT_ROWS[at], 40, 1_000);
        // 40 and 200 runs: five deviations.
        let spread = 5.0 * (0.25f64 / 40.0 + 0.25 / 200.0).sqrt();
        assert!(
            (power - row.rejected[at]).abs() < spread,
            "{}: {power}",
            row.broken
        );
        if row.rejected[at] >= 0.995 {
            assert!(power > 0.9, "{}: {power}", row.broken);
        }
    }
}
