//! The tests of the judge, by number of cells. Counts are 20 a cell in the mean, of a law that falls
//! with the id, so that some cells are pooled; the simulation makes 1,000 draws of the light ones.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group};
use eyrie_verifier::{
    chi2,
    e_process::EProcess,
    g, holm,
    monte_carlo::{self, Effort},
    pit,
    rng::Rng,
};

const CELLS: [usize; 2] = [256, 4_096];
const PER_CELL: usize = 20;

/// The law with `p` proportional to `1 / (1 + 60 i / cells)^2`.
fn law(cells: usize) -> Vec<f64> {
    let place = |i: usize| float(i) / float(cells);
    let weights: Vec<f64> = (0..cells)
        .map(|i| (1.0 + 60.0 * place(i)).powi(-2))
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / sum).collect()
}

fn float(i: usize) -> f64 {
    f64::from(u32::try_from(i).expect("a small number"))
}

/// Cells of `n` draws of `p`.
fn draws(p: &[f64], n: usize, seed: u64) -> Vec<usize> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = p
        .iter()
        .map(|p| {
            sum += p;
            sum
        })
        .collect();
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.pick(&cumulative)).collect()
}

fn counts(cells: usize, draws: &[usize]) -> Vec<u64> {
    let mut counts = vec![0; cells];
    for cell in draws {
        counts[*cell] += 1;
    }
    counts
}

fn tests(c: &mut Criterion) {
    let mut group = c.benchmark_group("cpu/judge");
    for cells in CELLS {
        let (p, n) = (law(cells), PER_CELL * cells);
        let sample = draws(&p, n, 1);
        let (a, b) = (counts(cells, &sample), counts(cells, &draws(&p, n, 2)));
        group.throughput(Throughput::Elements(cells as u64));
        group.bench_function(format!("chi2/{cells}"), |bench| {
            bench.iter(|| chi2::goodness_of_fit(black_box(&a), &p));
        });
        group.bench_function(format!("chi2-two-sample/{cells}"), |bench| {
            bench.iter(|| chi2::two_sample(black_box(&a), &b));
        });
        group.bench_function(format!("g/{cells}"), |bench| {
            bench.iter(|| g::goodness_of_fit(black_box(&a), &p));
        });
        let effort = Effort {
            most: 1_000,
            enough: 1_000,
            seed: 3,
        };
        let light = monte_carlo::goodness_of_fit(&a, &p, effort).expect("a law");
        assert!(light.expect("light cells").draws >= 1_000);
        group.bench_function(format!("monte-carlo/{cells}"), |bench| {
            bench.iter(|| monte_carlo::goodness_of_fit(black_box(&a), &p, effort));
        });
        let holding: Vec<f64> = (0..cells).map(|i| float(i + 1) / float(cells)).collect();
        group.bench_function(format!("holm/{cells}"), |bench| {
            bench.iter(|| holm::holm(black_box(&holding)));
        });

        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(format!("e-process/{cells}"), |bench| {
            bench.iter(|| {
                let mut process = EProcess::new(&p).expect("a law");
                black_box(&sample)
                    .iter()
                    .for_each(|cell| process.push(*cell));
                process.ln_e()
            });
        });
        let q = law(cells).into_iter().rev().collect::<Vec<_>>();
        let row = |token: &usize| pit::Row::of(&p, &q, *token).expect("laws");
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("pit-row/{cells}"), |bench| {
            bench.iter(|| row(black_box(&sample[0])));
        });
        let rows: Vec<_> = sample.iter().take(cells).map(row).collect();
        group.throughput(Throughput::Elements(cells as u64));
        group.bench_function(format!("pit/{cells}"), |bench| {
            bench.iter(|| pit::test(black_box(&rows), 4));
        });
    }
    group.finish();
}

criterion_group!(benches, tests);
