//! Cases of the public log that speak of heads, by number.

use std::sync::Arc;

use eyrie::{
    Matrix, SeqId, TokenId,
    cache::Txn,
    check::{Report, Verdict},
    draft::{
        Anchor, Drafter, Seen,
        eagle::{Feature, HeadState, Version, VocabMap},
    },
    model::{Rows, Wanted},
    request::Request,
    sample::{Chain, Counts, Keyed},
    tree::DraftTree,
};

use crate::check::check_of;
use crate::eagle::{
    drafts::table_lab,
    heads::{Change, Made, e1, e3, random, ring, ring_head, ring_heads_gone_wrong, table_head},
    network::taps,
    probe::{Plan, Probe, fresh},
    state::heads,
};
use crate::support::{Lab, drawn, params, prompts, request, table_target, tt_target};

/// Tokens are paired with the features of those before them, from position 0 on.
#[test]
fn c27_tokens_are_shifted_against_features() {
    let target = tt_target();
    let tokens: Vec<TokenId> = vec![7, 21, 3, 40, 12, 55];
    for made in [random(e1(), 3), random(e3(), 4)] {
        let mut drafter = made.drafter(&target, 1, 64);
        let shown = taps(&target, &tokens[..5], drafter.taps());
        let seen = Seen {
            seq: SeqId(1),
            tokens: &tokens[..5],
            taps: Some(&shown),
        };
        drafter.observe(&[seen]).expect("it works");
        propose(&mut drafter, &tokens);
        let state = drafter.state(SeqId(1)).expect("it works").expect("known");
        assert_eq!((state.rows, state.waiting.len()), (5, 0));

        // By hand: ids t1..t5, features f0..f4, positions 0..4.
        let head = made.head(&target);
        let mut rows = Rows::new();
        rows.chain(SeqId(1), 0, &tokens[1..], Wanted::All)
            .expect("rows");
        assert_eq!(rows.positions(), [0, 1, 2, 3, 4]);
        assert_eq!(state.layers, keys(&made, &rows, &head.fuse(shown)));
    }
}

/// Keys and values of rows fed by hand.
fn keys(made: &Made, rows: &Rows, features: &Matrix) -> Vec<(Vec<f32>, Vec<f32>)> {
    let head = made.head(&tt_target());
    let mut cache = head.new_cache(rows.len());
    let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
    head.forward(rows, features, &mut txn).expect("a pass");
    // Slots are taken lowest first, so they are in order.
    let layers = 0..made.config.layers;
    layers
        .map(|layer| {
            let (k, v) = txn.layer(layer);
            (k.to_vec(), v.to_vec())
        })
        .collect()
}

/// One greedy draft of depth 4 after `tokens`.
fn propose(drafter: &mut dyn Drafter, tokens: &[TokenId]) -> Vec<TokenId> {
    let chain = Chain::new(params(|_| ()), 64, 64, Vec::new()).expect("no bias");
    let anchor = Anchor {
        seq: SeqId(1),
        tokens,
        round: 0,
        depth: 4,
        nodes: 4,
        chain: &chain,
        counts: &Counts::new(tokens),
        draws: &mut Keyed::new(0),
    };
    let mut tree = DraftTree::new();
    let grown = drafter.propose(&mut [anchor], std::slice::from_mut(&mut tree));
    grown.expect("it works");
    tree.nodes().map(|node| tree.token(node)).collect()
}

/// After a round the rows of accepted tokens have the target's features, not the guessed ones.
#[test]
fn c28_guessed_features_are_replaced() {
    let target = tt_target();
    let made = random(e3(), 12);
    let mut drafter = made.drafter(&target, 1, 64);
    let tokens: Vec<TokenId> = vec![7, 21, 3, 40, 12, 55];
    let show = |drafter: &mut dyn Drafter, from: usize, tokens: &[TokenId]| {
        let shown = taps(&target, tokens, drafter.taps()).gather(from..tokens.len());
        let seen = Seen {
            seq: SeqId(1),
            tokens,
            taps: Some(&shown),
        };
        drafter.observe(&[seen]).expect("it works");
    };
    show(&mut drafter, 0, &tokens[..5]);
    let drafted = propose(&mut drafter, &tokens);
    // Three drafts are accepted.
    let after = [&tokens[..], &drafted[..3]].concat();
    show(&mut drafter, 5, &after);
    let state = drafter.state(SeqId(1)).expect("it works");
    assert_eq!(state, fresh(&made, &target, &after));
    assert_eq!(state.map(|state: HeadState| state.rows), Some(8));
}

