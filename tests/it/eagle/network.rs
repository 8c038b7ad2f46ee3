//! The networks against their twin, for every option; and heads that do not fit.

use std::sync::Arc;

use eyrie::{
    Matrix, SeqId, TokenId,
    cache::Txn,
    draft::eagle::{Feature, Head, HeadConfig, VocabMap},
    model::{
        Rows, Target, Wanted,
        config::{RopeConfig, RopeScaling},
    },
};

use super::{
    heads::{Change, Made, e1, e3, random},
    twin,
};
use crate::support::tt_target;

const PROMPT: [TokenId; 10] = [5, 9, 2, 60, 33, 9, 2, 17, 44, 8];

/// The target's streams at `taps` for `tokens`.
pub(crate) fn taps(target: &Arc<dyn Target>, tokens: &[TokenId], taps: &[usize]) -> Matrix {
    let mut cache = target.new_cache(tokens.len());
    let mut rows = Rows::new();
    rows.chain(SeqId(0), 0, tokens, Wanted::None).expect("rows");
    let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
    let out = target.forward(&rows, &mut txn, taps).expect("a pass");
    out.taps.expect("taps")
}

/// Logits of the last true row and of four drafted ones, the head's tokens being `draft`.
fn chain(head: &Head, taps: &Matrix, tokens: &[TokenId], draft: &[TokenId]) -> Vec<Vec<f32>> {
    let mut cache = head.new_cache(64);
    let mut out = Vec::new();
    let mut features = head.fuse(taps.clone());
    let steps = [tokens].into_iter().chain(draft.chunks(1));
    for tokens in steps {
        let mut rows = Rows::new();
        let base = cache.committed(SeqId(1));
        rows.chain(SeqId(1), base, tokens, Wanted::Last)
            .expect("rows");
        let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
        let o = head.forward(&rows, &features, &mut txn).expect("a pass");
        txn.commit_all(SeqId(1)).expect("rows");
        let last = o.gather([o.rows() - 1]);
        out.push(head.logits(&last).row(0).to_vec());
        features = head.fed_back(last);
    }
    out
}

/// Logits of a head after a prompt, and of four drafted rows.
pub(crate) fn logits_of(head: &Head, target: &Arc<dyn Target>) -> Vec<Vec<f32>> {
    let taps = taps(target, &PROMPT[..9], head.taps());
    chain(head, &taps, &PROMPT[1..], &[3, 50, 3, 21])
}

/// The largest difference of a head's logits from its twin's, and the largest logit.
pub(crate) fn worst(made: &Made, target: &Arc<dyn Target>) -> (f64, f64) {
    let head = made.head(target);
    let taps = taps(target, &PROMPT[..9], head.taps());
    let draft = [3, 50, 3, 21];
    let ours = chain(&head, &taps, &PROMPT[1..], &draft);
    let tokens = [&PROMPT[1..], &draft].concat();
    let theirs = twin::logits(made, target, &tokens, &taps);
    assert_eq!((ours.len(), theirs.len()), (5, 5));
    let pairs = ours.iter().flatten().zip(theirs.iter().flatten());
    let far = pairs
        .map(|(a, b)| (f64::from(*a) - b).abs())
        .fold(0.0, f64::max);
    let size = theirs
        .iter()
        .flatten()
        .fold(0.0, |m: f64, x| m.max(x.abs()));
    (far, size)
}

