//! Heads of every public format and option against right values made with public Python packages.

use std::collections::BTreeMap;

use eyrie::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    draft::eagle::{Head, HeadOptions},
    model::{Rows, Wanted},
};

use super::goldens::{Golden, names};
use crate::support::say;

/// Rows fed in one pass, and what came of them.
pub(crate) struct Fed {
    pub(crate) logits: Matrix,
    /// As features of the rows that follow.
    pub(crate) hidden: Matrix,
}

const SEQ: SeqId = SeqId(1);

/// Feeds rows after those in `cache`.
pub(crate) fn feed(head: &Head, cache: &mut KvCache, tokens: &[TokenId], features: &Matrix) -> Fed {
    let mut rows = Rows::new();
    let base = cache.committed(SEQ);
    rows.chain(SEQ, base, tokens, Wanted::All).expect("rows");
    let mut txn = Txn::begin(cache, &rows.want()).expect("room");
    let outputs = head.forward(&rows, features, &mut txn).expect("a pass");
    txn.commit_all(SEQ).expect("its rows");
    Fed {
        logits: head.logits(&outputs),
        hidden: head.fed_back(outputs),
    }
}

/// A head at work beside its right values.
struct Compared<'a> {
    golden: &'a Golden,
    head: &'a Head,
    cache: KvCache,
    /// Largest difference so far.
    far: f32,
    rows: usize,
}

impl Compared<'_> {
    /// Feeds tokens, of which `what` names the values; what the last row feeds the next.
    fn feed(&mut self, tokens: &[TokenId], features: &Matrix, what: &str) -> Matrix {
        let fed = feed(self.head, &mut self.cache, tokens, features);
        for (got, name) in [(&fed.logits, "logits"), (&fed.hidden, "hidden")] {
            let want = self.golden.value(&format!("{what}.{name}"));
            let want = want.gather(self.rows..self.rows + tokens.len());
            assert_eq!(
                (got.rows(), got.cols()),
                (want.rows(), want.cols()),
                "{what}.{name}"
            );
            for (a, b) in got.as_slice().iter().zip(want.as_slice()) {
                assert!(a.is_finite(), "{}: {what}.{name}", self.golden.name);
                self.far = self.far.max((a - b).abs());
            }
        }
        fed.hidden.gather([tokens.len() - 1])
    }

    /// Feeds the drafted tokens `what`, each with what the row before it gave.
    fn steps(&mut self, mut last: Matrix, what: &str, count: usize) {
        let tokens = self.golden.fed(&format!("{what}.tokens"));
        assert_eq!(tokens.len(), count);
        for token in tokens {
            last = self.feed(&[token], &last, what);
            self.rows += 1;
        }
        self.rows = 0;
    }
}

/// The largest difference of a head's logits and features.
pub(crate) fn difference(golden: &Golden, head: &Head) -> f32 {
    let mut compared = Compared {
        golden,
        head,
        cache: head.new_cache(32),
        far: 0.0,
        rows: 0,
    };
    let features = head.fuse(golden.shown(head, 0, 9));
    let last = compared.feed(&golden.tokens[1..10], &features, "extend");
    compared.steps(last, "steps", 4);
    assert_eq!(compared.cache.committed(SEQ), 13);
    compared.cache.truncate(SEQ, 9).expect("shorter");
    let features = head.fuse(golden.shown(head, 9, 3));
    let last = compared.feed(&golden.fed("again.tokens"), &features, "again");
    compared.steps(last, "again.steps", 2);
    compared.far
}

/// Extend, four recurrent steps, rollback, re-extend with other taps, two more steps.
#[test]
fn every_golden_head_gives_the_right_logits() {
    let mut worst = BTreeMap::<String, (f32, String, usize)>::new();
    for name in names() {
        let golden = Golden::read(&name);
        let head = golden.head();
        let ids = golden.fed("ids");
        assert_eq!(ids, crate::eagle::heads::ids(head.config()), "{name}");
        let far = difference(&golden, &head);
        assert!(far < 1e-4, "{name}: {far} off");
        let entry = worst.entry(golden.format.clone()).or_default();
        entry.2 += 1;
        if far >= entry.0 {
            (entry.0, entry.1) = (far, name);
        }
    }
    for (format, (far, name, heads)) in worst {
        say(&format!(
            "{format}: {heads} heads, at most {far:.1e} off ({name})"
        ));
    }
}

/// What files of an older release leave open is asked for, and the other answer is another head.
#[test]
fn the_other_reading_of_norm_output_is_another_head() {
    for name in [
        "eagle3-specforge-old-norm-output",
        "eagle3-specforge-no-head-norm",
    ] {
        let golden = Golden::read(name);
        match golden.open(&HeadOptions::default()) {
            Err(error) => assert!(error.to_string().contains("norm"), "{name}: {error}"),
            Ok(_) => {
                let other = golden.head_with(&HeadOptions::default());
                assert!(difference(&golden, &other) > 1e-2, "{name}");
            }
        }
    }
}

/// Numbers between -2 and 2.
fn random(count: usize) -> Vec<f32> {
    let mut x = 1_u32;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(x >> 16).unwrap_or(0)) / 16_384.0 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// Rows of a longer sequence fed in chunks, each fused on its own.
fn in_chunks(head: &Head, tokens: &[TokenId], shown: &Matrix, chunk: usize) -> Fed {
    let mut cache = head.new_cache(tokens.len());
    let (mut logits, mut hidden) = (Vec::new(), Vec::new());
    for begin in (0..tokens.len()).step_by(chunk) {
        let end = tokens.len().min(begin + chunk);
        let features = head.fuse(shown.gather(begin..end));
        let fed = feed(head, &mut cache, &tokens[begin..end], &features);
        logits.extend(fed.logits.as_slice());
        hidden.extend(fed.hidden.as_slice());
    }
    Fed {
        logits: Matrix::new(head.config().draft_vocab, logits),
        hidden: Matrix::new(head.config().hidden, hidden),
    }
}

/// However many rows come at once, and whichever the last chunk is left with, bits are equal.
#[test]
fn a_chunked_extend_is_the_one_shot_extend() {
    const ROWS: usize = 131;
    for name in names() {
        let golden = Golden::read(&name);
        let head = golden.head();
        let vocab = TokenId::try_from(head.config().vocab).expect("a vocabulary");
        let tokens = (0..131).map(|i: TokenId| (i * i + 31 * i + 5) % vocab);
        let tokens: Vec<TokenId> = tokens.collect();
        let shown = Matrix::new(head.shown_width(), random(ROWS * head.shown_width()));
        let whole = in_chunks(&head, &tokens, &shown, ROWS);
        assert!(
            whole.logits.as_slice().iter().all(|x| x.is_finite()),
            "{name}"
        );
        for chunk in [1, 7, 16, 39, 40, 64] {
            let parts = in_chunks(&head, &tokens, &shown, chunk);
            assert!(
                parts.logits == whole.logits,
                "{name}: logits in chunks of {chunk}"
            );
            assert!(
                parts.hidden == whole.hidden,
                "{name}: outputs in chunks of {chunk}"
            );
        }
    }
}
