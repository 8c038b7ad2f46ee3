//! Does a head guess what its target says? Agreement by position on texts, beside the same head put
//! together wrongly.
//!
//! The target reads a text (and answers it greedily), and the head is fed what serving would feed it:
//! row i holds token i + 1 and the feature of token i. Its first guess is what the target says after
//! token i + 1; further guesses follow on the text's own tokens with the head's own features, as in a
//! draft that is right so far. So the rate at position d, where all guesses before are right, is the
//! acceptance that drafting at temperature 0 would see.
//!
//! A head that was put together wrongly still gives tokens, only worse ones, and losslessness hides it. So
//! each row is also guessed by the head with taps one boundary lower and higher, with its vocabulary map
//! rolled by a row, with random logits, and (EAGLE-1) with the embedding of another token. None of these
//! can be better if the head was put together right; and if it is no better than random logits, the wrong
//! map or always the commonest token, it has learnt nothing, or is not connected to what it learnt.

mod judge;
mod reading;
mod rows;
mod sign;

pub use judge::{Finding, Report, Standing, Verdict};
pub use reading::Text;

use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    TokenId,
    draft::eagle::{Feature, Head, HeadConfig, TapsConvention, TensorSource, Version, VocabMap},
    error::Result,
    model::{
        LoadOptions, Target,
        load::{LoadError, Stored, StoredType},
    },
};
use judge::Tally;
use reading::Reading;

/// No finding is made at a larger p-value.
pub const ALPHA: f64 = 1e-3;
/// With fewer rows nothing is said against a head for being no better than a floor: at 100, one that agrees
/// 25 points more often than a floor of 5 % is told from it with probability 0.95.
pub const ENOUGH: u32 = 100;
/// Texts that are read together.
const TOGETHER: usize = 8;

/// A head to be checked.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The head.
    pub head: Arc<Head>,
    /// The same with [random logits](with_random_logits).
    pub random: Arc<Head>,
    /// The target of both.
    pub target: Arc<dyn Target>,
    /// Token ids that have a meaning are below it.
    pub valid: usize,
    /// Tokens that end an answer.
    pub eos: Vec<TokenId>,
}

/// The head `config` with an output head of random numbers in place of its own or the target's.
///
/// # Errors
/// As [`Head::new`].
pub fn with_random_logits(
    config: &HeadConfig,
    source: &mut TensorSource<'_>,
    target: Arc<dyn Target>,
    options: &LoadOptions,
    seed: u64,
) -> Result<Head> {
    const HEAD: &str = "lm_head.weight";
    let mut config = config.clone();
    config.own_head = true;
    let shape = vec![config.draft_vocab, config.hidden];
    let mut random = |name: &str| -> Result<Stored, LoadError> {
        if name != HEAD {
            return source(name);
        }
        let mut numbers = StdRng::seed_from_u64(seed);
        let count = shape.iter().product::<usize>();
        let numbers = (0..count).map(|_| numbers.random_range(-1.0_f32..1.0));
        Ok(Stored {
            name: HEAD.to_owned(),
            dtype: StoredType::F32,
            shape: shape.clone(),
            bytes: numbers.flat_map(f32::to_le_bytes).collect(),
        })
    };
    Head::new(config, &mut random, target, options)
}

/// One way to put the head together.
#[derive(Clone, Debug)]
struct Variant {
    name: String,
    /// What its guesses would mean if it were the best.
    hint: Option<String>,
    /// Whether the head has to be better.
    floor: bool,
    random: bool,
    taps: Vec<usize>,
    /// Column j of the logits is taken for the token of column j + roll.
    roll: isize,
    /// Row i has the embedding of the token this much above.
    shift: u32,
}