/// Every option on its own and some together: name, head.
pub(crate) fn options() -> Vec<(&'static str, HeadConfig)> {
    let with = |base: HeadConfig, change: &dyn Fn(&mut HeadConfig)| {
        let mut config = base;
        change(&mut config);
        config
    };
    vec![
        ("eagle1", e1()),
        ("eagle1 without bias", with(e1(), &|c| c.fc_bias = false)),
        (
            "eagle1 norms",
            with(e1(), &|c| {
                (c.embed_norm, c.input_norm, c.norm_before_head) = (true, true, true)
            }),
        ),
        ("eagle1 qkv bias", with(e1(), &|c| c.attention_bias = true)),
        (
            "eagle1 two layers",
            with(e1(), &|c| (c.layers, c.sliding_window) = (2, vec![None; 2])),
        ),
        (
            "eagle1 own",
            with(e1(), &|c| (c.own_embedding, c.own_head) = (true, true)),
        ),
        ("eagle3", e3()),
        (
            "one tap",
            with(e3(), &|c| c.feature = Feature::Taps(vec![7])),
        ),
        (
            "four taps",
            with(e3(), &|c| c.feature = Feature::Taps(vec![0, 3, 5, 7])),
        ),
        ("fc bias", with(e3(), &|c| c.fc_bias = true)),
        ("norm before fc", with(e3(), &|c| c.norm_before_fc = true)),
        ("fc norm", with(e3(), &|c| c.fc_norm = true)),
        (
            "norm before residual",
            with(e3(), &|c| c.norm_before_residual = true),
        ),
        ("norm output", with(e3(), &|c| c.norm_output = true)),
        (
            "no norm before head",
            with(e3(), &|c| c.norm_before_head = false),
        ),
        (
            "final",
            with(e3(), &|c| (c.feature, c.fc) = (Feature::Final, false)),
        ),
        (
            "attention bias",
            with(e3(), &|c| (c.attention_bias, c.output_bias) = (true, true)),
        ),
        ("qk norm", with(e3(), &|c| c.qk_norm = true)),
        ("window", with(e3(), &|c| c.sliding_window = vec![Some(4)])),
        (
            "three layers",
            with(e3(), &|c| {
                (c.layers, c.sliding_window) = (3, vec![None, Some(3), None])
            }),
        ),
        ("wide heads", with(e3(), &|c| c.head_dim = 12)),
        (
            "narrow",
            with(e3(), &|c| (c.hidden, c.own_embedding) = (24, true)),
        ),
        ("own embedding", with(e3(), &|c| c.own_embedding = true)),
        (
            "head of the target",
            with(e3(), &|c| {
                (c.own_head, c.draft_vocab, c.vocab_map) = (false, 64, VocabMap::Identity);
            }),
        ),
        (
            "rope",
            with(e3(), &|c| {
                let scaling = RopeScaling::Llama3 {
                    factor: 8.0,
                    low_freq_factor: 1.0,
                    high_freq_factor: 4.0,
                    original_max_position: 16,
                };
                c.rope = RopeConfig {
                    theta: 500.0,
                    scaling,
                };
            }),
        ),
        (
            "eagle 3.1",
            with(e3(), &|c| {
                (
                    c.norm_before_fc,
                    c.norm_before_residual,
                    c.norm_output,
                    c.qk_norm,
                ) = (true, true, true, true);
            }),
        ),
    ]
}

#[test]
fn logits_are_those_of_the_equations() {
    let target = tt_target();
    for (seed, (name, config)) in (1..).zip(options()) {
        let (far, size) = worst(&random(config, seed), &target);
        assert!(size > 0.5, "{name}: logits up to {size} say nothing");
        let most = 1e-5 * size.max(10.0);
        assert!(far < most, "{name}: {far} off, logits up to {size}");
    }
}

#[test]
fn every_option_changes_the_logits() {
    let target = tt_target();
    let flags: [(&str, Change<HeadConfig>); 6] = [
        ("norm_before_residual", |c| c.norm_before_residual = true),
        ("norm_output", |c| c.norm_output = true),
        ("window", |c| c.sliding_window = vec![Some(4)]),
        ("theta", |c| c.rope.theta = 500.0),
        ("taps", |c| c.feature = Feature::Taps(vec![1, 2, 3])),
        ("eps", |c| c.eps = 0.1),
    ];
    let made = random(e3(), 7);
    let all = |made: &Made| {
        let head = made.head(&target);
        let taps = taps(&target, &PROMPT[..9], head.taps());
        chain(&head, &taps, &PROMPT[1..], &[3, 50])
    };
    let plain = all(&made);
    for (name, change) in flags {
        let mut other = made.clone();
        change(&mut other.config);
        assert_ne!(all(&other), plain, "{name}");
    }
}

#[test]
fn a_head_for_another_target_is_refused_with_both_numbers() {
    let target = tt_target();
    let cases: [(&str, Change<HeadConfig>); 6] = [
        (
            "a vocabulary of 65 tokens, accepted are the target's 64",
            |c| c.vocab = 65,
        ),
        ("streams of 48 values, accepted are the target's 32", |c| {
            c.target_hidden = 48
        }),
        ("tap 8, accepted are 0 to the target's 7 layers", |c| {
            c.feature = Feature::Taps(vec![1, 8])
        }),
        (
            "embedding is 32 wide, accepted is the head's own width 24",
            |c| c.hidden = 24,
        ),
        (
            "output head is 32 wide, accepted is the head's own width 24",
            |c| {
                (c.hidden, c.own_embedding, c.own_head) = (24, true, false);
            },
        ),
        (
            "32 rows of logits, accepted are the 64 of the target's output head",
            |c| c.own_head = false,
        ),
    ];
    for (text, change) in cases {
        let mut config = e3();
        change(&mut config);
        let error = random(config, 1)
            .try_head(&target)
            .expect_err(text)
            .to_string();
        assert!(
            error.starts_with("drafter: head: ") && error.contains(text),
            "{error}"
        );
    }
    let mut made = random(e3(), 1);
    let mut wrong = made.config.clone();
    wrong.intermediate = 40;
    made.config = wrong;
    let error = made
        .try_head(&target)
        .expect_err("too few values")
        .to_string();
    assert!(error.contains("layers.0.mlp.gate_proj.weight"), "{error}");
}