/// One, four and last boundaries are taps as any other; there is none after the last.
#[test]
fn c30_any_number_of_taps_up_to_the_last_boundary() {
    let lab = Lab::new(tt_target());
    for list in [vec![1, 3, 5, 7], vec![4], vec![7]] {
        let mut config = e3();
        config.feature = Feature::Taps(list.clone());
        let made = random(config, 5);
        let requests = [request(&prompts(64)[0])];
        let drafter = made.drafter(&lab.target, 1, 256);
        assert_eq!(drafter.taps(), list);
        let run = lab.run(Box::new(drafter), &requests);
        assert_eq!(run.tokens(), lab.base(&requests));
        assert!(run.drafted_accepted().0 > 20);
    }
    let mut config = e3();
    config.feature = Feature::Taps(vec![8]);
    let error = random(config, 5).try_head(&lab.target).expect_err("no tap");
    assert!(
        error
            .to_string()
            .contains("tap 8, accepted are 0 to the target's 7"),
        "{error}"
    );
}

/// A head's own embedding and output head are used where it has them, else the target's.
#[test]
fn c33_own_embedding_and_head_or_the_targets() {
    let lab = Lab::new(tt_target());
    let all = [(false, false), (false, true), (true, false), (true, true)];
    let logits = all.map(|(embedding, head)| {
        let mut config = e3();
        (config.own_embedding, config.own_head) = (embedding, head);
        (config.draft_vocab, config.vocab_map) = (64, VocabMap::Identity);
        let mut made = random(config, 6);
        // Everything else is the same in all four.
        let rest = random(e3(), 6).tensors;
        let borrowed = |name: &str| name.starts_with("lm_head") || name.starts_with("embed");
        made.tensors
            .extend(rest.into_iter().filter(|(name, _)| !borrowed(name)));
        let loaded = made.head(&lab.target);
        let mut cache = loaded.new_cache(8);
        let mut rows = Rows::new();
        rows.chain(SeqId(1), 0, &[4, 5], Wanted::All).expect("rows");
        let mut txn = Txn::begin(&mut cache, &rows.want()).expect("room");
        let shown = taps(&lab.target, &[3, 4], loaded.taps());
        let o = loaded
            .forward(&rows, &loaded.fuse(shown), &mut txn)
            .expect("a pass");
        if !head {
            let normed = Matrix::new(32, norm(o.row(1), &made.tensors["norm.weight"]));
            let theirs = lab.target.head(&normed);
            let ours = loaded.logits(&o.gather([1]));
            let far = ours
                .as_slice()
                .iter()
                .zip(theirs.as_slice())
                .map(|(a, b)| (a - b).abs());
            assert!(far.fold(0.0, f32::max) < 1e-4);
        }
        loaded.logits(&o).as_slice().to_vec()
    });
    for (i, a) in logits.iter().enumerate() {
        assert!(
            logits[..i].iter().all(|b| a != b),
            "{:?} has no effect",
            all[i]
        );
    }
}

