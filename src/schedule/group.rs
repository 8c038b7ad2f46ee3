//! The choices of one request, from the prompt they share.

use std::{sync::Arc, time::Duration};

use crate::{
    SeqId, TokenId,
    ending::{Ending, end_ids},
    report::{Logprob, Stage},
    sample::{History, choose, derive_choice},
    sequence::{Delivered, Sequence, Shared},
    text::Tokenizer,
};

/// A request whose choices have not all started.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) shared: Arc<Shared>,
    /// Owns the prompt's rows in the caches until the last choice has its own.
    pub(super) parent: SeqId,
    /// Logits after the prompt, once it is prefilled.
    pub(super) logits: Vec<f32>,
    /// Time of the passes over the prompt.
    pub(super) prefill: Duration,
    /// Choices started.
    pub(super) started: usize,
}

/// What every choice's stop conditions are made of.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) eos: Vec<TokenId>,
    pub(super) text: Option<Tokenizer>,
    pub(super) context: usize,
}

impl Group {
    /// True once every choice has started.
    pub(super) fn spent(&self) -> bool {
        self.started == self.shared.request.n
    }

    /// The next choice, under the name `id`, before its first token.
    pub(super) fn next(&mut self, id: SeqId, ends: &Ends) -> Sequence {
        let request = &self.shared.request;
        let seed = derive_choice(request.seed, self.started as u64);
        let limit = request
            .max_tokens
            .min(ends.context - request.prompt.len() + 1);
        let end_ids = end_ids(request, &ends.eos);
        let ending = Ending::new(request, end_ids, limit, ends.text.as_ref());
        let mut seq = Sequence::new(id, Arc::clone(&self.shared), self.started, seed, ending);
        seq.timing.add(Stage::Prefill, self.prefill);
        self.started += 1;
        seq
    }
}

/// Delivers the first token of `seq`, from the logits after its prompt.
pub(super) fn first_token(seq: &mut Sequence, logits: &[f32]) -> Option<Delivered> {
    let history = History {
        counts: seq.counts(),
        tokens: seq.tokens(),
        path: &[],
    };
    let chosen = (|| {
        let law = seq.chain().law(logits, &history)?;
        let token = choose(&law, 0, &seq.draws);
        let record = |top| {
            let law = seq.chain().report_law(logits, &history)?;
            Ok(Logprob::new(&law, token, top))
        };
        Ok((token, seq.request().logprobs.map(record).transpose()?))
    })();
    let (token, logprob) = match chosen {
        Ok(chosen) => chosen,
        Err(fault) => {
            seq.fail_at_next(fault);
            return None;
        }
    };
    Some(seq.deliver(token, logprob))
}
