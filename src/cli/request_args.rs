//! The flags that say what one request wants.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use super::error::usage;
use crate::{
    TokenId,
    request::RequestSpec,
    sample::{RawParams, Semantics},
};

/// Flags of one request, without the seed, which --requests has too.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Request")]
#[group(id = "request", multiple = true)]
pub struct RequestArgs {
    /// Prompt as text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["prompt_file", "prompt_ids"])]
    pub prompt: Option<String>,
    /// Prompt as the text of a file
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_ids")]
    pub prompt_file: Option<PathBuf>,
    /// Prompt as token ids
    #[arg(
        long,
        value_name = "ID,…",
        allow_hyphen_values = true,
        value_delimiter = ','
    )]
    pub prompt_ids: Option<Vec<TokenId>>,
    /// Apply the chat template to the prompt
    #[arg(long, conflicts_with = "prompt_ids")]
    pub chat: bool,
    /// System turn before the prompt
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        requires = "chat"
    )]
    pub system: Option<String>,
    /// Most tokens to generate [default: 256]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tokens: Option<usize>,
    /// 0 to 100 [default: 0, the likeliest token]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Keep the K likeliest tokens [default: 0, off]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<usize>,
    /// Keep the likeliest tokens up to this mass, above 0, at most 1 [default: 1, off]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Drop tokens below this fraction of the likeliest, 0 to 1 [default: 0, off]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f64>,
    /// Above 0 [default: 1, off]
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f64>,
    /// -2 to 2 [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: Option<f64>,
    /// -2 to 2 [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f64>,
    /// Added to a token's logit, -100 to 100 or -inf; repeatable
    #[arg(long, value_name = "ID=V", allow_hyphen_values = true, value_parser = bias)]
    pub logit_bias: Vec<(TokenId, f64)>,
    /// Text that ends the output; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Token that ends the output; repeatable
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    pub stop_id: Vec<TokenId>,
    /// The model's end tokens do not end the output
    #[arg(long)]
    pub ignore_eos: bool,
    /// No end before this many tokens [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_tokens: Option<usize>,
    /// Number of independent choices, 1 to 65536 [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub n: Option<usize>,
    /// Report log-probabilities, and those of the K likeliest tokens
    #[arg(
        long,
        value_name = "K",
        allow_negative_numbers = true,
        requires = "json"
    )]
    pub logprobs: Option<usize>,
    /// Decode this request without drafts
    #[arg(long)]
    pub drafter_off: bool,
    /// Parameters and stop texts mean what they mean in mistral.rs 0.8.1; their ranges are its own
    #[arg(long)]
    pub host_semantics: bool,
}

impl RequestArgs {
    /// The request that the flags ask for.
    ///
    /// # Errors
    /// A prompt file that cannot be read as text; [`Usage`](super::error::Usage) for a token biased twice.
    pub(super) fn spec(&self, seed: Option<u64>) -> Result<RequestSpec> {
        let neutral = RawParams::default();
        let default = RequestSpec::default();
        let mut logit_bias = BTreeMap::new();
        for (id, value) in &self.logit_bias {
            if logit_bias.insert(*id, *value).is_some() {
                return usage("--logit-bias", format!("token {id} is given twice"));
            }
        }
        let file = self.prompt_file.as_ref();
        let file = file.map(|path| {
            std::fs::read_to_string(path)
                .with_context(|| format!("--prompt-file {}", path.display()))
        });
        Ok(RequestSpec {
            id: None,
            prompt: file.transpose()?.or_else(|| self.prompt.clone()),
            prompt_ids: self.prompt_ids.clone(),
            messages: None,
            chat: self.chat,
            system: self.system.clone(),
            max_tokens: self.max_tokens.unwrap_or(default.max_tokens),
            sampling: RawParams {
                temperature: self.temperature.unwrap_or(neutral.temperature),
                top_k: self.top_k.unwrap_or(neutral.top_k),
                top_p: self.top_p.unwrap_or(neutral.top_p),
                min_p: self.min_p.unwrap_or(neutral.min_p),
                repetition_penalty: self
                    .repetition_penalty
                    .unwrap_or(neutral.repetition_penalty),
                presence_penalty: self.presence_penalty.unwrap_or(neutral.presence_penalty),
                frequency_penalty: self.frequency_penalty.unwrap_or(neutral.frequency_penalty),
                logit_bias,
                min_tokens: self.min_tokens.unwrap_or(neutral.min_tokens),
                dry: None,
                semantics: if self.host_semantics {
                    Semantics::Host
                } else {
                    Semantics::Eyrie
                },
            },
            stop: self.stop.clone(),
            stop_id: self.stop_id.clone(),
            ignore_eos: self.ignore_eos,
            seed,
            n: self.n.unwrap_or(default.n),
            logprobs: self.logprobs,
            drafter_off: self.drafter_off,
        })
    }
}

fn bias(text: &str) -> Result<(TokenId, f64), String> {
    let accepted = "ID=V: a token id and a number in -100..=100, or -inf";
    let (id, value) = text.split_once('=').ok_or(accepted)?;
    let id = id.parse().map_err(|_| accepted)?;
    let value = value.parse().map_err(|_| accepted)?;
    Ok((id, value))
}

/// The flag of a field of a request.
pub(super) fn flag(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}
