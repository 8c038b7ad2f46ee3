//! The true rows of all sequences: seen, waiting, fed.

use std::{collections::BTreeMap, sync::Arc};

use super::{head::Head, pairing::Pairing};
use crate::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    draft::Seen,
    error::{ErrorKind, Result},
    model::{Rows, Wanted},
};

/// Rows of a sequence that are fed in one pass while a prompt is caught up with.
const CHUNK: usize = 64;

/// A head, its cache, and what it knows of each sequence. A sequence that is not known is not
/// drafted for.
#[derive(Debug)]
pub(super) struct Sequences {
    head: Arc<Head>,
    cache: KvCache,
    known: BTreeMap<SeqId, Pairing>,
}

/// Rows of one sequence that follow on its fed ones.
#[derive(Debug)]
pub(super) struct Next<'a> {
    pub(super) seq: SeqId,
    pub(super) tokens: Vec<TokenId>,
    /// `[tokens, hidden]`.
    pub(super) features: &'a [f32],
}

/// What a head knows of a sequence, to be compared with what it should.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadState {
    /// Rows that were fed.
    pub rows: usize,
    /// By layer, keys of these rows in order, then values.
    pub layers: Vec<(Vec<f32>, Vec<f32>)>,
    /// The feature that waits for the next token.
    pub waiting: Vec<f32>,
}

impl Sequences {
    pub(super) fn new(head: Arc<Head>, slots: usize) -> Self {
        Self {
            cache: head.new_cache(slots),
            head,
            known: BTreeMap::new(),
        }
    }

    pub(super) fn head(&self) -> &Arc<Head> {
        &self.head
    }

    pub(super) fn cache(&mut self) -> &mut KvCache {
        &mut self.cache
    }

    pub(super) fn free(&self) -> usize {
        self.cache.free()
    }

    /// The rows of `seq` that wait, the anchor's included, if `tokens` are what is known of it and
    /// the anchor.
    pub(super) fn waiting(&self, seq: SeqId, tokens: &[TokenId]) -> Option<usize> {
        let known = self.known.get(&seq)?;
        (known.waiting() > 0 && known.continues(tokens, 1)).then_some(known.waiting())
    }

    /// Takes what the target showed. A sequence that was not shown from its start, or whose next row
    /// is beyond the head's positions, is forgotten: it goes on without drafts.
    pub(super) fn see(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        let (mut shown, mut counts) = (Vec::new(), Vec::new());
        for one in seen {
            let taps = self.taps_of(one)?;
            if taps.rows() == one.tokens.len() {
                self.forget(one.seq);
                self.known.insert(one.seq, Pairing::default());
            }
            let known = self.known.get(&one.seq);
            let goes_on = known.is_some_and(|known| known.continues(one.tokens, taps.rows()));
            if goes_on && one.tokens.len() <= self.head.config().max_position {
                shown.extend(taps.as_slice());
                counts.push((one, taps.rows()));
            } else {
                self.forget(one.seq);
            }
        }
        if counts.is_empty() {
            return Ok(());
        }
        let features = self.head.fuse(Matrix::new(self.head.shown_width(), shown));
        let mut from = 0;
        for (one, rows) in counts {
            let known = self.known.entry(one.seq).or_default();
            known.see(one.tokens, &features.gather(from..from + rows));
            from += rows;
        }
        Ok(())
    }

