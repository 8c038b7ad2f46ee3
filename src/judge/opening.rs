//! The first two tokens after a prompt: their law by enumeration, and what an engine emits.
//!
//! The second token is the first that a round gives, so drafts bear on it. The law is that of temperature 1
//! without a filter, in cells: the likeliest first tokens, each with its likeliest second tokens and with
//! any other second token, and any other first token. Few cells need few samples; what happens inside the
//! last cell of each kind is not seen.

use eyrie_verifier::judge::{self, Judgement};

use super::{
    engine::{request, run},
    laws::Fed,
    settings::warm,
};
use crate::{
    TokenId,
    error::{ErrorKind, Result},
    model::Target,
    request::Request,
    sample::{Dist, SamplingParams},
    schedule::Engine,
};

/// First tokens, and second tokens of each, that have cells of their own.
const LIKELY: usize = 3;

/// Tokens of a choice: one more than are judged, so that the second may be drafted for.
const GENERATED: usize = 3;

/// Tokens of a pass when the prompt is fed.
const CHUNK: usize = 64;

/// A prompt and the law of the two tokens after it.
#[derive(Clone, Debug)]
pub struct Opening {
    request: Request,
    /// A first token with cells of its own, and its second tokens that have.
    likely: Vec<(TokenId, Vec<TokenId>)>,
    law: Vec<f64>,
}

/// What an engine emitted.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Of the law.
    pub judgement: Judgement,
    /// Drafted tokens.
    pub drafted: usize,
    /// Accepted drafts.
    pub accepted: usize,
}

impl Opening {
    /// Enumerates the law after `prompt`; ids from `valid` on are never generated.
    ///
    /// # Errors
    /// If the target refuses the prompt, or its logits are no numbers.
    pub fn new(target: &dyn Target, valid: usize, prompt: &[TokenId]) -> Result<Self> {
        let params = SamplingParams::new(warm(|_| ()))?;
        let law_after = |tokens: &[TokenId]| -> Result<Dist> {
            let fed = Fed {
                target,
                params: &params,
                valid,
                chunk: CHUNK,
                prompt: prompt.len(),
                tokens,
            };
            let last = tokens.len().checked_sub(1);
            let last = last.ok_or_else(|| ErrorKind::Judge("an empty prompt".to_owned()))?;
            let law = fed.laws(&[last])?.pop();
            Ok(law.ok_or_else(|| ErrorKind::Judge("a row without a law".to_owned()))?)
        };
        let first = law_after(prompt)?;
        let (mut likely, mut law, mut rest) = (Vec::new(), Vec::new(), 1.0);
        for token in best(&first) {
            let p = first.p(token);
            let second = law_after(&[prompt, &[token]].concat())?;
            let own = best(&second);
            let cells = own.iter().map(|token| p * second.p(*token));
            let before = law.len();
            law.extend(cells);
            let told: f64 = law[before..].iter().sum();
            law.push((p - told).max(0.0));
            rest -= p;
            likely.push((token, own));
        }
        law.push(f64::max(rest, 0.0));
        Ok(Self {
            request: Request {
                params,
                max_tokens: GENERATED,
                ..request(prompt)
            },
            likely,
            law,
        })
    }

    /// Probabilities of the cells.
    #[must_use]
    pub fn law(&self) -> &[f64] {
        &self.law
    }

    /// The cell of two tokens.
    fn cell(&self, first: TokenId, second: TokenId) -> usize {
        let mut begin = 0;
        for (token, own) in &self.likely {
            if *token == first {
                let at = own.iter().position(|token| *token == second);
                return begin + at.unwrap_or(own.len());
            }
            begin += own.len() + 1;
        }
        begin
    }

    /// Has `samples` choices from an engine, by this seed, and judges them.
    ///
    /// # Errors
    /// If the engine refuses the prompt or a choice ends before its second token.
    pub fn judge(
        &self,
        engine: &mut Engine,
        samples: usize,
        settings: judge::Settings,
    ) -> Result<Observed> {
        let request = Request {
            n: samples,
            seed: settings.seed,
            ..self.request.clone()
        };
        let (mut drafted, mut accepted, mut cells) = (0, 0, Vec::with_capacity(samples));
        for report in run(engine, &[request])?.reports {
            let [first, second, ..] = report.tokens[..] else {
                let why = report.error.unwrap_or_default();
                let what = format!("a choice ended after {} tokens: {why}", report.tokens.len());
                return Err(ErrorKind::Judge(what).into());
            };
            cells.push(self.cell(first, second));
            for round in &report.rounds {
                drafted += round.drafted;
                accepted += round.accepted;
            }
        }
        Ok(Observed {
            judgement: judge::gof(&self.law, &cells, settings)?,
            drafted,
            accepted,
        })
    }
}

/// The likeliest tokens, as many as have cells of their own.
fn best(law: &Dist) -> Vec<TokenId> {
    let top = law.top(LIKELY).into_iter();
    top.map(|(token, _)| token).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eyrie_verifier::verdict::Verdict;

    use super::*;
    use crate::{
        draft::Script,
        judge::{Kind, memory::Memory},
        schedule::{EngineOptions, Parts},
    };

    const TARGET: Memory = Memory { vocab: 8, seed: 11 };

    fn engine(target: Memory) -> Engine {
        let parts = Parts {
            target: Arc::new(target),
            text: None,
            eos: Vec::new(),
            valid: 8,
            drafter: Box::new(Script::new(vec![vec![2, 1]])),
            rule: Kind::Match.rule(),
        };
        let options = EngineOptions {
            depth: 2,
            nodes: None,
            max_batch: 32,
            kv_tokens: 1 << 10,
            prefill_chunk: 4,
        };
        Engine::new(parts, options).expect("settings in range")
    }

    #[test]
    fn an_engine_has_its_targets_law_and_no_other() {
        let opening = Opening::new(&TARGET, 8, &[1, 2, 3]).expect("a law");
        assert_eq!(opening.law().len(), LIKELY * (LIKELY + 1) + 1);
        let sum: f64 = opening.law().iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        let settings = judge::Settings::default();
        let judged = |target| opening.judge(&mut engine(target), 10_000, settings);
        let own = judged(TARGET).expect("choices");
        assert_eq!(own.judgement.verdict, Verdict::Pass, "{own:?}");
        assert!(own.accepted > 0 && own.accepted < own.drafted, "{own:?}");
        let other = judged(Memory { seed: 12, ..TARGET }).expect("choices");
        assert_eq!(other.judgement.verdict, Verdict::Fail, "{other:?}");
        let few = opening.judge(&mut engine(TARGET), 100, settings);
        let few = few.expect("choices").judgement;
        assert_eq!(few.verdict, Verdict::Undecided, "{few:?}");
    }

    #[test]
    fn an_empty_prompt_is_an_error() {
        Opening::new(&TARGET, 8, &[]).expect_err("no row");
    }
}
