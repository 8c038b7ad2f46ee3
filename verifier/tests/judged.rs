//! The judge is judged: known values, and broken procedures that must be caught.

use std::collections::BTreeMap;

use eyrie_verifier::{
    chi2::{BadInput, Fit, goodness_of_fit, sample_size, two_sample},
    every::{Walk, every},
};
use proptest::prelude::*;

fn close(a: f64, b: f64, relative: f64) {
    assert!((a - b).abs() <= relative * b.abs(), "{a} is not {b}");
}

/// Mendel's peas, as every textbook has them: chi2(3) = 0.470, p = 0.925.
#[test]
fn mendels_peas() {
    let fit = goodness_of_fit(
        &[315, 108, 101, 32],
        &[9. / 16., 3. / 16., 3. / 16., 1. / 16.],
    )
    .unwrap();
    assert_eq!(fit.dof, 3);
    close(fit.statistic, 0.4700, 1e-3);
    close(fit.p_value, 0.9254, 1e-3);
}

/// chi2(1) = 4 is two standard deviations; the tail of chi2(2) is exp(-x / 2).
#[test]
fn closed_forms() {
    let fit = goodness_of_fit(&[60, 40], &[0.5; 2]).unwrap();
    close(fit.statistic, 4.0, 1e-12);
    close(fit.p_value, 0.045_500_263_9, 1e-8);
    let fit = goodness_of_fit(&[110, 100, 90], &[1.0 / 3.0; 3]).unwrap();
    close(fit.statistic, 2.0, 1e-12);
    close(fit.p_value, (-1.0f64).exp(), 1e-12);
}

/// Sample sizes computed independently (noncentral chi-square of another library).
#[test]
fn known_sample_sizes() {
    for (cells, tv, alpha, power, n) in [
        (2, 0.1, 1e-3, 0.9, 523.0),
        (16, 0.05, 1e-3, 0.9, 3_958.0),
        (64, 0.01, 1e-3, 0.9, 162_466.0),
        (16, 0.05, 1e-6, 0.99, 8_082.0),
        (64, 0.02, 1e-6, 0.99, 76_123.0),
        (256, 0.05, 1e-6, 0.99, 20_275.0),
    ] {
        close(sample_size(cells, tv, alpha, power), n, 2e-3);
    }
}

#[test]
fn excluded_tv_inverts_the_sample_size() {
    let n = sample_size(16, 0.05, 1e-6, 0.99);
    let fit = Fit {
        statistic: 0.0,
        dof: 15,
        p_value: 1.0,
        effective: n,
        pooled: 0.0,
    };
    close(fit.excluded_tv(1e-6, 0.99), 0.05, 1e-6);
}

#[test]
fn an_impossible_count_fails_outright() {
    let fit = goodness_of_fit(&[1_000_000, 1], &[1.0, 0.0]).unwrap();
    assert_eq!(fit.p_value, 0.0);
}

#[test]
fn one_cell_has_no_freedom_and_excludes_nothing() {
    let fit = goodness_of_fit(&[10], &[1.0]).unwrap();
    assert_eq!(
        (fit.dof, fit.p_value, fit.excluded_tv(1e-6, 0.99)),
        (0, 1.0, 1.0)
    );
}

/// 2 + 3 + 3 expected are pooled, 5 and 87 stand: 5 | 3 + 5 with the light ones first.
#[test]
fn light_cells_are_pooled() {
    let fit = goodness_of_fit(&[87, 2, 3, 3, 5], &[0.87, 0.02, 0.03, 0.03, 0.05]).unwrap();
    assert_eq!((fit.statistic, fit.dof), (0.0, 2));
    let fit = goodness_of_fit(&[0, 4], &[0.5, 0.5]).unwrap();
    assert_eq!(fit.dof, 0, "four samples are one cell");
}

#[test]
fn bad_input_is_named() {
    let says = |r: Result<Fit, BadInput>| r.unwrap_err().to_string();
    assert_eq!(
        says(goodness_of_fit(&[1], &[0.5, 0.5])),
        "1 counts for a law of 2 cells"
    );
    assert_eq!(
        says(goodness_of_fit(&[1, 1], &[0.5, 0.4])),
        "the law sums to 0.9: must be 1"
    );
    assert!(says(goodness_of_fit(&[1, 1], &[f64::NAN, 1.0])).starts_with("p[0] = NaN"));
    assert_eq!(says(goodness_of_fit(&[0, 0], &[0.5, 0.5])), "no samples");
    assert_eq!(says(two_sample(&[1], &[0])), "a sample is empty");
}

/// A 2x2 table by the textbook formula n (ad - bc)^2 / (row and column sums).
#[test]
fn two_samples_are_a_contingency_table() {
    let fit = two_sample(&[30, 70], &[45, 40]).unwrap();
    let by_hand = 185.0 * (30.0 * 40.0 - 70.0 * 45.0f64).powi(2) / (100. * 85. * 75. * 110.);
    close(fit.statistic, by_hand, 1e-12);
    assert_eq!(fit.dof, 1);
}

/// A small generator of the test's own.
struct Lcg(u64);

