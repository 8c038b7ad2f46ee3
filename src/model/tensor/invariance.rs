//! Whether a row's bits depend on the other rows of its pass: measured, not assumed.

use std::fmt;

use crate::{
    SeqId, TokenId,
    cache::{KvCache, Txn},
    error::Result,
    model::{
        rows::{Rows, Wanted},
        target::Target,
    },
};

/// Classes of passes by their rows: a pair, a few, more.
const COUNTS: [usize; 3] = [2, 8, 33];

/// Tokens before the rows that are compared, in a context that has room for them.
const PREFIX: usize = 4;

/// What was found when rows were fed alone and inside more rows.
///
/// For each count of rows the logits and the last tap of every row are compared, bit by bit, with
/// those of the row alone: as rows of as many sequences, as siblings of one, and as a chain. Equal
/// bits there are evidence for other passes of such sizes, not a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowInvariance {
    measured: Vec<(usize, bool)>,
}

impl RowInvariance {
    /// Feeds `target` rows alone and together. With fewer positions than rows, chains are cut.
    ///
    /// # Errors
    /// As [`Target::forward`].
    pub fn measure(target: &dyn Target) -> Result<Self> {
        let most = COUNTS[COUNTS.len() - 1];
        let prefix = PREFIX.min(target.context() - 1);
        let mut probe = Probe {
            target,
            cache: target.new_cache(prefix + 3 * most),
            tokens: tokens(prefix + most, target.vocab()),
            prefix,
        };
        let mut measured = Vec::new();
        let (alone, along) = probe.alone(most)?;
        for count in COUNTS {
            let chain = count.min(along.len());
            let same = probe.batch(count)? == alone[..count]
                && probe.star(count)? == alone[..count]
                && probe.chain(chain)? == along[..chain];
            measured.push((count, same));
        }
        Ok(Self { measured })
    }

    /// Whether every row had the bits of the row alone, in every count of rows.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.measured.iter().all(|(_, same)| *same)
    }

    /// Numbers of rows in a pass, and whether the rows had the bits of the rows alone.
    #[must_use]
    pub fn measured(&self) -> &[(usize, bool)] {
        &self.measured
    }
}

impl fmt::Display for RowInvariance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holds() {
            return f.write_str("yes");
        }
        let broken = self.measured.iter().filter(|(_, same)| !same);
        let broken: Vec<_> = broken.map(|(count, _)| count.to_string()).collect();
        write!(f, "no (other bits among {} rows)", broken.join(", "))
    }
}

/// The bits of a row's logits and last tap.
type Bits = Vec<u32>;

/// A target, its cache with a prefix, and the tokens of prefix and rows.
#[derive(Debug)]
struct Probe<'t> {
    target: &'t dyn Target,
    cache: KvCache,
    tokens: Vec<TokenId>,
    prefix: usize,
}

impl Probe<'_> {
    const ROOT: SeqId = SeqId(0);

    /// Feeds the prefix token by token, then rows one by one: each after the prefix, and each after
    /// the others as far as there are positions.
    fn alone(&mut self, most: usize) -> Result<(Vec<Bits>, Vec<Bits>)> {
        for i in 0..self.prefix {
            self.row(Self::ROOT, i, true)?;
        }
        let mut alone = Vec::new();
        for i in 0..most {
            alone.push(self.row(Self::ROOT, self.prefix + i, false)?);
        }
        let chain = SeqId(1);
        self.cache.fork(Self::ROOT, chain, self.prefix)?;
        let mut along = Vec::new();
        for i in 0..most.min(self.target.context() - self.prefix) {
            along.push(self.row(chain, self.prefix + i, true)?);
        }
        self.cache.release(chain);
        Ok((alone, along))
    }

    /// One token after what `seq` has, alone.
    fn row(&mut self, seq: SeqId, token: usize, keep: bool) -> Result<Bits> {
        let mut rows = Rows::new();
        let base = self.cache.committed(seq);
        rows.chain(seq, base, &[self.tokens[token]], Wanted::All)?;
        let mut bits = self.pass(&rows, keep)?;
        Ok(bits.remove(0))
    }

    /// One row of each of `count` sequences.
    fn batch(&mut self, count: usize) -> Result<Vec<Bits>> {
        let seqs: Vec<_> = (1..).map(SeqId).take(count).collect();
        let mut rows = Rows::new();
        for (seq, token) in seqs.iter().zip(&self.tokens[self.prefix..]) {
            self.cache.fork(Self::ROOT, *seq, self.prefix)?;
            rows.chain(*seq, self.prefix, &[*token], Wanted::All)?;
        }
        let bits = self.pass(&rows, false)?;
        for seq in seqs {
            self.cache.release(seq);
        }
        Ok(bits)
    }

    /// `count` siblings.
    fn star(&mut self, count: usize) -> Result<Vec<Bits>> {
        let mut rows = Rows::new();
        let tokens = &self.tokens[self.prefix..][..count];
        let parents = vec![None; count];
        rows.span(Self::ROOT, self.prefix, tokens, &parents, Wanted::All)?;
        self.pass(&rows, false)
    }

    /// `count` rows, each after the one before.
    fn chain(&mut self, count: usize) -> Result<Vec<Bits>> {
        let mut rows = Rows::new();
        let tokens = &self.tokens[self.prefix..][..count];
        rows.chain(Self::ROOT, self.prefix, tokens, Wanted::All)?;
        self.pass(&rows, false)
    }

    fn pass(&mut self, rows: &Rows, keep: bool) -> Result<Vec<Bits>> {
        let room = Txn::begin(&mut self.cache, &rows.want());
        let mut txn = room.expect("the cache was made for these rows");
        let taps = [self.target.layers()];
        let out = self.target.forward(rows, &mut txn, &taps)?;
        if keep {
            for span in rows.spans() {
                txn.commit_all(span.seq)?;
            }
        }
        let row = |i: usize| {
            let tap = out.taps.as_ref().map_or(&[][..], |taps| taps.row(i));
            let values = out.logits.row(i).iter().chain(tap);
            values.map(|value| value.to_bits()).collect()
        };
        Ok((0..rows.len()).map(row).collect())
    }
}

/// Tokens of the vocabulary, in no order.
fn tokens(count: usize, vocab: usize) -> Vec<TokenId> {
    let mix = |i: usize| (i + 1).wrapping_mul(2_654_435_761) >> 7;
    let token = |i: usize| TokenId::try_from(mix(i) % vocab).unwrap_or_default();
    (0..count).map(token).collect()
}
