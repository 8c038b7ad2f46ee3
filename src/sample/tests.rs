use proptest::prelude::*;

use super::{draws::ceiling_and_value, *};
use crate::TokenId;

/// The keys of this crate, pinned: made by a separate implementation of the definition. A change
/// here changes every seeded text, and is a breaking change.
#[test]
fn committed_vector_of_our_keys() {
    let g = |seed, t, token| Keyed::new(seed).gumbel(Key::token(t), token);
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    close(g(0, 0, 0), 2.061661254434241);
    close(g(0, 0, 1), 0.68969178680029);
    close(g(42, 7, 49_151), -1.0521302122789082);
    close(g((1 << 53) - 1, (1 << 33) + 5, 2), -0.49000079265678004);
    let cases = [
        (Key::node(7, 3, Purpose::Draft), 0.19517183331099808),
        (Key::node(7, 3, Purpose::Accept), 0.5889200195963483),
        (Key::node(7, 3, Purpose::Residual), 0.2459111154438266),
        (Key::node(8, 3, Purpose::Draft), 0.7314170440785511),
        (Key::node(7, 4, Purpose::Draft), 0.5520087448544303),
    ];
    for (at, u) in cases {
        // A test passes just above u and not at u: the number itself, and the strictness.
        assert!(Keyed::new(42).accept(at, u + 1e-15), "{at:?}");
        assert!(!Keyed::new(42).accept(at, u), "{at:?}");
    }
    let lines = [
        7_872_675_771_498_074,
        54_365_958_843_671,
        6_852_211_313_598_981,
    ];
    assert_eq!([0, 1, 2].map(|i| derive_line(42, i)), lines);
    assert_eq!(
        [0, 1, 2].map(|j| derive_choice(42, j)),
        [42, 2_164_925_205_437_112, 8_166_086_934_220_312]
    );
}

/// The two ends of the 64-bit words and the powers of two between them, where the bound is tight.
#[test]
fn the_ceiling_is_never_below_the_noise() {
    let edges = (0..64).flat_map(|bit| {
        let x = 1u64 << bit;
        [x, x - 1, !x, !(x - 1), x | x >> 1, !(x | x >> 1)]
    });
    for x in edges.chain([0, u64::MAX]) {
        let (ceiling, value) = ceiling_and_value(x);
        assert!(
            value.is_finite() && (-3.7..37.0).contains(&value),
            "{x:x}: {value}"
        );
        assert!(ceiling >= value, "{x:x}: {ceiling} < {value}");
    }
}

#[test]
fn impossible_is_never_and_certain_is_always() {
    let mut draws = Keyed::new(5);
    for node in 0..1000 {
        let at = Key::node(0, node, Purpose::Accept);
        assert!(!draws.accept(at, 0.0) && draws.accept(at, 1.0));
        assert_eq!(draws.pick(at, &[0.0, 0.0, 1e-300, 0.0]), 2);
    }
}

#[test]
fn pick_has_the_law_of_its_weights() {
    let mut draws = Keyed::new(11);
    let mut seen = [0u64; 3];
    for node in 0..30_000 {
        seen[draws.pick(Key::node(4, node, Purpose::Draft), &[3.0, 0.0, 1.0])] += 1;
    }
    assert_eq!(seen[1], 0);
    // Five standard deviations of a binomial with n = 30,000 and p = 3/4 are 375.
    assert!(seen[0].abs_diff(22_500) < 375, "{seen:?}");
}

/// [`Keyed`] with the provided `choose`, which asks for every number.
struct Plain(Keyed);

impl Draws for Plain {
    fn gumbel(&self, at: Key, token: u32) -> f64 {
        self.0.gumbel(at, token)
    }
    fn pick(&mut self, at: Key, w: &[f64]) -> usize {
        self.0.pick(at, w)
    }
    fn accept(&mut self, at: Key, p: f64) -> bool {
        self.0.accept(at, p)
    }
}

