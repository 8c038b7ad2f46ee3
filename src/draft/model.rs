//! A smaller model of the same vocabulary, or the target itself, as drafter.

use std::{collections::BTreeMap, sync::Arc};

use super::{Anchor, Drafter, Feed, Pick, Seen, Shape, Tip, forks::Forks, grow};
use crate::{
    Matrix, SeqId, TokenId,
    cache::{KvCache, Txn},
    error::Result,
    model::{Rows, Target, Wanted},
    sample::Chain,
    tree::DraftTree,
};

/// The drafter `model`.
///
/// It keeps the tokens that its cache holds for each sequence and, before it guesses, cuts them to
/// what the sequence really says and feeds the rest. Rejected guesses, rounds without drafts and
/// the unfed last draft of an accepted chain are therefore one case: catching up.
///
/// A chain is fed to the sequence itself, so that accepted guesses are there in the next round. The
/// rows of a tree are each a sequence of their own that shares its parent's tokens, so that every
/// row is a row of a chain, with a chain's bits; they are given up when the tree is grown.
#[derive(Debug)]
pub struct ModelDrafter {
    model: Arc<dyn Target>,
    cache: KvCache,
    fed: BTreeMap<SeqId, Vec<TokenId>>,
    shape: Shape,
    chunk: usize,
}

impl ModelDrafter {
    /// Drafts chains with `model`, whose vocabulary is the target's up to padding. Its cache holds
    /// `kv_tokens` tokens; prompts are fed `chunk` tokens at a time.
    #[must_use]
    pub fn new(model: Arc<dyn Target>, pick: Pick, kv_tokens: usize, chunk: usize) -> Self {
        let cache = model.new_cache(kv_tokens);
        Self {
            model,
            cache,
            fed: BTreeMap::new(),
            shape: Shape::chain(pick),
            chunk: chunk.max(1),
        }
    }

    /// Drafts trees of so many children a row. Beside the tokens of sequences, the cache has to hold
    /// [`Shape::rows`] tokens for each that is drafted for; those without are not.
    #[must_use]
    pub fn branching(mut self, topk: usize) -> Self {
        self.shape.topk = topk;
        self
    }

    /// True if every token can be fed and a draft after them has a position.
    fn can_follow(&self, tokens: &[TokenId]) -> bool {
        let inside = |token: &TokenId| (*token as usize) < self.model.vocab();
        let positions = 1..=self.model.context();
        positions.contains(&tokens.len()) && tokens.iter().all(inside)
    }

    /// Cuts what is fed of `seq` to what it really says, without its last token; how many tokens are
    /// missing then.
    fn trim(&mut self, seq: SeqId, tokens: &[TokenId]) -> Result<usize> {
        let fed = self.fed.entry(seq).or_default();
        let agree = fed.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let keep = agree.min(tokens.len() - 1);
        fed.truncate(keep);
        self.cache.truncate(seq, keep)?;
        Ok(tokens.len() - keep)
    }

    /// Which of `seqs` can be caught up and have so many rows beyond (the last member of each) in
    /// the room there is, first come, first served. Those are trimmed; the others give their rows up,
    /// so that they do not keep the first from going on.
    fn fitting(&mut self, seqs: &[(SeqId, &[TokenId], usize)]) -> Result<Vec<usize>> {
        let mut needs = Vec::new();
        for (i, (seq, tokens, beyond)) in seqs.iter().enumerate() {
            if self.can_follow(tokens) {
                needs.push((i, self.trim(*seq, tokens)? + beyond));
            }
        }
        let mut room = self.cache.free();
        let mut fitting = Vec::new();
        for (i, need) in needs {
            if need <= room {
                room -= need;
                fitting.push(i);
            } else {
                self.forget(seqs[i].0);
            }
        }
        Ok(fitting)
    }

    /// Feeds each sequence, trimmed before, up to its last token; the last pass, which always has
    /// that token, says which logits are `wanted`. `None` where there is no room now.
    fn catch_up(&mut self, seqs: &[(SeqId, &[TokenId])], wanted: Wanted) -> Result<Option<Matrix>> {
        loop {
            let missing = |seq: &SeqId, tokens: &[TokenId]| tokens.len() - self.fed[seq].len();
            let late: Vec<_> = seqs
                .iter()
                .filter(|(seq, tokens)| missing(seq, tokens) > self.chunk)
                .map(|(seq, tokens)| (*seq, &tokens[self.fed[seq].len()..][..self.chunk]))
                .collect();
            if late.is_empty() {
                break;
            }
            if self.feed(&late, Wanted::None)?.is_none() {
                return Ok(None);
            }
        }
        let rest: Vec<_> = seqs
            .iter()
            .map(|(seq, tokens)| (*seq, &tokens[self.fed[seq].len()..]))
            .collect();
        self.feed(&rest, wanted)
    }

    /// One pass over the next tokens of some sequences.
    fn feed(&mut self, next: &[(SeqId, &[TokenId])], wanted: Wanted) -> Result<Option<Matrix>> {
        let logits = self.pass(next, wanted)?;
        if logits.is_some() {
            for (seq, tokens) in next {
                self.fed.entry(*seq).or_default().extend(*tokens);
            }
        }
        Ok(logits)
    }

