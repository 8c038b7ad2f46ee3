//! Flags of `bench`.

use std::{fmt, path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};

use crate::cli::{
    args::{Device, DrafterKind, Dtype, PickKind, RuleKind, device},
    head_args::HeadArgs,
    tree::TreeSize,
};

macro_rules! heads {
    () => {
        "TTFT: time to the first token. TPOT: time per output token after the first delivery. gap: time between \
         deliveries, each of which may bring several tokens. passes: of the target, those over prompts not \
         counted; a pass may serve several requests, each of which calls it a round."
    };
}

/// What the heads of the tables stand for.
pub(super) const HEADS: &str = heads!();

/// Said by `bench --help`: what is run, compared and written.
pub(crate) const BENCH: &str = concat!(
    "Every drafter at every depth is an arm, and plain decoding is always one. For each concurrency and \
     temperature all arms run the same prompts with the same seeds, one after the other within each repeat, in \
     an order that rotates. Under --rule match on the CPU, and at temperature 0, every arm's tokens must be plain \
     decoding's: the first that is not ends the run (exit status 1). A line of --prompts is a JSON object \
     with \"turns\" (a list of a user's messages, all asked in order), \"prompt\" or \"prompt_ids\", and if you \
     like \"id\", \"domain\" and \"category\". DIR/result.json has the provenance, a summary and the raw data. If \
     Ctrl-C or an error ends the runs early, it has the repeats that every arm has, \"complete\": false, and the \
     exit status is 1.\n\nIn the tables: ",
    heads!()
);

/// Flags of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Target: directory (config.json, *.safetensors, tokenizer.json), .gguf file, or tiny, which is embedded
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Drafters: none, ngram, model=PATH, eagle=PATH, ngram+eagle=PATH, script=PATH; without a path that of --draft
    #[arg(
        long,
        value_name = "NAME[=PATH],…",
        value_delimiter = ',',
        required = true
    )]
    pub drafters: Vec<DrafterSpec>,
    /// The file of the drafters that are named without one
    #[arg(long, value_name = "PATH")]
    pub draft: Option<PathBuf>,
    /// Drafted tokens a round, 1 to 64 each [default: 4; with --tree only where chains alone are drafted]
    #[arg(long, value_name = "K,…", value_delimiter = ',', allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub depths: Vec<u8>,
    /// Trees of models and heads, further arms beside the chains of --depths
    #[arg(long, value_name = "TOPKxDEPTHxNODES,…", value_delimiter = ',')]
    pub tree: Vec<TreeSize>,
    /// How EAGLE heads are read.
    #[command(flatten)]
    pub head: HeadArgs,
    /// How drafts are accepted
    #[arg(long, value_enum, default_value_t = RuleKind::Match)]
    pub rule: RuleKind,
    /// How drafters pick at temperatures above 0 [default: coupled; drawn with --rule rejection and block]
    #[arg(long, value_enum)]
    pub pick: Option<PickKind>,
    /// Requests at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub concurrency: Vec<u16>,
    /// Temperatures, 0 to 100
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "0", allow_negative_numbers = true, value_parser = temperature)]
    pub temperature: Vec<f64>,
    /// Files of prompts, a JSON object a line
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub prompts: Vec<PathBuf>,
    /// Of each file, the first so many lines [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub take: Option<u32>,
    /// Prompts go through the chat template [default: if the model has one]
    #[arg(long, conflicts_with = "raw")]
    pub chat: bool,
    /// Prompts are taken as they are
    #[arg(long)]
    pub raw: bool,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// The model's end tokens do not end an answer
    #[arg(long)]
    pub ignore_eos: bool,
    /// Times that every arm runs all prompts
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeats: u16,
    /// Prompts that every arm answers first, uncounted
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..))]
    pub warm_up: u16,
    /// The seed of each request is derived from this one and its place
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub seed: u64,
    /// Weights are converted to this type when loaded
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::AsStored)]
    pub dtype: Dtype,
    /// Weights of the output head are converted to this type instead [default: --dtype]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub head_dtype: Option<Dtype>,
    /// Where the models compute: cpu; or cuda, cuda:N in a build with that feature
    #[arg(long, default_value_t = Device::Cpu, value_parser = device)]
    pub device: Device,
    /// Threads to compute with, 1 to 1024 [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Most sequences in one pass of the target [default: the largest --concurrency]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_batch: Option<u16>,
    /// Tokens that the cache holds, up to 16777216 [default: the context for every sequence, up to 2 GiB]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub kv_tokens: Option<u32>,
    /// Most prompt tokens of a sequence in one pass
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_chunk: u32,
    /// Use a draft model whose tokenizer differs from the target's
    #[arg(long)]
    pub allow_tokenizer_mismatch: bool,
    /// Folder of result.json; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print the summary of result.json as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
}

/// A drafter of the list, with its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrafterSpec {
    /// What guesses.
    pub kind: DrafterKind,
    /// The file it guesses with.
    pub path: Option<PathBuf>,
}

impl DrafterSpec {
    /// The drafter's name without its file.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            DrafterKind::None => "none",
            DrafterKind::Ngram => "ngram",
            DrafterKind::Model => "model",
            DrafterKind::Eagle => "eagle",
            DrafterKind::NgramEagle => "ngram+eagle",
            DrafterKind::Script => "script",
        }
    }

    /// Whether it guesses with a file.
    pub(super) fn reads(&self) -> bool {
        !matches!(self.kind, DrafterKind::None | DrafterKind::Ngram)
    }

    /// Whether it grows trees.
    pub(super) fn branches(&self) -> bool {
        self.kind.branches()
    }
}

impl FromStr for DrafterSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, Some(path)),
            None => (text, None),
        };
        let kind = DrafterKind::from_str(name, false).map_err(|_| {
            "accepted are none, ngram, model=PATH, eagle=PATH, ngram+eagle=PATH and script=PATH"
                .to_owned()
        })?;
        let spec = Self {
            kind,
            path: path.map(PathBuf::from),
        };
        match path {
            Some(_) if !spec.reads() => Err(format!("{name} reads no file")),
            Some("") => Err(format!("{name}= needs a path")),
            _ => Ok(spec),
        }
    }
}

impl fmt::Display for DrafterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match &self.path {
            Some(path) => write!(f, "={}", path.display()),
            None => Ok(()),
        }
    }
}

impl Serialize for DrafterSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|t| (0.0..=100.0).contains(t));
    number.ok_or_else(|| "a number in 0..=100 is accepted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drafter_is_a_name_and_perhaps_a_file() {
        for good in [
            "none",
            "ngram",
            "model",
            "model=a/b",
            "eagle=x=y",
            "ngram+eagle=x",
            "script=s.json",
        ] {
            assert_eq!(good.parse::<DrafterSpec>().expect(good).to_string(), good);
        }
        for (wrong, part) in [
            ("auto", "accepted are none, ngram"),
            ("", "accepted are none, ngram"),
            ("ngram=x", "ngram reads no file"),
            ("none=x", "none reads no file"),
            ("eagle=", "eagle= needs a path"),
            ("ngram+model=x", "ngram+eagle=PATH"),
        ] {
            let error = wrong.parse::<DrafterSpec>().expect_err(wrong);
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