impl Lcg {
    fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / 2f64.powi(32)
    }
}

/// False alarms at alpha = 0.05 over 2,000 honest samples: binomial, five deviations are 49.
#[test]
fn honest_samples_are_rejected_as_often_as_alpha_says() {
    let mut rng = Lcg(3);
    let p = [0.4, 0.3, 0.2, 0.1];
    let mut sample = |n| {
        let mut counts = [0; 4];
        for _ in 0..n {
            let u = rng.unit();
            counts[[0.4, 0.7, 0.9].iter().filter(|edge| u >= **edge).count()] += 1;
        }
        counts
    };
    let one = (0..2_000)
        .filter(|_| goodness_of_fit(&sample(400), &p).unwrap().rejects(0.05))
        .count();
    let two = (0..2_000)
        .filter(|_| {
            two_sample(&sample(300), &sample(500))
                .unwrap()
                .rejects(0.05)
        })
        .count();
    assert!(
        one.abs_diff(100) < 49 && two.abs_diff(100) < 49,
        "{one} and {two} of 2,000"
    );
}

/// Speculation with one drafted token, drawn from q: accept with min(1, p/q), else the residual. The
/// broken one draws from p after a rejection.
fn rejection(walk: &mut Walk, p: &[f64], q: &[f64], broken: bool) -> usize {
    let x = walk.pick(q);
    if walk.accept(p[x] / q[x]) {
        return x;
    }
    let residual: Vec<f64> = p.iter().zip(q).map(|(p, q)| (p - q).max(0.0)).collect();
    walk.pick(if broken { p } else { &residual })
}

fn exact_law(p: &[f64], q: &[f64], broken: bool) -> Vec<f64> {
    let mut law = vec![0.0; p.len()];
    every(
        |walk| rejection(walk, p, q, broken),
        |x, weight| law[x] += weight,
    );
    law
}

proptest! {
    #[test]
    fn enumeration_gives_the_exact_law(
        p in prop::collection::vec(0.01f64..1.0, 4), q in prop::collection::vec(0.01f64..1.0, 4)
    ) {
        let norm = |v: Vec<f64>| { let s: f64 = v.iter().sum(); v.iter().map(|x| x / s).collect::<Vec<_>>() };
        let (p, q) = (norm(p), norm(q));
        for (law, p) in exact_law(&p, &q, false).iter().zip(&p) {
            prop_assert!((law - p).abs() < 1e-12);
        }
    }
}

/// The same broken variant, seen by both instruments.
#[test]
fn a_missing_residual_is_caught() {
    let (p, q) = ([0.5, 0.3, 0.2], [0.1, 0.6, 0.3]);
    let law = exact_law(&p, &q, true);
    let tv = law.iter().zip(&p).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
    assert!(tv > 0.1, "{law:?}");
    let mut rng = Lcg(8);
    let mut counts = [0; 3];
    for _ in 0..5_000 {
        let u = rng.unit();
        counts[usize::from(u >= law[0]) + usize::from(u >= law[0] + law[1])] += 1;
    }
    assert!(goodness_of_fit(&counts, &law).unwrap().p_value > 1e-3);
    assert!(goodness_of_fit(&counts, &p).unwrap().rejects(1e-6));
}

#[test]
#[should_panic(expected = "in an earlier run")]
fn a_procedure_with_randomness_of_its_own_is_refused() {
    let mut runs = 0.0;
    every(
        |walk| {
            runs += 1.0;
            walk.pick(&[runs, 1.0])
        },
        |_, _| {},
    );
}

#[test]
fn branches_and_weights() {
    let mut seen = BTreeMap::new();
    let branches = every(
        |walk| [walk.pick(&[1.0, 0.0, 3.0]), walk.pick(&[2.0, 2.0])],
        |x, w| assert!(seen.insert(x, w).is_none()),
    );
    assert_eq!(branches, 4);
    let want = [
        ([0, 0], 0.125),
        ([0, 1], 0.125),
        ([2, 0], 0.375),
        ([2, 1], 0.375),
    ];
    assert_eq!(seen, BTreeMap::from(want));
    assert_eq!(
        every(|walk| walk.accept(0.0), |x, w| assert!(!x && w == 1.0)),
        1
    );
}

/// The README's table is what the code computes.
#[test]
fn readme_sample_sizes() {
    let number = |s: &str| s.trim().replace(',', "").parse::<u32>().ok();
    let mut rows = 0;
    for line in include_str!("../README.md")
        .lines()
        .filter(|l| l.starts_with("| "))
    {
        let cells: Vec<u32> = line.split('|').filter_map(number).collect();
        let [k, ref sizes @ ..] = cells[..] else {
            continue;
        };
        for (&n, tv) in sizes.iter().zip([0.05, 0.02, 0.01]) {
            let computed = sample_size(k as usize, tv, 1e-6, 0.99);
            assert!(
                (computed - f64::from(n)).abs() <= 0.51,
                "{k} cells, TV {tv}: {computed}"
            );
        }
        rows += sizes.len();
    }
    assert_eq!(rows, 9);
}
