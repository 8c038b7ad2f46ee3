//! A smaller model of the same vocabulary, or the target itself, as drafter.

use std::{collections::BTreeMap, sync::Arc};

use super::{Anchor, Drafter, Pick, Seen};
use crate::{
    Matrix, Node, SeqId, TokenId,
    cache::{KvCache, Txn},
    error::Result,
    model::{Rows, Target, Wanted},
    sample::{Chain, History},
    tree::DraftTree,
};

/// The drafter `model`.
///
/// It keeps the tokens that its cache holds for each sequence and, before it guesses, cuts them to
/// what the sequence really says and feeds the rest. Rejected guesses, rounds without drafts and
/// the unfed last draft of an accepted chain are therefore one case: catching up.
#[derive(Debug)]
pub struct ModelDrafter {
    model: Arc<dyn Target>,
    cache: KvCache,
    fed: BTreeMap<SeqId, Vec<TokenId>>,
    pick: Pick,
    chunk: usize,
}

/// A draft in the making, and the request's processing for this model's vocabulary.
#[derive(Debug)]
struct Guess<'t> {
    chain: Chain,
    tree: &'t mut DraftTree,
    /// The tokens of the tree, which is a chain.
    tokens: Vec<TokenId>,
    open: bool,
}

impl ModelDrafter {
    /// Drafts with `model`, whose vocabulary is the target's up to padding. Its cache holds
    /// `kv_tokens` tokens; prompts are fed `chunk` tokens at a time.
    #[must_use]
    pub fn new(model: Arc<dyn Target>, pick: Pick, kv_tokens: usize, chunk: usize) -> Self {
        let cache = model.new_cache(kv_tokens);
        Self {
            model,
            cache,
            fed: BTreeMap::new(),
            pick,
            chunk: chunk.max(1),
        }
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

    /// Which of `seqs` can be caught up and guessed `ahead` tokens for (the last member of each) in
    /// the room there is, first come, first served. Those are trimmed; the others give their rows up,
    /// so that they do not keep the first from going on.
    fn fitting(&mut self, seqs: &[(SeqId, &[TokenId], usize)]) -> Result<Vec<usize>> {
        let mut needs = Vec::new();
        for (i, (seq, tokens, ahead)) in seqs.iter().enumerate() {
            if self.can_follow(tokens) {
                needs.push((i, self.trim(*seq, tokens)? + ahead));
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
        let mut rows = Rows::default();
        for (seq, tokens) in next {
            rows.chain(*seq, self.cache.committed(*seq), tokens, wanted)?;
        }
        let Some(mut txn) = Txn::begin(&mut self.cache, &rows.want()) else {
            return Ok(None);
        };
        let out = self.model.forward(&rows, &mut txn, &[])?;
        for (seq, tokens) in next {
            txn.commit_all(*seq)?;
            self.fed.entry(*seq).or_default().extend(*tokens);
        }
        Ok(Some(out.logits))
    }

    /// Chooses the next token of an open guess from the row of logits after it; closes the guess at
    /// its depth, at the model's context and where no token can be chosen.
    fn extend(&self, anchor: &mut Anchor<'_>, guess: &mut Guess<'_>, logits: &[f32]) -> Result<()> {
        let history = History {
            counts: anchor.counts,
            path: &guess.tokens,
        };
        let Ok(law) = guess.chain.law(logits, &history) else {
            guess.open = false;
            return Ok(());
        };
        let parent = guess.tokens.len().checked_sub(1).map(Node::at);
        let node = self.pick.add(guess.tree, parent, law, anchor)?;
        guess.tokens.push(guess.tree.token(node));
        let fed = anchor.tokens.len() + guess.tokens.len();
        guess.open = guess.tokens.len() < anchor.depth && fed <= self.model.context();
        Ok(())
    }

    /// Grows the trees of anchors that the model can follow, level by level.
    fn guess(&mut self, anchors: &mut [&mut Anchor<'_>], trees: Vec<&mut DraftTree>) -> Result<()> {
        let guesses = anchors.iter().zip(trees).map(|(anchor, tree)| Guess {
            chain: anchor.chain.narrowed(self.model.vocab()),
            tree,
            tokens: Vec::new(),
            open: true,
        });
        let mut guesses: Vec<Guess<'_>> = guesses.collect();
        let seqs: Vec<_> = anchors.iter().map(|a| (a.seq, a.tokens)).collect();
        let mut logits = self.catch_up(&seqs, Wanted::Last)?;
        while let Some(rows) = logits {
            let open = guesses
                .iter_mut()
                .zip(anchors.iter_mut())
                .filter(|(guess, _)| guess.open);
            for (row, (guess, anchor)) in open.enumerate() {
                self.extend(anchor, guess, rows.row(row))?;
            }
            let open = guesses
                .iter()
                .zip(&*anchors)
                .filter(|(guess, _)| guess.open);
            let next: Vec<_> = open
                .map(|(guess, anchor)| (anchor.seq, &guess.tokens[guess.tokens.len() - 1..]))
                .collect();
            if next.is_empty() {
                break;
            }
            logits = self.feed(&next, Wanted::Last)?;
        }
        Ok(())
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
        let all: Vec<_> = anchors
            .iter()
            .map(|anchor| (anchor.seq, anchor.tokens, anchor.depth - 1))
            .collect();
        let fitting = self.fitting(&all)?;
        let followed = |(i, _): &(usize, _)| fitting.binary_search(i).is_ok();
        let pairs = anchors.iter_mut().zip(trees).enumerate();
        let (mut anchors, trees): (Vec<_>, Vec<_>) =
            pairs.filter(followed).map(|(_, pair)| pair).unzip();
        if anchors.is_empty() {
            return Ok(());
        }
        self.guess(&mut anchors, trees)
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
