//! The target's laws along a text, by feeding it.

use crate::{
    SeqId, TokenId,
    cache::Txn,
    error::{ErrorKind, Result},
    model::{Rows, Target, Wanted},
    sample::{Chain, Counts, Dist, History, SamplingParams},
};

/// A text, and how its tokens are chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fed<'a> {
    pub(super) target: &'a dyn Target,
    pub(super) params: &'a SamplingParams,
    /// Ids from here on are never generated.
    pub(super) valid: usize,
    /// Tokens of a pass.
    pub(super) chunk: usize,
    /// Tokens of the prompt, the first of `tokens`.
    pub(super) prompt: usize,
    pub(super) tokens: &'a [TokenId],
}

impl Fed<'_> {
    /// The laws after the tokens up to each of `anchors`, which are indices of tokens from the prompt's
    /// last on, ascending.
    pub(super) fn laws(&self, anchors: &[usize]) -> Result<Vec<Dist>> {
        let Some(last) = anchors.last() else {
            return Ok(Vec::new());
        };
        let (target, fed) = (self.target, &self.tokens[..=*last]);
        let vocab = target.vocab();
        let chain = Chain::new(self.params.clone(), vocab, self.valid, Vec::new())?;
        let seq = SeqId(0);
        let mut cache = target.new_cache(fed.len());
        let mut laws = Vec::new();
        for begin in (0..fed.len()).step_by(self.chunk) {
            let end = fed.len().min(begin + self.chunk);
            let mut rows = Rows::new();
            rows.chain(seq, begin, &fed[begin..end], Wanted::All)?;
            let full = || ErrorKind::Judge("a cache of its own has no room".to_owned());
            let mut txn = Txn::begin(&mut cache, &rows.want()).ok_or_else(full)?;
            let logits = target.forward(&rows, &mut txn, &[])?.logits;
            txn.commit_all(seq)?;
            for at in anchors.iter().filter(|at| (begin..end).contains(at)) {
                let mut counts = Counts::new(&fed[..self.prompt]);
                let output = &fed[self.prompt..=*at];
                output.iter().for_each(|token| counts.push(*token));
                let history = History {
                    counts: &counts,
                    tokens: &fed[..=*at],
                    path: &[],
                };
                laws.push(chain.law(logits.row(at - begin), &history)?);
            }
        }
        Ok(laws)
    }
}
