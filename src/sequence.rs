//! One choice of a request while it is being generated.

use std::{sync::Arc, time::Instant};

use crate::{
    SeqId, TokenId,
    ending::Ending,
    report::{ChoiceReport, FinishReason, Logprob, RoundCount, Timing, Usage},
    request::Request,
    sample::{Chain, Counts, Fault, Keyed},
};

/// A token that reached the user, with the text that became certain with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    /// The token.
    pub token: TokenId,
    /// Text to print now; often empty, see [`Ending`].
    pub text: String,
    /// Its log-probability and the likeliest tokens', if they were asked for.
    pub logprob: Option<Logprob>,
}

/// What may be known of a sequence while guessing.
#[derive(Debug)]
pub struct Open<'a> {
    /// Prompt and output.
    pub tokens: &'a [TokenId],
    /// What the penalties count.
    pub counts: &'a Counts,
    /// How its logits become laws.
    pub chain: &'a Chain,
    /// Its random numbers.
    pub draws: &'a mut Keyed,
}

/// What the choices of a request share.
#[derive(Debug)]
pub struct Shared {
    /// The scheduler's number for the request.
    pub ticket: u64,
    /// The request.
    pub request: Request,
    /// Its processing of logits.
    pub chain: Chain,
    /// When it was admitted.
    pub admitted: Instant,
}

/// Tokens, draws, stop conditions and records of one choice.
///
/// Invariant between rounds: the target's cache holds all tokens but the last, the anchor.
#[derive(Debug)]
pub struct Sequence {
    /// Its name in caches and drafters.
    pub id: SeqId,
    /// Its random numbers.
    pub draws: Keyed,
    /// Wall time by stage.
    pub timing: Timing,
    shared: Arc<Shared>,
    choice: usize,
    seed: u64,
    tokens: Vec<TokenId>,
    counts: Counts,
    ending: Ending,
    reason: Option<FinishReason>,
    error: Option<String>,
    logprobs: Option<Vec<Logprob>>,
    rounds: Vec<RoundCount>,
}

impl Sequence {
    /// Choice `choice` of a request, before its first token.
    #[must_use]
    pub fn new(id: SeqId, shared: Arc<Shared>, choice: usize, seed: u64, ending: Ending) -> Self {
        let request = &shared.request;
        Self {
            id,
            draws: Keyed::new(seed),
            timing: Timing::default(),
            choice,
            seed,
            tokens: request.prompt.clone(),
            counts: Counts::new(&request.prompt),
            ending,
            reason: None,
            error: None,
            logprobs: request.logprobs.map(|_| Vec::new()),
            rounds: Vec::new(),
            shared,
        }
    }

    /// What it shares with the request's other choices.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.shared.request
    }

    /// How its logits become laws.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.shared.chain
    }

    /// The scheduler's number for the request.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.shared.ticket
    }

    /// Index of the choice in its request.
    #[must_use]
    pub fn choice(&self) -> usize {
        self.choice
    }

    /// Prompt and output; the last is the anchor once there is output.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The tokens delivered so far.
    #[must_use]
    pub fn output(&self) -> &[TokenId] {
        &self.tokens[self.request().prompt.len()..]
    }

    /// What the penalties count.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The rounds it went through.
    #[must_use]
    pub fn rounds(&self) -> &[RoundCount] {
        &self.rounds
    }

    /// Writes a round down.
    pub fn count_round(&mut self, round: RoundCount) {
        self.rounds.push(round);
    }

    /// True once it has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.reason.is_some()
    }

    /// Most drafts that can be of use now: each accepted one and the token after it must still be
    /// deliverable. Zero if the request is not to be drafted for.
    #[must_use]
    pub fn draft_budget(&self) -> usize {
        if self.request().drafter_off {
            return 0;
        }
        self.ending.remaining().saturating_sub(1)
    }

    /// The parts that a guess may use.
    pub fn open(&mut self) -> Open<'_> {
        Open {
            tokens: &self.tokens,
            counts: &self.counts,
            chain: &self.shared.chain,
            draws: &mut self.draws,
        }
    }

    /// Delivers the next token.
    pub fn deliver(&mut self, token: TokenId, logprob: Option<Logprob>) -> Delivered {
        self.tokens.push(token);
        self.counts.push(token);
        if let (Some(list), Some(entry)) = (&mut self.logprobs, &logprob) {
            list.push(entry.clone());
        }
        let text = match self.ending.push(token) {
            Ok(pushed) => {
                self.reason = pushed.reason;
                pushed.text
            }
            Err(error) => {
                self.fail(error.to_string());
                String::new()
            }
        };
        Delivered {
            token,
            text,
            logprob,
        }
    }

    /// Ends it because no next token can be chosen; the error names the token's index in prompt
    /// and output, unless a processor has its own words.
    pub fn fail_at_next(&mut self, fault: Fault) {
        self.fail(match fault {
            Fault::Refused(text) => text.to_string(),
            fault => format!("{fault} at position {}", self.tokens.len()),
        });
    }

    /// Ends it with an error; its tokens so far are kept.
    pub fn fail(&mut self, error: String) {
        self.reason = Some(FinishReason::Error);
        self.error = Some(error);
    }

    /// The result, and the text that was held back if it failed.
    #[must_use]
    pub fn finish(mut self) -> (String, ChoiceReport) {
        let held = self.ending.rest().unwrap_or_else(|error| {
            self.fail(error.to_string());
            String::new()
        });
        self.timing.finish(self.shared.admitted.elapsed());
        let usage = Usage {
            prompt_tokens: self.request().prompt.len(),
            completion_tokens: self.output().len(),
        };
        let report = ChoiceReport {
            id: self.request().id.clone(),
            choice: self.choice,
            tokens: self.output().to_vec(),
            text: self.ending.text().map(str::to_owned),
            finish_reason: self.reason.unwrap_or(FinishReason::Error),
            error: self.error,
            seed: Some(self.seed),
            logprobs: self.logprobs,
            rounds: self.rounds,
            usage,
            timing_s: self.timing,
        };
        (held, report)
    }
}