/// What a head is beside: itself first.
fn variants(head: &Head, layers: usize) -> Vec<Variant> {
    let config = head.config();
    let own = Variant {
        name: "as it is".to_owned(),
        hint: None,
        floor: false,
        random: false,
        taps: head.taps().to_vec(),
        roll: 0,
        shift: 0,
    };
    let mut all = vec![own.clone()];
    if let Feature::Taps(taps) = &config.feature {
        let convention = config.taps_convention.unwrap_or(TapsConvention::Default);
        let lower: Option<Vec<_>> = taps.iter().map(|tap| tap.checked_sub(1)).collect();
        let higher: Vec<_> = taps.iter().map(|tap| tap + 1).collect();
        let higher = higher.iter().all(|tap| *tap <= layers).then_some(higher);
        let listed = |wrong: TapsConvention, other: TapsConvention, taps: &[usize]| {
            if convention == wrong {
                let by = other.name();
                format!("taps seem to be numbered by {by}: try --taps-convention {by}")
            } else {
                format!("taps seem to be {taps:?}; check the list of taps in its configuration")
            }
        };
        let (input, output) = (TapsConvention::Input, TapsConvention::Output);
        for (taps, word, wrong, other) in [
            (lower, "lower", output, input),
            (higher, "higher", input, output),
        ] {
            let Some(taps) = taps else { continue };
            all.push(Variant {
                name: format!("taps one {word}, {taps:?}"),
                hint: Some(listed(wrong, other, &taps)),
                taps,
                ..own.clone()
            });
        }
    }
    for (roll, word) in [(1, "up"), (-1, "down")] {
        all.push(Variant {
            name: format!("d2t rolled a row {word}"),
            hint: Some("d2t seems to be rolled by a row: check the vocabulary map".to_owned()),
            floor: true,
            roll,
            ..own.clone()
        });
    }
    if config.version == Version::Eagle1 {
        all.push(Variant {
            name: "embedding of the token above".to_owned(),
            hint: Some("token ids seem to be off by one: check the embedding".to_owned()),
            shift: 1,
            ..own.clone()
        });
    }
    all.push(Variant {
        name: "random lm_head".to_owned(),
        floor: true,
        random: true,
        ..own
    });
    all
}

/// Compares the guesses of `subject` with what its target says of `texts`, at positions 1 to `depth`.
/// `progress` is called with the number of texts done, and of all.
///
/// # Errors
/// If a text cannot be read by the target.
pub fn check(
    subject: &Subject,
    texts: &[Text],
    depth: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    let variants = variants(&subject.head, subject.target.layers());
    let mut taps: Vec<usize> = variants.iter().flat_map(|v| v.taps.clone()).collect();
    taps.sort_unstable();
    taps.dedup();
    let mut tally = Tally::new(variants.len(), depth);
    for (done, some) in texts.chunks(TOGETHER).enumerate() {
        for reading in reading::read(subject, some, &taps)? {
            count(subject, &variants, &taps, &reading, depth, &mut tally)?;
        }
        progress(done * TOGETHER + some.len(), texts.len());
    }
    Ok(judge::report(&tally, variants))
}

/// Adds the rows of a text.
fn count(
    subject: &Subject,
    variants: &[Variant],
    taps: &[usize],
    reading: &Reading,
    depth: usize,
    tally: &mut Tally,
) -> Result<()> {
    let columns = |variant: &Variant| {
        let head = if variant.random {
            &subject.random
        } else {
            &subject.head
        };
        let width = head.config().target_hidden;
        let shown = reading.shown(taps, &variant.taps, width);
        rows::guesses(head, reading, shown, variant.shift, depth)
    };
    let config = subject.head.config();
    let own = columns(&variants[0])?;
    let mut hits = Vec::with_capacity(variants.len());
    for (i, variant) in variants.iter().enumerate() {
        let roll = variant.roll;
        // Itself, and itself with another map.
        hits.push(if i == 0 || roll != 0 {
            rows::right(config, reading, &own, roll)
        } else {
            rows::right(config, reading, &columns(variant)?, roll)
        });
    }
    tally.add(&hits, reading);
    Ok(())
}

/// The token of a column that is taken for the one `roll` columns on.
fn token_of(config: &HeadConfig, column: usize, roll: isize) -> TokenId {
    let rows = config.draft_vocab;
    let column = column.checked_add_signed(roll).unwrap_or(rows - 1) % rows;
    match &config.vocab_map {
        VocabMap::Identity => TokenId::try_from(column).unwrap_or(TokenId::MAX),
        VocabMap::Reduced(ids) => ids[column],
    }
}