    /// One pass over the next tokens of some sequences of the cache.
    fn pass(&mut self, next: &[(SeqId, &[TokenId])], wanted: Wanted) -> Result<Option<Matrix>> {
        let mut rows = Rows::default();
        for (seq, tokens) in next {
            rows.chain(*seq, self.cache.committed(*seq), tokens, wanted)?;
        }
        let Some(mut txn) = Txn::begin(&mut self.cache, &rows.want()) else {
            return Ok(None);
        };
        let out = self.model.forward(&rows, &mut txn, &[])?;
        for (seq, _) in next {
            txn.commit_all(*seq)?;
        }
        Ok(Some(out.logits))
    }

    /// Grows the trees of anchors that the model can follow.
    fn guess(
        &mut self,
        anchors: &mut [&mut Anchor<'_>],
        trees: &mut [&mut DraftTree],
    ) -> Result<()> {
        let narrowed = |anchor: &&mut Anchor<'_>| anchor.chain.narrowed(self.model.vocab());
        let chains: Vec<Chain> = anchors.iter().map(narrowed).collect();
        let seqs: Vec<_> = anchors.iter().map(|a| (a.seq, a.tokens)).collect();
        let shape = self.shape;
        let mut feed = ModelFeed {
            names: seqs.iter().map(|(seq, _)| vec![*seq]).collect(),
            seqs,
            forks: Forks::default(),
            drafter: self,
        };
        let grown = grow(anchors, trees, &chains, shape, &mut feed);
        feed.forks.release(&mut feed.drafter.cache);
        grown
    }
}

/// The model, asked for the rows of trees.
struct ModelFeed<'d> {
    drafter: &'d mut ModelDrafter,
    /// The anchors' sequences, with their tokens.
    seqs: Vec<(SeqId, &'d [TokenId])>,
    /// By anchor and slot, the sequence of the cache that ends with that row.
    names: Vec<Vec<SeqId>>,
    /// The sequences made for trees.
    forks: Forks,
}

impl ModelFeed<'_> {
    /// The sequence that a row is fed to.
    fn place(&mut self, tip: &Tip) -> Result<SeqId> {
        let names = &mut self.names[tip.anchor];
        let parent = tip.parent.map_or(names[0], |slot| names[slot]);
        let name = if self.drafter.shape.topk <= 1 {
            parent
        } else {
            self.forks.fork(&mut self.drafter.cache, parent)?
        };
        names.push(name);
        Ok(name)
    }
}

impl Feed for ModelFeed<'_> {
    fn can_feed(&self, tip: &Tip) -> bool {
        let fed = self.seqs[tip.anchor].1.len() + tip.depth;
        fed <= self.drafter.model.context()
    }

    fn feed(&mut self, tips: &[Tip]) -> Result<Option<Matrix>> {
        if tips.iter().all(|tip| tip.depth == 0) {
            let seqs: Vec<_> = tips.iter().map(|tip| self.seqs[tip.anchor]).collect();
            return self.drafter.catch_up(&seqs, Wanted::Last);
        }
        let mut next = Vec::with_capacity(tips.len());
        for tip in tips {
            next.push((self.place(tip)?, std::slice::from_ref(&tip.token)));
        }
        if self.drafter.shape.topk <= 1 {
            self.drafter.feed(&next, Wanted::Last)
        } else {
            self.drafter.pass(&next, Wanted::Last)
        }
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &'static str {
        "model"
    }

    fn observe(&mut self, seen: &[Seen<'_>]) -> Result<()> {
        let all: Vec<_> = seen.iter().map(|seen| (seen.seq, seen.tokens, 0)).collect();
        let fitting = self.fitting(&all)?.into_iter();
        let follow: Vec<_> = fitting.map(|i| (all[i].0, all[i].1)).collect();
        if !follow.is_empty() {
            self.catch_up(&follow, Wanted::None)?;
        }
        Ok(())
    }

    fn propose(&mut self, anchors: &mut [Anchor<'_>], trees: &mut [DraftTree]) -> Result<()> {
        let rows = |anchor: &Anchor<'_>| self.shape.rows(anchor.depth, anchor.nodes);
        let all: Vec<_> = anchors
            .iter()
            .map(|anchor| (anchor.seq, anchor.tokens, rows(anchor)))
            .collect();
        let fitting = self.fitting(&all)?;
        let followed = |(i, _): &(usize, _)| fitting.binary_search(i).is_ok();
        let pairs = anchors.iter_mut().zip(trees).enumerate();
        let (mut anchors, mut trees): (Vec<_>, Vec<_>) =
            pairs.filter(followed).map(|(_, pair)| pair).unzip();
        if anchors.is_empty() {
            return Ok(());
        }
        self.guess(&mut anchors, &mut trees)
    }

    fn fork(&mut self, from: SeqId, to: SeqId) {
        let Some(tokens) = self.fed.get(&from).cloned() else {
            return;
        };
        if self.cache.fork(from, to, tokens.len()).is_ok() {
            self.fed.insert(to, tokens);
        }
    }

    fn forget(&mut self, seq: SeqId) {
        self.cache.release(seq);
        self.fed.remove(&seq);
    }
}
