//! Each test against a slow and obvious version, and against known values.

use eyrie_verifier::{
    chi2, cramer,
    e_process::{CONCENTRATIONS, EProcess},
    g,
    holm::holm,
    monte_carlo::{self, Effort},
    pit::{self, Row},
    rng::Rng,
};
use proptest::prelude::*;
use statrs::function::gamma::ln_gamma;

fn close(a: f64, b: f64, relative: f64) {
    assert!((a - b).abs() <= relative * b.abs(), "{a} is not {b}");
}

fn number(n: u64) -> f64 {
    f64::from(u32::try_from(n).unwrap())
}

fn law(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// Mendel's peas by likelihood ratio, and a 2x2 table.
#[test]
fn g_of_known_tables() {
    let peas = [9. / 16., 3. / 16., 3. / 16., 1. / 16.];
    let fit = g::goodness_of_fit(&[315, 108, 101, 32], &peas).unwrap();
    let williams = 1.0 + (16. / 9. + 16. / 3. + 16. / 3. + 16. - 1.) / (6. * 556. * 3.);
    close(fit.statistic, 0.475_4 / williams, 1e-3);
    assert_eq!(fit.dof, 3);
    let fit = g::two_sample(&[30, 70], &[45, 40]).unwrap();
    let term = |seen: f64, row: f64, column: f64| 2.0 * seen * (seen * 185.0 / (row * column)).ln();
    let by_hand =
        term(30., 100., 75.) + term(70., 100., 110.) + term(45., 85., 75.) + term(40., 85., 110.);
    let williams =
        1.0 + (185. / 100. + 185. / 85. - 1.) * (185. / 75. + 185. / 110. - 1.) / (6. * 185.);
    close(fit.statistic, by_hand / williams, 1e-12);
    assert_eq!(
        g::goodness_of_fit(&[9, 1], &[1.0, 0.0]).unwrap().p_value,
        0.0
    );
}

/// Percentage points that every table of the Cramer-von Mises law has, and far ones of its leading
/// term: beyond the first stretch the law is that of one chi-square with a known factor.
#[test]
fn cramer_of_known_tables() {
    for (x, tail) in [
        (0.347_30, 0.10),
        (0.461_36, 0.05),
        (0.580_61, 0.025),
        (0.743_46, 0.01),
        (1.167_86, 0.001),
        (0.118_88, 0.50),
        (0.046_01, 0.90),
        (0.024_80, 0.99),
    ] {
        assert!(
            (cramer::tail(x) - tail).abs() < 2e-4 * tail + 1e-6,
            "{x}: {}",
            cramer::tail(x)
        );
    }
    // P(sum z_j^2 / (j pi)^2 > x) ~ P(z^2 > pi^2 x) prod_(j > 1) (1 - 1 / j^2)^(-1/2), a product of 2.
    let x: f64 = 40.0;
    let a = std::f64::consts::PI * x.sqrt();
    let normal = statrs::function::erf::erfc(a / 2f64.sqrt());
    close(cramer::tail(x), normal * 2f64.sqrt(), 5e-3);
    assert_eq!((cramer::tail(0.0), cramer::tail(f64::INFINITY)), (1.0, 0.0));
}

/// False alarms in the upper tail, for which the correction of small n is made, at n = 20 already.
#[test]
fn cramer_rejects_as_often_as_it_says() {
    let mut rng = Rng::new(11);
    for (n, runs) in [(20, 20_000u32), (500, 4_000)] {
        let mut below = [0u32; 3];
        for _ in 0..runs {
            let u: Vec<f64> = (0..n).map(|_| rng.unit()).collect();
            let p = cramer::p_value(cramer::statistic(&u), n);
            for (count, alpha) in below.iter_mut().zip([0.1, 0.05, 0.005]) {
                *count += u32::from(p < alpha);
            }
        }
        for (count, alpha) in below.into_iter().zip([0.1, 0.05, 0.005]) {
            let (mean, runs) = (alpha * f64::from(runs), f64::from(runs));
            let sd = (runs * alpha * (1.0 - alpha)).sqrt();
            assert!(
                (f64::from(count) - mean).abs() < 5.0 * sd + 0.03 * mean,
                "{n}, {alpha}: {count}"
            );
        }
    }
}

/// Every way that `k` samples can fall into the cells, with its probability.
fn multinomial(k: u64, p: &[f64], each: &mut dyn FnMut(&[u64], f64)) {
    fn go(
        left: u64,
        at: usize,
        counts: &mut Vec<u64>,
        p: &[f64],
        ln: f64,
        each: &mut dyn FnMut(&[u64], f64),
    ) {
        let term = |c: u64| number(c) * p[at].ln() - ln_gamma(number(c) + 1.0);
        if at + 1 == p.len() {
            counts.push(left);
            each(counts, (ln + term(left)).exp());
            counts.pop();
            return;
        }
        for c in 0..=left {
            counts.push(c);
            go(left - c, at + 1, counts, p, ln + term(c), each);
            counts.pop();
        }
    }
    go(k, 0, &mut Vec::new(), p, ln_gamma(number(k) + 1.0), each);
}

fn pearson(counts: &[u64], p: &[f64]) -> f64 {
    let k = number(counts.iter().sum());
    let term = |(&c, &p): (&u64, &f64)| (number(c) - k * p).powi(2) / (k * p);
    counts.iter().zip(p).map(term).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The simulated p-value is the exact one, by enumeration of all tables, up to simulation error.
    #[test]
    fn simulation_agrees_with_enumeration(
        counts in prop::collection::vec(0u64..4, 3), weights in prop::collection::vec(0.2f64..1.0, 3),
        seed: u64,
    ) {
        prop_assume!(counts.iter().sum::<u64>() > 0);
        let p = law(&weights);
        let seen = pearson(&counts, &p);
        let mut exact = 0.0;
        multinomial(counts.iter().sum(), &p, &mut |table, weight| {
            if pearson(table, &p) >= seen * (1.0 - 1e-9) {
                exact += weight;
            }
        });
        let exact = exact.min(1.0);
        let most = 20_000;
        let effort = Effort { most, enough: most + 1, seed };
        let Some(simulated) = monte_carlo::goodness_of_fit(&counts, &p, effort).unwrap() else {
            return Err(TestCaseError::fail("nine samples are no standing cells"));
        };
        prop_assert!((simulated.statistic - seen).abs() < 1e-9 * (1.0 + seen));
        let error = 5.5 * (exact * (1.0 - exact) / 20_000.0f64).sqrt() + 2e-4;
        prop_assert!((simulated.p_value - exact).abs() < error, "{} and {exact}", simulated.p_value);
    }

    /// Labels: all subsets of the samples, by enumeration.
    #[test]
    fn permutation_agrees_with_enumeration(
        a in prop::collection::vec(0u64..3, 3), b in prop::collection::vec(0u64..3, 3), seed: u64,
    ) {
        let (n, m) = (a.iter().sum::<u64>(), b.iter().sum::<u64>());
        let cells = a.iter().zip(&b).filter(|(a, b)| **a + **b > 0).count();
        prop_assume!(n > 0 && m > 0 && cells > 1);
        let places: Vec<usize> = (0..3).flat_map(|i| (0..a[i] + b[i]).map(move |_| i)).collect();
        let statistic = |x: &[u64]| -> f64 {
            (0..3).filter(|&i| a[i] + b[i] > 0).map(|i| {
                let (row, all) = (number(a[i] + b[i]), number(n + m));
                let (e, f) = (row * number(n) / all, row * number(m) / all);
                (number(x[i]) - e).powi(2) / e + (row - number(x[i]) - f).powi(2) / f
            }).sum()
        };
        let seen = statistic(&a);
        let (mut as_large, mut all) = (0.0, 0.0);
        for subset in 0u32..1 << places.len() {
            if u64::from(subset.count_ones()) == n {
                let mut x = vec![0; 3];
                for (bit, &i) in places.iter().enumerate() {
                    x[i] += u64::from(subset >> bit & 1);
                }
                all += 1.0;
                as_large += f64::from(u8::from(statistic(&x) >= seen * (1.0 - 1e-9)));
            }
        }
        let exact: f64 = as_large / all;
        let effort = Effort { most: 20_000, enough: 20_001, seed };
        let simulated = monte_carlo::two_sample(&a, &b, effort).unwrap().expect("light cells");
        prop_assert!((simulated.statistic - seen).abs() < 1e-9 * (1.0 + seen));
        let error = 5.5 * (exact * (1.0 - exact) / 20_000.0f64).sqrt() + 2e-4;
        prop_assert!((simulated.p_value - exact).abs() < error, "{} and {exact}", simulated.p_value);
    }

    /// With cells that all stand alone, G and Pearson's statistic are their textbook sums.
    #[test]
    fn standing_cells_are_textbook_sums(
        counts in prop::collection::vec(40u64..90, 4), weights in prop::collection::vec(0.5f64..1.0, 4)
    ) {
        let p = law(&weights);
        let n = number(counts.iter().sum());
        let naive: f64 = counts.iter().zip(&p).map(|(&c, p)| 2.0 * number(c) * (number(c) / (n * p)).ln()).sum();
        let inverse: f64 = p.iter().map(|p| 1.0 / p).sum();
        let naive = naive / (1.0 + (inverse - 1.0) / (6.0 * n * 3.0));
        let fit = g::goodness_of_fit(&counts, &p).unwrap();
        prop_assert!((fit.statistic - naive).abs() < 1e-9 * (1.0 + naive));
        let fit = chi2::goodness_of_fit(&counts, &p).unwrap();
        prop_assert!((fit.statistic - pearson(&counts, &p)).abs() < 1e-9 * (1.0 + fit.statistic));
        prop_assert_eq!((fit.dof, fit.pooled), (3, 0.0));
        let effort = Effort { most: 10, enough: 5, seed: 0 };
        prop_assert!(monte_carlo::goodness_of_fit(&counts, &p, effort).unwrap().is_none());
    }

    /// Holm by its definition: reject in order until one is not small enough.
    #[test]
    fn holm_by_definition(p in prop::collection::vec(0.0f64..0.2, 1..7), alpha in 0.001f64..0.3) {
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
        let mut rejected = vec![false; p.len()];
        for (step, &i) in order.iter().enumerate() {
            let left = number((p.len() - step) as u64);
            if p[i] * left >= alpha {
                break;
            }
            rejected[i] = true;
        }
        let adjusted: Vec<bool> = holm(&p).iter().map(|a| *a < alpha).collect();
        prop_assert_eq!(adjusted, rejected);
    }

    /// The product of bets is the ratio of the Dirichlet-multinomial to the multinomial probability.
    #[test]
    fn evidence_in_closed_form(
        cells in prop::collection::vec(0usize..4, 1..200), weights in prop::collection::vec(0.1f64..1.0, 4)
    ) {
        let p = law(&weights);
        let mut e = EProcess::new(&p).unwrap();
        let mut counts = [0u64; 4];
        for &cell in &cells {
            e.push(cell);
            counts[cell] += 1;
        }
        let n = number(e.len());
        let each = CONCENTRATIONS.map(|k| {
            let cell = |(&c, &p): (&u64, &f64)| ln_gamma(number(c) + k * p) - ln_gamma(k * p) - number(c) * p.ln();
            (ln_gamma(k) - ln_gamma(n + k) + counts.iter().zip(&p).map(cell).sum::<f64>()).exp()
        });
        let naive = each.iter().sum::<f64>() / 5.0;
        prop_assert!((e.ln_e() - naive.ln()).abs() < 1e-6, "{} and {}", e.ln_e(), naive.ln());
        prop_assert!(e.peak() >= e.ln_e());
    }

    /// W is n times the integral of (F_n - x)^2, summed piece by piece.
    #[test]
    fn cramer_is_an_integral(mut u in prop::collection::vec(0.0f64..1.0, 1..30)) {
        let seen = cramer::statistic(&u);
        u.sort_by(f64::total_cmp);
        let n = number(u.len() as u64);
        let edges: Vec<f64> = [0.0].into_iter().chain(u).chain([1.0]).collect();
        let mut naive = 0.0;
        for (i, pair) in edges.windows(2).enumerate() {
            let f = number(i as u64) / n;
            naive += n * ((pair[1] - f).powi(3) - (pair[0] - f).powi(3)) / 3.0;
        }
        prop_assert!((seen - naive).abs() < 1e-9, "{seen} and {naive}");
    }

    /// The places of all tokens tile the unit interval, in the order of p/q.
    #[test]
    fn places_tile_the_interval(
        p in prop::collection::vec(0u8..4, 6), q in prop::collection::vec(0u8..4, 6)
    ) {
        prop_assume!(p.iter().any(|x| *x > 0) && q.iter().any(|x| *x > 0));
        let [p, q] = [p, q].map(|v| law(&v.into_iter().map(f64::from).collect::<Vec<_>>()));
        let mut places: Vec<(Row, f64)> = (0..6)
            .filter(|&x| p[x] > 0.0)
            .map(|x| (Row::of(&p, &q, x).unwrap(), p[x] / q[x]))
            .collect();
        places.sort_by(|a, b| a.0.below.total_cmp(&b.0.below));
        let (mut edge, mut ratio) = (0.0, 0.0);
        for (row, r) in places {
            prop_assert!((row.below - edge).abs() < 1e-12 && r >= ratio);
            (edge, ratio) = (edge + row.p, r);
        }
        prop_assert!((edge - 1.0).abs() < 1e-12);
    }
}

/// One false alarm in 20 at most, looked at after every sample; and the median of samples that a deviation
/// needs is what was computed elsewhere: 5,130 for 16 cells at TV .05.
#[test]
fn evidence_is_valid_at_any_time() {
    let p = [1.0 / 16.0; 16];
    let mut rng = Rng::new(5);
    let mut alarms = 0;
    for _ in 0..1_000 {
        let mut e = EProcess::new(&p).unwrap();
        for _ in 0..2_000 {
            e.push(rng.below(16));
        }
        alarms += u32::from(e.rejects(0.05));
    }
    assert!(alarms <= 50, "{alarms} of 1,000");
    let mut cumulative = Vec::new();
    for i in 0..16 {
        let edge = cumulative.last().copied().unwrap_or(0.0);
        cumulative.push(edge + if i % 2 == 0 { 1.1 } else { 0.9 } / 16.0);
    }
    let mut stops: Vec<u64> = (0..101)
        .map(|_| {
            let mut e = EProcess::new(&p).unwrap();
            while !e.rejects(1e-6) {
                e.push(rng.pick(&cumulative));
            }
            e.len()
        })
        .collect();
    stops.sort_unstable();
    close(number(stops[50]), 5_130.0, 0.12);
}

#[test]
fn impossible_samples_are_infinite_evidence() {
    let mut e = EProcess::new(&[1.0, 0.0]).unwrap();
    e.push(0);
    assert!(!e.is_empty() && e.ln_e() == 0.0);
    e.push(1);
    assert_eq!((e.ln_e(), e.p_value()), (f64::INFINITY, 0.0));
    let row = Row::of(&[1.0, 0.0], &[0.5, 0.5], 1).unwrap();
    let fine = Row::of(&[1.0, 0.0], &[0.5, 0.5], 0).unwrap();
    let seen = pit::test(&[fine, row], 0).unwrap();
    assert_eq!((seen.p_value, seen.impossible), (0.0, Some(1)));
}

#[test]
fn bad_rows_are_named() {
    let says = |r: Result<Row, chi2::BadInput>| r.unwrap_err().to_string();
    assert_eq!(
        says(Row::of(&[1.0], &[0.5, 0.5], 0)),
        "p has 1 numbers and q 2: must be as many"
    );
    assert_eq!(
        says(Row::of(&[0.5, 0.6], &[0.5, 0.5], 0)),
        "p sums to 1.1: must be 1"
    );
    assert_eq!(
        says(Row::of(&[0.5, 0.5], &[0.5, -0.5], 0)),
        "q[1] = -0.5: must be a number at least 0"
    );
    assert_eq!(
        says(Row::of(&[0.5, 0.5], &[0.5, 0.5], 2)),
        "token 2: must be below 2, the length of p"
    );
    assert_eq!(says(Row::at(1.5, 0.0)), "below = 1.5: must lie in 0..=1");
    assert_eq!(
        says(Row::at(0.5, 0.75)),
        "below + p = 1.25: must be at most 1"
    );
    assert_eq!(pit::test(&[], 0).unwrap_err().to_string(), "no rows");
}

/// Thousands of cells with few counts each, where the law of chi-square is at its worst: no more false
/// alarms at .01 than the binomial has within five deviations, and p-values with the mean they should have.
#[test]
fn many_light_cells_do_not_fail_an_honest_sample() {
    let mut rng = Rng::new(21);
    let p = law(&(0..4_000)
        .map(|_| rng.unit().powi(2) + 1e-3)
        .collect::<Vec<_>>());
    let mut sum = 0.0;
    let cumulative: Vec<f64> = p
        .iter()
        .map(|p| {
            sum += p;
            sum
        })
        .collect();
    let mut sample = || {
        let mut counts = vec![0; p.len()];
        for _ in 0..40_000 {
            counts[rng.pick(&cumulative)] += 1;
        }
        counts
    };
    let (mut alarms, mut means) = ([0; 4], [0.0; 4]);
    for _ in 0..200 {
        let (a, b) = (sample(), sample());
        let p_values = [
            chi2::goodness_of_fit(&a, &p).unwrap().p_value,
            g::goodness_of_fit(&a, &p).unwrap().p_value,
            chi2::two_sample(&a, &b).unwrap().p_value,
            g::two_sample(&a, &b).unwrap().p_value,
        ];
        for (i, p) in p_values.into_iter().enumerate() {
            alarms[i] += u32::from(p < 0.01);
            means[i] += p / 200.0;
        }
    }
    assert!(alarms.iter().all(|n| *n <= 9), "{alarms:?} of 200");
    assert!(means.iter().all(|m| (m - 0.5).abs() < 0.1), "{means:?}");
}

/// How far the README says that Pearson's test overshoots: 16 counts where 5 are expected.
#[test]
fn the_tail_over_a_light_cell_is_as_stated() {
    let rejects = |seen: u64| {
        let counts = [2_000 - seen, seen];
        chi2::goodness_of_fit(&counts, &[0.9975, 0.0025])
            .unwrap()
            .rejects(1e-6)
    };
    let choose = |k: f64| ln_gamma(2_001.0) - ln_gamma(k + 1.0) - ln_gamma(2_001.0 - k);
    let weight = |k: f64| (choose(k) + k * 0.0025f64.ln() + (2_000.0 - k) * 0.9975f64.ln()).exp();
    let false_alarms: f64 = (0..100)
        .filter(|k| rejects(*k))
        .map(|k| weight(number(k)))
        .sum();
    assert!((6e-5..8e-5).contains(&false_alarms), "{false_alarms}");
}
