//! Checks of heads: what is counted, and what is said of it.

use std::sync::Arc;

use eyrie::{
    Matrix, TokenId,
    cache::{KvCache, Txn},
    check::{Report, Subject, Text, Verdict, check, with_random_logits},
    draft::eagle::{Feature, TapsConvention, Version},
    error::Result,
    model::{Forward, LoadOptions, Rows, Target},
    request::Request,
};

use crate::{
    eagle::{
        drafts::chain,
        heads::{Made, random, ring, ring_head, ring_heads_gone_wrong, table_head},
        state::heads,
    },
    support::{Lab, request, table_target, tt_target},
};

/// The check of a head in memory, at four positions, on prompts with so many answered tokens.
pub(crate) fn check_of(
    target: &Arc<dyn Target>,
    made: &Made,
    prompts: &[(Vec<TokenId>, usize)],
) -> Report {
    let mut source = |name: &str| Ok(made.stored(name));
    let random = with_random_logits(
        &made.config,
        &mut source,
        Arc::clone(target),
        &LoadOptions::default(),
        1,
    );
    let subject = Subject {
        head: Arc::new(made.head(target)),
        random: Arc::new(random.expect("it fits")),
        target: Arc::clone(target),
        valid: target.vocab(),
        eos: Vec::new(),
    };
    let texts = prompts.iter().map(|(tokens, answer)| Text {
        tokens: tokens.clone(),
        answer: *answer,
    });
    let texts: Vec<_> = texts.collect();
    check(&subject, &texts, 4, &mut |_, _| ()).expect("texts can be read")
}

/// A table whose layers show what they are: the stream that enters layer k is the token's own row, turned
/// by k places.
#[derive(Debug)]
struct Turning(Arc<dyn Target>);

impl Target for Turning {
    fn vocab(&self) -> usize {
        self.0.vocab()
    }

    fn context(&self) -> usize {
        self.0.context()
    }

    fn layers(&self) -> usize {
        7
    }

    fn hidden(&self) -> usize {
        self.0.hidden()
    }

    fn new_cache(&self, slots: usize) -> KvCache {
        self.0.new_cache(slots)
    }

    fn embed(&self, tokens: &[TokenId]) -> Matrix {
        self.0.embed(tokens)
    }

    fn final_norm(&self, x: &mut Matrix) {
        self.0.final_norm(x);
    }

    fn head(&self, normed: &Matrix) -> Matrix {
        self.0.head(normed)
    }

    fn forward(&self, rows: &Rows, txn: &mut Txn<'_>, taps: &[usize]) -> Result<Forward> {
        let mut out = self.0.forward(rows, txn, &[])?;
        let hidden = self.hidden();
        let row = |token: &TokenId| {
            let turned = |tap: &usize| {
                let mut stream = vec![0.0; hidden];
                stream[(*token as usize + tap) % hidden] = 1.0;
                stream
            };
            taps.iter().flat_map(turned).collect::<Vec<_>>()
        };
        let streams = rows.tokens().iter().flat_map(row).collect();
        out.taps = (!taps.is_empty()).then(|| Matrix::new(taps.len() * hidden, streams));
        Ok(out)
    }
}

/// A head that reads tap 3 of [`Turning`] and knows what the ring says two tokens on; its file lists `tap`.
fn tapping(tap: usize, convention: TapsConvention) -> Made {
    let mut made = table_head(Version::Eagle3, 64, 1.0);
    let config = &mut made.config;
    config.feature = Feature::Taps(vec![tap]);
    config.taps_convention = Some(convention);
    config.own_head = true;
    config.norm_before_residual = false;
    let mut made = random(config.clone(), 2);
    let next = |t: usize| {
        let row = &ring()[t];
        let best = row.iter().copied().fold(f32::MIN, f32::max);
        row.iter().position(|x| *x == best).expect("there is one")
    };
    let two: Vec<usize> = (0..64).map(|t| next(next(t))).collect();
    made.set("fc.weight", |row, col| f32::from(u8::from(row == col)));
    made.set("layers.0.self_attn.o_proj.weight", |_, _| 0.0);
    made.set("layers.0.mlp.down_proj.weight", |_, _| 0.0);
    made.set("norm.weight", |_, _| 1.0);
    made.set("lm_head.weight", |token, place| {
        f32::from(u8::from(two[(place + 64 - 3) % 64] == token))
    });
    made
}