/// Nothing before a row.
fn nothing(counts: &Counts) -> History<'_> {
    History {
        counts,
        tokens: &[],
        path: &[],
    }
}

/// Rows of every kind: spread, with ties, equal, one far above the others, huge, tiny.
fn any_row() -> impl Strategy<Value = Vec<f32>> {
    let size = || prop_oneof![1usize..40, 200usize..2000];
    let row = |each: BoxedStrategy<f32>| {
        size().prop_flat_map(move |n| prop::collection::vec(each.clone(), n))
    };
    let one = (size(), any::<prop::sample::Index>(), 0f32..90.0).prop_map(|(n, at, height)| {
        let mut row = vec![-10.0; n];
        row[at.index(n)] += height;
        row
    });
    prop_oneof![
        row((-20f32..20.0).boxed()),
        row((-3i8..3).prop_map(f32::from).boxed()),
        row(prop_oneof![Just(0.0f32), Just(-0.0)].boxed()),
        row(prop_oneof![Just(f32::MAX), Just(f32::MIN), -1e30f32..1e30].boxed()),
        row((-1e-30f32..1e-30).boxed()),
        one,
    ]
}

proptest! {
    /// Skipping numbers by their upper bound changes no choice.
    #[test]
    fn lazy_choice_is_the_full_choice(
        seed: u64,
        t in 0..1u64 << 40,
        logits in prop_oneof![
            prop::collection::vec(-20f32..20.0, 1..300),
            prop::collection::vec(-20f32..20.0, 300..3000),
        ],
        min_p in prop_oneof![Just(0.0), 0.0..0.5],
    ) {
        let params = RawParams { temperature: 1.0, min_p, ..RawParams::default() };
        let n = logits.len();
        let chain = Chain::new(SamplingParams::new(params).unwrap(), n, n, vec![]).unwrap();
        let law = chain.law(&logits, &nothing(&Counts::new(&[]))).unwrap();
        let keyed = Keyed::new(seed);
        prop_assert_eq!(choose(&law, t, &keyed), choose(&law, t, &Plain(keyed)));
    }

    /// Whatever the row is like, whole or with holes, and whatever was done to it.
    #[test]
    fn any_row_has_the_choice_of_the_definition(
        seed: u64,
        t in 0..1u64 << 40,
        logits in any_row(),
        temperature in prop_oneof![Just(1.0), Just(2e-5), Just(100.0), 0.05..3.0],
        masked in prop_oneof![Just(0), 1u32..7],
        repetition_penalty in prop_oneof![Just(1.0), 0.5..2.0],
        spare in 0..3usize,
    ) {
        let banned = (0..masked).map(|i| (i * i, f64::NEG_INFINITY));
        let valid = logits.len().saturating_sub(spare).max(1);
        let params = RawParams {
            temperature,
            repetition_penalty,
            logit_bias: banned.filter(|(id, _)| (*id as usize) < valid).collect(),
            ..RawParams::default()
        };
        let params = SamplingParams::new(params).unwrap();
        let chain = Chain::new(params, logits.len(), valid, vec![]).unwrap();
        let counts = Counts::new(&[0, 2, 3, 5, 500]);
        let Ok(law) = chain.law(&logits, &nothing(&counts)) else {
            prop_assert!(masked > 0);
            return Ok(());
        };
        let keyed = Keyed::new(seed);
        let chosen = choose(&law, t, &keyed);
        prop_assert_eq!(chosen, choose(&law, t, &Plain(keyed)));
        prop_assert!(law.ids().contains(&chosen) && (chosen as usize) < valid);
        prop_assert!((law.iter().map(|(_, ln_p)| ln_p.exp()).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    /// A host's temperatures and biases are any finite numbers: what a 32-bit number cannot hold is
    /// still divided before it is compared.
    #[test]
    fn any_temperature_has_the_choice_of_the_definition(
        seed: u64,
        logits in any_row(),
        exponent in -5i32..=308,
        biased in 0i32..=308,
        masked in any::<bool>(),
        top_k in prop_oneof![Just(0usize), 1..300usize],
    ) {
        let temperature = 10f64.powi(exponent);
        let far = 10f64.powi(biased);
        let mut bias: Vec<(TokenId, f64)> = vec![(0, -far), (2, far), (3, far / 2.0)];
        if masked {
            bias.push((1, f64::NEG_INFINITY));
        }
        let size = logits.len();
        let params = RawParams {
            temperature,
            top_k,
            logit_bias: bias.into_iter().filter(|(id, _)| (*id as usize) < size).collect(),
            semantics: Semantics::Host,
            ..RawParams::default()
        };
        let params = SamplingParams::new(params).unwrap();
        let chain = Chain::new(params, size, size, vec![]).unwrap();
        let Ok(law) = chain.law(&logits, &nothing(&Counts::new(&[]))) else {
            return Ok(());
        };
        prop_assert!(law.iter().all(|(_, ln_p)| ln_p < 1e-9), "{:?}", law);
        let keyed = Keyed::new(seed);
        for t in 0..4 {
            prop_assert_eq!(choose(&law, t, &keyed), choose(&law, t, &Plain(keyed)));
        }
    }

    /// Filters of a vocabulary that is not tiny are those of a sort of it.
    #[test]
    fn filters_are_those_of_a_sort(
        logits in any_row(),
        temperature in 0.3..3.0,
        top_k in prop_oneof![Just(0), 1usize..60, 1usize..3000],
        top_p in prop_oneof![Just(1.0), 0.01..0.999],
        min_p in prop_oneof![Just(0.0), 1e-9..0.9],
    ) {
        let n = logits.len();
        let raw = RawParams { temperature, top_k, top_p, min_p, ..RawParams::default() };
        let chain = Chain::new(SamplingParams::new(raw).unwrap(), n, n, vec![]).unwrap();
        let law = chain.law(&logits, &nothing(&Counts::new(&[]))).unwrap();
        let scores = logits.iter().map(|z| f64::from(*z) / temperature);
        let mut left: Vec<(u32, f64)> = (0..).zip(scores).collect();
        left.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
        if top_k > 0 {
            left.truncate(top_k);
        }
        let peak = left[0].1;
        let mass = left.iter().map(|(_, z)| (z - peak).exp()).sum::<f64>();
        let mut before = 0.0;
        let sorted = left.iter().take_while(|(_, z)| {
            let stays = top_p == 1.0 || before < top_p * mass;
            before += (z - peak).exp();
            stays
        });
        let kept = sorted.filter(|(_, z)| (z - peak).exp() >= min_p);
        let mut ids: Vec<_> = kept.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        prop_assert_eq!(law.ids(), &ids[..]);
    }

    /// The best few are a sort of all, with the logarithms of a softmax; the first is the choice.
    #[test]
    fn the_best_few_begin_with_the_choice(
        seed: u64,
        t in 0..1u64 << 40,
        logits in prop::collection::vec(-20f32..20.0, 1..300),
        top_k in 0usize..9,
        k in 1usize..9,
    ) {
        let params = RawParams { temperature: 1.0, top_k, ..RawParams::default() };
        let n = logits.len();
        let chain = Chain::new(SamplingParams::new(params).unwrap(), n, n, vec![]).unwrap();
        let law = chain.law(&logits, &nothing(&Counts::new(&[]))).unwrap();
        let keyed = Keyed::new(seed);
        let best = choose_best(&law, t, &keyed, k);
        prop_assert_eq!(best[0].0, choose(&law, t, &keyed));
        prop_assert_eq!(&best, &choose_best(&law, t, &Plain(keyed), k));
        let noisy = law.iter().map(|(id, ln)| (id, ln + keyed.gumbel(Key::token(t), id)));
        let mut all: Vec<_> = noisy.collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let total = all.iter().map(|(_, s)| s.exp()).sum::<f64>().ln();
        prop_assert_eq!(best.len(), k.min(all.len()));
        for (got, want) in best.iter().zip(&all) {
            prop_assert_eq!(got.0, want.0);
            prop_assert!(got.1 <= 0.0 && (got.1 - (want.1 - total)).abs() < 1e-9);
        }
    }

    /// At temperature 0 scores are ranked, not their logarithms, of which several may be equal.
    #[test]
    fn the_best_few_of_a_greedy_row_begin_with_the_argmax(
        logits in prop::collection::vec((-3i8..3).prop_map(|x| f32::from(x) * 1e-20), 1..40),
        k in 1usize..9,
    ) {
        let n = logits.len();
        let params = SamplingParams::new(RawParams::default()).unwrap();
        let chain = Chain::new(params, n, n, vec![]).unwrap();
        let counts = Counts::new(&[]);
        let history = nothing(&counts);
        let best = chain.best(&logits, &history, k).unwrap();
        prop_assert_eq!(best[0].0, chain.law(&logits, &history).unwrap().argmax());
        let report = chain.report_law(&logits, &history).unwrap();
        for pair in best.windows(2) {
            let (a, b) = (pair[0].0 as usize, pair[1].0 as usize);
            prop_assert!(logits[a] > logits[b] || (logits[a] == logits[b] && a < b));
        }
        for (id, ln) in best {
            prop_assert_eq!(ln, report.ln_p(id));
        }
    }

    #[test]
    fn top_is_a_sort(logits in prop::collection::vec(-3i8..3, 1..40), k in 0usize..50) {
        let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
        let n = logits.len();
        let params = RawParams { temperature: 1.0, ..RawParams::default() };
        let chain = Chain::new(SamplingParams::new(params).unwrap(), n, n, vec![]).unwrap();
        let law = chain.law(&logits, &nothing(&Counts::new(&[]))).unwrap();
        let mut all: Vec<_> = law.iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(k);
        prop_assert_eq!(law.top(k), all);
        prop_assert_eq!(Some(law.argmax()), law.top(1).first().map(|x| x.0));
    }
}

/// One value that is no number, anywhere in a row, wherever it would be in a register.
#[test]
fn no_row_with_an_infinity_or_nan_has_a_law() {
    let params = RawParams {
        temperature: 1.0,
        ..RawParams::default()
    };
    let chain = Chain::new(SamplingParams::new(params).unwrap(), 203, 199, vec![]).unwrap();
    let counts = Counts::new(&[]);
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in 0..203 {
            let mut logits = [1.0; 203];
            logits[at] = bad;
            let law = chain.law(&logits, &nothing(&counts));
            assert_eq!(law, Err(Fault::NonFinite), "{bad} at {at}");
        }
    }
}

fn law(weights: &[f64]) -> Dist {
    let some = (0..).zip(weights).filter(|(_, w)| **w > 0.0);
    let (ids, scores) = some.map(|(id, w): (u32, &f64)| (id, w.ln())).unzip();
    Dist::softmax(ids, scores)
}

proptest! {
    /// Mass and law of what is left above q, against dense arithmetic.
    #[test]
    fn a_residual_is_what_is_above(
        p in prop::collection::vec(prop_oneof![Just(0.0), 0.01..1.0], 1..9),
        q in prop::collection::vec(prop_oneof![Just(0.0), 0.01..1.0], 1..9),
        scale in 0.01..=1.0f64,
    ) {
        prop_assume!(p.iter().any(|w| *w > 0.0) && q.iter().any(|w| *w > 0.0));
        let (p, q) = (law(&p), law(&q));
        let above: Vec<f64> = (0..9).map(|id| (scale * p.p(id) - q.p(id)).max(0.0)).collect();
        let total: f64 = above.iter().sum();
        match p.residual(scale, &q) {
            None => prop_assert!(total < 1e-14, "{}", total),
            Some((mass, left)) => {
                prop_assert!((mass - total).abs() < 1e-14, "{} is not {}", mass, total);
                prop_assert!(left.ids().is_sorted_by(|a, b| a < b));
                prop_assert!((left.iter().map(|(_, ln_p)| ln_p.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
                for (id, above) in (0..).zip(above) {
                    prop_assert!((left.p(id) * mass - above).abs() < 1e-14, "token {}", id);
                }
            }
        }
    }
}

#[test]
fn a_residual_keeps_what_is_too_small_for_a_difference() {
    // Token 1 has e^-800 of the mass, which is 0 in f64, and token 0 is what q has.
    let p = Dist::softmax(vec![0, 1, 2], vec![0.0, -800.0, -801.0]);
    let (mass, left) = p
        .residual(1.0, &Dist::one_hot(0))
        .expect("two tokens are left");
    assert_eq!((mass, left.ids()), (0.0, &[1, 2][..]));
    assert!((left.p(1) - 1.0 / (1.0 + (-1f64).exp())).abs() < 1e-12);
    assert_eq!(p.residual(1.0, &p), None);
}

#[test]
fn a_law_of_one_token_is_decided_without_a_draw() {
    let law = law(&[0.0, 0.25, 0.0, 0.75]);
    let mut keyed = Keyed::new(3);
    let at = |node| Key::node(4, node, Purpose::Residual);
    let seen = (0..4000)
        .filter(|node| law.draw(at(*node), &mut keyed) == 3)
        .count();
    assert!((2800..3200).contains(&seen), "{seen}");
    assert_eq!(Dist::one_hot(9).draw(at(0), &mut Silent), 9);
}

/// Answers nothing.
struct Silent;

impl Draws for Silent {
    fn gumbel(&self, at: Key, _: u32) -> f64 {
        panic!("{at:?} asked")
    }
    fn pick(&mut self, at: Key, _: &[f64]) -> usize {
        panic!("{at:?} asked")
    }
    fn accept(&mut self, at: Key, _: f64) -> bool {
        panic!("{at:?} asked")
    }
}

/// A reduced vocabulary is the full one with all other tokens banned.
#[test]
fn a_mapped_chain_is_the_full_one_without_the_others() {
    let ids: [TokenId; 4] = [1, 3, 4, 9];
    let banned = (0..11).filter(|id| !ids.contains(id));
    let raw = |banned: &[TokenId], temperature| RawParams {
        temperature,
        top_k: 3,
        repetition_penalty: 1.3,
        frequency_penalty: 0.5,
        min_tokens: 3,
        logit_bias: [(3, 0.4), (7, 2.0)]
            .into_iter()
            .chain(banned.iter().map(|id| (*id, f64::NEG_INFINITY)))
            .collect(),
        ..RawParams::default()
    };
    let chain = |banned: &[TokenId], temperature| {
        let params = SamplingParams::new(raw(banned, temperature)).unwrap();
        Chain::new(params, 12, 11, vec![9]).unwrap()
    };
    let logits: Vec<f32> = (0..12u8).map(|i| f32::from(i * 7 % 12) * 0.3).collect();
    let columns: Vec<f32> = ids.iter().map(|id| logits[*id as usize]).collect();
    let mut counts = Counts::new(&[4, 7]);
    counts.push(1);
    for temperature in [0.0, 0.8] {
        for path in [&[][..], &[3], &[3, 3, 9]] {
            let history = History {
                counts: &counts,
                tokens: &[4, 7, 1],
                path,
            };
            let mapped = chain(&[], temperature).mapped(ids.into());
            let full = chain(&banned.clone().collect::<Vec<_>>(), temperature);
            assert_eq!(
                mapped.law(&columns, &history),
                full.law(&logits, &history),
                "{temperature} {path:?}"
            );
        }
    }
}
