//! Logits to probabilities to a token, in exactly one place.
//!
//! A [`Chain`] turns one row of logits and the [`History`] before it into a law, a [`Dist`];
//! [`choose()`] turns a law and the index of the token into the token. The same two functions serve
//! target rows and draft rows, with and without speculation: that is what makes the two runs equal.
//!
//! # Order of the chain
//!
//! 1. logit bias;
//! 2. penalties: on repeated passages ([`Dry`]); repetition over prompt and output as in Hugging
//!    Face (a positive logit is divided, a negative one multiplied, once however often the token
//!    occurred), then frequency (times the count) and presence (once) over the output only. Drafts
//!    between the anchor and the row count as output;
//! 3. masks: ids the tokenizer does not have, and the end tokens while `t < min_tokens`; then what
//!    else changes scores ([`Processor`]);
//! 4. temperature;
//! 5. top-k, 6. top-p, 7. min-p. Each renormalises what the previous one left. Ties are broken by
//!    the lower id, and top-p keeps the token that crosses.
//!
//! Temperature 0 (below 1e-5) is the argmax after step 3, ties to the lower id.
//!
//! This is the meaning of [`Semantics::Eyrie`]; requests through a host keep the host's penalties
//! and filters, [`Semantics::Host`].
//!
//! # Where other engines differ
//!
//! Engines that divide by the temperature *last* (llama.cpp's default order) filter the law at
//! temperature 1: of the logits `[3, 2, 1]` with top-p 0.8 and temperature 0.5 they keep two tokens,
//! this crate and Hugging Face keep one. Engines that cut top-p out of the law *before* top-k
//! without renormalising (candle's `TopKThenTopP`) keep three tokens of `[.4, .3, .2, .1]` with
//! k = 3, p = 0.75, where renormalising keeps two. A comparison with another engine has to say which
//! order its baseline has.
//!
//! ```
//! use eyrie::sample::{Chain, Counts, History, RawParams, SamplingParams};
//!
//! let raw = RawParams { temperature: 0.5, top_p: 0.8, ..RawParams::default() };
//! let chain = Chain::new(SamplingParams::new(raw)?, 3, 3, vec![])?;
//! let history = History { counts: &Counts::new(&[]), tokens: &[], path: &[] };
//! let law = chain.law(&[3.0, 2.0, 1.0], &history)?;
//! assert_eq!(law.iter().collect::<Vec<_>>(), [(0, 0.0)]);
//! # Ok::<(), eyrie::Error>(())
//! ```
//!
//! # Randomness
//!
//! Nothing here owns a generator. Every random number is a pure function of a seed and a [`Key`],
//! asked for through [`Draws`]; [`Keyed`] is the production answer. See [`Key`] for what the keys are
//! and why each part of them is needed.

mod buffer;
mod chain;
mod choose;
mod contest;
mod counts;
mod dist;
mod draws;
mod dry;
mod filter;
#[cfg(feature = "mutants")]
mod misreading;
mod params;
mod philox;
mod processor;
mod row;
mod score;
mod seed;
mod semantics;
mod wide;

#[cfg(test)]
mod tests;

pub use chain::{Chain, Fault};
pub use choose::{choose, choose_best};
pub use counts::{Counts, History};
pub use dist::Dist;
pub use draws::{Draws, Key, Keyed, Purpose};
pub use dry::Dry;
#[cfg(feature = "mutants")]
pub use misreading::Misreading;
#[cfg(feature = "mutants")]
pub(crate) use misreading::without_filters;
pub use params::{ParamError, RawParams, SamplingParams};
pub use processor::Processor;
pub use seed::{derive_choice, derive_line};
pub use semantics::Semantics;