#[test]
fn taps_that_are_off_by_one_are_named() {
    let target: Arc<dyn Target> = Arc::new(Turning(table_target(&ring())));
    let prompts = [(vec![6], 60), (vec![40, 2], 60), (vec![11, 50], 60)];
    for (tap, convention, words) in [
        (3, TapsConvention::Input, ""),
        (2, TapsConvention::Input, "try --taps-convention output"),
        (4, TapsConvention::Output, "try --taps-convention input"),
        (2, TapsConvention::Output, "taps seem to be [3]"),
        (5, TapsConvention::Input, "below chance-adjusted floor"),
    ] {
        let report = check_of(&target, &tapping(tap, convention), &prompts);
        let about = format!("{tap} {convention:?}: {report:?}");
        if words.is_empty() {
            assert_eq!(report.verdict, Verdict::Right, "{about}");
            assert_eq!(report.standings[0].rates[0], 1.0, "{about}");
        } else {
            assert_eq!(report.verdict, Verdict::Wrong, "{about}");
            let said = report
                .findings
                .iter()
                .any(|finding| finding.words.contains(words));
            assert!(said, "{words} {about}");
        }
    }
}

#[test]
fn too_little_text_and_too_easy_text_say_nothing() {
    let target = table_target(&ring());
    let report = check_of(&target, &ring_head(), &[(vec![6], 6)]);
    assert_eq!(report.verdict, Verdict::Short, "{report:?}");
    let [_, (_, random)] = ring_heads_gone_wrong();
    let report = check_of(&target, &random, &[(vec![6], 90)]);
    assert_eq!(report.verdict, Verdict::Short, "{report:?}");
    assert!(report.findings.is_empty(), "{report:?}");
    // One token for ever: always saying it is as good as knowing.
    let constant = table_target(&vec![vec![0.0; 64]; 64]);
    let report = check_of(
        &constant,
        &table_head(Version::Eagle1, 64, 1.0),
        &[(vec![6], 200)],
    );
    assert_eq!(report.verdict, Verdict::Short, "{report:?}");
    assert_eq!(report.standings[0].rates, [1.0; 4]);
}

/// The rate at a position, where all before agree, is the acceptance of greedy drafting.
#[test]
fn rates_are_those_of_drafting() {
    let lab = Lab::new(tt_target());
    let prompt: Vec<TokenId> = vec![7, 21, 3, 40, 12, 55];
    let request = Request {
        max_tokens: 90,
        ..request(&prompt)
    };
    let whole = [&prompt[..], &lab.base(std::slice::from_ref(&request))[0]].concat();
    let mut agreed = 0;
    for made in heads() {
        let report = check_of(&lab.target, &made, &[(prompt.clone(), 90)]);
        let mut counts = [(0_u32, 0_u32); 4];
        for end in prompt.len()..whole.len() - 1 {
            let drafted = chain(&made, &lab, &whole[..=end], 4);
            for ((before, right), (drafted, said)) in
                counts.iter_mut().zip(drafted.iter().zip(&whole[end + 1..]))
            {
                *before += 1;
                if drafted != said {
                    break;
                }
                *right += 1;
            }
        }
        assert_eq!(report.rows, counts[0].0);
        for (found, (before, right)) in report.given_before.iter().zip(counts) {
            let rate = f64::from(right) / f64::from(before.max(1));
            assert!((found - rate).abs() < 1e-12, "{report:?} {counts:?}");
            agreed += right;
        }
    }
    assert!(agreed > 0, "nothing was compared");
}
