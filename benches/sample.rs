//! One row of logits to a law to a token, at the vocabulary of SmolLM2; bytes of logits a second.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use eyrie::sample::{
    Chain, Counts, Dist, Draws, History, Key, Keyed, RawParams, SamplingParams, choose,
};

const VOCAB: usize = 49_152;

/// Logits with the spread of a language model's: most mass on few tokens.
fn logits() -> Vec<f32> {
    let mut x = 1u32;
    let mut unit = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(x >> 16).unwrap_or(0)) / 65_536.0
    };
    (0..VOCAB)
        .map(|_| (0..6).map(|_| unit()).sum::<f32>() * 4.0 - 12.0)
        .collect()
}

fn chain(raw: RawParams) -> Chain {
    let params = SamplingParams::new(raw).expect("in range");
    Chain::new(params, VOCAB, VOCAB, vec![0, 2]).expect("no bias beyond the vocabulary")
}

fn laws(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/law");
    group.throughput(Throughput::Bytes((VOCAB * size_of::<f32>()) as u64));
    let warm = || RawParams {
        temperature: 1.0,
        ..RawParams::default()
    };
    let cases = [
        ("greedy", RawParams::default()),
        (
            "greedy+penalties",
            RawParams {
                presence_penalty: 0.5,
                ..RawParams::default()
            },
        ),
        ("plain", warm()),
        (
            "top-k",
            RawParams {
                top_k: 50,
                ..warm()
            },
        ),
        (
            "top-p",
            RawParams {
                top_p: 0.9,
                ..warm()
            },
        ),
        (
            "min-p",
            RawParams {
                min_p: 0.05,
                ..warm()
            },
        ),
        (
            "all",
            RawParams {
                top_k: 50,
                top_p: 0.9,
                min_p: 0.05,
                repetition_penalty: 1.1,
                ..warm()
            },
        ),
    ];
    let (logits, prompt) = (logits(), (0..1_000).collect::<Vec<_>>());
    let counts = Counts::new(&prompt);
    let history = History {
        counts: &counts,
        tokens: &prompt,
        path: &[3, 4, 5],
    };
    for (name, raw) in cases {
        let chain = chain(raw);
        group.bench_function(format!("{name}/{VOCAB}"), |b| {
            // Its size is known when its probabilities are.
            b.iter(|| chain.law(black_box(&logits), &history).map(|law| law.len()));
        });
    }
    // The twin of `top-p`: sort everything.
    group.bench_function(format!("top-p-naive/{VOCAB}"), |b| {
        b.iter(|| {
            let z = black_box(&logits);
            let peak = z.iter().copied().fold(f32::MIN, f32::max);
            let mut all: Vec<_> = z
                .iter()
                .map(|z| f64::from(z - peak).exp())
                .enumerate()
                .collect();
            let wanted = 0.9 * all.iter().map(|x| x.1).sum::<f64>();
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            let mut mass = 0.0;
            let before = |x: (usize, f64)| {
                mass += x.1;
                mass - x.1 < wanted
            };
            all.into_iter().map(before).filter(|kept| *kept).count()
        });
    });
    group.finish();
}

fn choices(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/choose");
    group.throughput(Throughput::Bytes((VOCAB * size_of::<f32>()) as u64));
    let counts = Counts::new(&[]);
    let history = History {
        counts: &counts,
        tokens: &[],
        path: &[],
    };
    let keyed = Keyed::new(1);
    let warm = RawParams {
        temperature: 1.0,
        ..RawParams::default()
    };
    for (name, raw) in [
        ("plain", warm.clone()),
        ("top-p", RawParams { top_p: 0.9, ..warm }),
    ] {
        let law = chain(raw).law(&logits(), &history).expect("finite logits");
        let mut t = 0;
        group.bench_function(format!("{name}/{VOCAB}"), |b| {
            b.iter(|| {
                t += 1;
                choose(black_box(&law), t, &keyed)
            });
        });
        group.bench_function(format!("{name}-naive/{VOCAB}"), |b| {
            b.iter(|| {
                t += 1;
                naive(black_box(&law), t, &keyed)
            });
        });
    }
    group.finish();
}

/// What a row of a pass costs: its law and the choice, probabilities only where somebody needs them.
fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/sample");
    group.throughput(Throughput::Bytes((VOCAB * size_of::<f32>()) as u64));
    let (logits, prompt) = (logits(), (0..1_000).collect::<Vec<_>>());
    let counts = Counts::new(&prompt);
    let history = History {
        counts: &counts,
        tokens: &prompt,
        path: &[3, 4, 5],
    };
    let keyed = Keyed::new(1);
    let warm = |temperature| RawParams {
        temperature,
        ..RawParams::default()
    };
    let cases = [
        ("greedy", warm(0.0)),
        ("plain", warm(1.0)),
        ("cooler", warm(0.7)),
        (
            "top-k",
            RawParams {
                top_k: 40,
                ..warm(1.0)
            },
        ),
        (
            "top-p",
            RawParams {
                top_p: 0.9,
                ..warm(0.7)
            },
        ),
        (
            "penalties",
            RawParams {
                repetition_penalty: 1.1,
                ..warm(1.0)
            },
        ),
    ];
    for (name, raw) in cases {
        let chain = chain(raw);
        let mut t = 0;
        group.bench_function(format!("{name}/{VOCAB}"), |b| {
            b.iter(|| {
                t += 1;
                let law = chain.law(black_box(&logits), &history);
                law.map(|law| choose(&law, t, &keyed))
            });
        });
    }
    group.finish();
}

/// Every number of the support, two logarithms each.
fn naive(law: &Dist, t: u64, draws: &Keyed) -> u32 {
    let value = |(id, ln_p)| (id, ln_p + draws.gumbel(Key::token(t), id));
    law.iter()
        .map(value)
        .fold((0, f64::MIN), |a, b| if b.1 > a.1 { b } else { a })
        .0
}

criterion_group!(benches, laws, choices, rows);