    fn taps_of<'s>(&self, seen: &Seen<'s>) -> Result<&'s Matrix> {
        let width = self.head.shown_width();
        let right = |taps: &&Matrix| taps.cols() == width && taps.rows() <= seen.tokens.len();
        seen.taps.filter(right).ok_or_else(|| {
            let found = seen.taps.map_or((0, 0), |taps| (taps.rows(), taps.cols()));
            ErrorKind::Draft(format!(
                "taps {found:?} of sequence {}, accepted are at most {} rows of {width}",
                seen.seq.0,
                seen.tokens.len()
            ))
            .into()
        })
    }

    /// Feeds rows in whole chunks while any sequence of `seen` has so many.
    pub(super) fn catch_up(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        loop {
            let late = seen.iter().map(|one| one.seq).filter(|seq| {
                let known = self.known.get(seq);
                known.is_some_and(|known| known.ready() >= CHUNK)
            });
            let late: Vec<_> = late.map(|seq| (seq, CHUNK, None)).collect();
            if late.is_empty() || self.feed(&late)?.is_none() {
                return Ok(());
            }
        }
    }

    /// Feeds the next rows of some sequences, so many each, with the token after what is known if
    /// they need it. The outputs of the last row of each; `None` if there is no room now.
    pub(super) fn feed(
        &mut self,
        batch: &[(SeqId, usize, Option<TokenId>)],
    ) -> Result<Option<Matrix>> {
        let next = batch.iter().map(|(seq, rows, token)| {
            let (tokens, features) = self.known[seq].next(*rows, *token);
            let seq = *seq;
            Next {
                seq,
                tokens,
                features,
            }
        });
        let next: Vec<Next<'_>> = next.collect();
        let outputs = extend(&self.head, &mut self.cache, &next)?;
        if outputs.is_some() {
            for (seq, rows, token) in batch {
                self.known.entry(*seq).or_default().fed(*rows, *token);
            }
        }
        Ok(outputs)
    }

    /// Forgets sequences while more rows wait than the cache could hold, those with the most first.
    pub(super) fn shed(&mut self) {
        let total = |known: &BTreeMap<SeqId, Pairing>| -> usize {
            known.values().map(Pairing::waiting).sum()
        };
        while total(&self.known) > self.cache.capacity() {
            let most = self.known.iter().max_by_key(|(_, known)| known.waiting());
            let Some((&seq, _)) = most else { return };
            self.forget(seq);
        }
    }

    /// `to` becomes a copy of `from`, whose rows are fed first so that they are shared.
    pub(super) fn fork(&mut self, from: SeqId, to: SeqId) -> Result<()> {
        self.settle(from)?;
        if let Some(known) = self.known.get(&from).cloned() {
            self.cache.fork(from, to, self.cache.committed(from))?;
            self.known.insert(to, known);
        }
        Ok(())
    }

    /// Feeds all rows of `seq` that can be, if there is room.
    fn settle(&mut self, seq: SeqId) -> Result<()> {
        let ready = self.known.get(&seq).map_or(0, Pairing::ready);
        if ready > 0 {
            self.feed(&[(seq, ready, None)])?;
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, seq: SeqId) {
        self.cache.release(seq);
        self.known.remove(&seq);
    }

    /// The state of `seq`, with its rows fed as far as they can be; it is read off a copy, so that
    /// looking changes nothing.
    pub(super) fn state(&mut self, seq: SeqId) -> Result<Option<HeadState>> {
        const COPY: SeqId = SeqId(u64::MAX);
        let Some(known) = self.known.get(&seq).cloned() else {
            return Ok(None);
        };
        self.cache.fork(seq, COPY, self.cache.committed(seq))?;
        self.known.insert(COPY, known);
        let state = self.settle(COPY).map(|()| self.read(COPY));
        self.forget(COPY);
        state
    }

    /// What is fed of `seq`, and what waits.
    fn read(&mut self, seq: SeqId) -> Option<HeadState> {
        let waiting = self.known.get(&seq)?.features().to_vec();
        let rows = self.cache.committed(seq);
        let txn = Txn::begin(&mut self.cache, &[])?;
        let width = txn.width();
        let read = |all: &[f32]| -> Vec<f32> {
            let slots = txn.prefix(seq).iter().map(|slot| *slot as usize * width);
            slots.flat_map(|at| all[at..at + width].to_vec()).collect()
        };
        let layers = (0..self.head.config().layers).map(|layer| {
            let (k, v) = txn.layer(layer);
            (read(k), read(v))
        });
        Some(HeadState {
            rows,
            layers: layers.collect(),
            waiting,
        })
    }
}

/// Feeds rows after the fed ones of their sequences, and keeps them there. The outputs of the last
/// row of each, `[sequences, hidden]`; `None` if there is no room now, and nothing was fed.
pub(super) fn extend(
    head: &Head,
    cache: &mut KvCache,
    next: &[Next<'_>],
) -> Result<Option<Matrix>> {
    let mut rows = Rows::new();
    let mut features = Vec::new();
    for one in next {
        rows.chain(one.seq, cache.committed(one.seq), &one.tokens, Wanted::Last)?;
        features.extend(one.features);
    }
    let Some(mut txn) = Txn::begin(cache, &rows.want()) else {
        return Ok(None);
    };
    let features = Matrix::new(head.config().hidden, features);
    let outputs = head.forward(&rows, &features, &mut txn)?;
    for one in next {
        txn.commit_all(one.seq)?;
    }
    Ok(Some(outputs.gather(rows.wanted().iter().copied())))
}