fn norm(x: &[f32], weight: &[f32]) -> Vec<f32> {
    let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    let scale = 1.0 / (squares / 32.0 + 1e-5).sqrt();
    let values = x.iter().zip(weight);
    #[expect(clippy::cast_possible_truncation, reason = "compared within 1e-4")]
    values
        .map(|(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32)
        .collect()
}

/// A head may be narrower than its target if it has its own embedding and head.
#[test]
fn c34_a_narrower_head() {
    let lab = Lab::new(tt_target());
    let mut config = e3();
    (config.hidden, config.own_embedding) = (24, true);
    let made = random(config, 8);
    let requests = [request(&prompts(64)[0]), drawn(&prompts(64)[1], 1.0, 3)];
    let run = lab.run(Box::new(made.drafter(&lab.target, 2, 512)), &requests);
    assert_eq!(run.tokens(), lab.base(&requests));
    assert!(run.drafted_accepted().0 > 20);
    let wrong: [(&str, Change<Made>); 2] = [
        ("48 values, accepted are the target's 32", |made| {
            made.config.target_hidden = 48
        }),
        (
            "embedding is 32 wide, accepted is the head's own width 24",
            |made| made.config.own_embedding = false,
        ),
    ];
    for (text, change) in wrong {
        let mut made = made.clone();
        change(&mut made);
        let error = random(made.config, 8)
            .try_head(&lab.target)
            .expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// A round that is accepted whole leaves no hole: the next is accepted whole too.
#[test]
fn c37_no_hole_after_a_whole_round() {
    for version in [Version::Eagle1, Version::Eagle3] {
        let lab = table_lab(1);
        let made = table_head(version, 64, 1.0);
        let requests = [Request {
            max_tokens: 41,
            ..drawn(&prompts(64)[0], 0.0, 1)
        }];
        let probe = Probe::new(&made, &lab.target, 1, Plan::Own);
        let run = lab.run(Box::new(probe), &requests);
        let rounds = &run.choices[0].rounds;
        assert_eq!(rounds.len(), 8);
        assert!(
            rounds
                .iter()
                .all(|round| (round.drafted, round.accepted) == (4, 4)),
            "{rounds:?}"
        );
    }
}

/// A shared prefix does not change what is drafted after it: not the row at its end, whose token differs.
#[test]
fn c49_a_shared_prefix_drafts_as_a_cold_run() {
    let lab = Lab::new(tt_target());
    let made = &heads()[1];
    let shared: Vec<TokenId> = (0..64).map(|i| (i * 13 + 5) % 64).collect();
    let prompt = |last: TokenId| [&shared[..], &[last]].concat();
    let cold = |last: TokenId| {
        let run = lab.run(
            Box::new(made.drafter(&lab.target, 1, 512)),
            &[request(&prompt(last))],
        );
        run.traces
            .into_iter()
            .map(|trace| trace.drafted)
            .collect::<Vec<_>>()
    };
    let mut engine = lab.engine(Box::new(made.drafter(&lab.target, 1, 512)));
    for last in [3, 9, 3] {
        engine.submit(request(&prompt(last))).expect("valid");
        let run = crate::support::finish(&mut engine);
        let warm: Vec<_> = run.traces.into_iter().map(|trace| trace.drafted).collect();
        assert_eq!(warm, cold(last));
    }
    // Choices share the prompt's rows; each row after it is their own.
    let many = Request {
        n: 4,
        ..drawn(&prompt(3), 1.0, 8)
    };
    let probe = Probe::new(made, &lab.target, 1, Plan::Own);
    let run = lab.run(Box::new(probe), std::slice::from_ref(&many));
    assert_eq!(run.tokens(), lab.base(&[many]));
}

/// After a pause of 20 tokens the drafts are those of a run without one.
#[test]
fn c58_drafting_goes_on_after_a_pause() {
    let lab = Lab::new(tt_target());
    let made = &heads()[2];
    let requests = [Request {
        max_tokens: 60,
        ..drawn(&prompts(64)[0], 1.0, 2)
    }];
    let by_position = |plan: Plan| {
        let probe = Probe::new(made, &lab.target, 1, plan);
        let found = Arc::clone(&probe.found);
        let run = lab.run(Box::new(probe), &requests);
        assert_eq!(run.tokens(), lab.base(&requests));
        assert_eq!(found.unknown.load(std::sync::atomic::Ordering::Relaxed), 0);
        run.traces
    };
    let paused = by_position(Plan::Pause(3..23));
    let never = by_position(Plan::Own);
    assert!(paused[3..23].iter().all(|trace| trace.drafted.is_empty()));
    let again = paused[23..].iter().filter_map(|trace| {
        let same = never
            .iter()
            .find(|other| other.position == trace.position)?;
        Some((&trace.drafted, &same.drafted))
    });
    let again: Vec<_> = again.collect();
    assert!(again.len() > 3, "{}", again.len());
    assert!(again.iter().all(|(a, b)| a == b), "{again:?}");

    // And with a head that knows the text, the first round back is accepted whole.
    let lab = table_lab(1);
    let made = table_head(Version::Eagle3, 64, 1.0);
    let probe = Probe::new(&made, &lab.target, 1, Plan::Pause(3..23));
    let run = lab.run(Box::new(probe), &requests);
    assert!(
        run.choices[0].rounds[23..26]
            .iter()
            .all(|round| round.accepted == 4)
    );
}

/// A check tells a good head from one whose vocabulary map was rolled by a row, and from one with random
/// logits, by position.
#[test]
fn c66_a_head_that_is_not_connected_is_told_from_a_good_one() {
    let good = checked(&ring_head());
    assert_eq!(good.verdict, Verdict::Right, "{good:?}");
    assert!(good.rows >= 150 && good.counts.len() == 4, "{good:?}");
    assert!(
        good.given_before.iter().all(|rate| *rate == 1.0),
        "{good:?}"
    );
    for (name, made) in ring_heads_gone_wrong() {
        let report = checked(&made);
        assert_eq!(report.verdict, Verdict::Wrong, "{name}: {report:?}");
        let floor = "below chance-adjusted floor, check mapping/taps";
        let words: Vec<_> = report.findings.iter().map(|f| f.words.as_str()).collect();
        assert!(
            words.iter().any(|words| words.contains(floor)),
            "{name}: {words:?}"
        );
        let rolled = words
            .iter()
            .any(|words| words.contains("d2t seems to be rolled"));
        assert_eq!(rolled, name == "rolled", "{words:?}");
    }
}

fn checked(made: &Made) -> Report {
    let prompts = [3, 9, 20, 41].map(|token| (vec![token, 7, token], 40));
    check_of(&table_target(&ring()), made, &prompts)
}
