//! The command line as typed.

use std::{fmt, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Serialize, Serializer};

use super::{
    bench::{BENCH, BenchArgs},
    check_head::{CHECK, CheckHeadArgs},
    convert::ConvertArgs,
    demo::{DEMO, DemoArgs},
    distill::{DISTILL, DistillArgs},
    head_args::HeadArgs,
    request_args::RequestArgs,
    train::{TRAIN, TrainArgs},
    tree::TreeSize,
};

/// Said by `--help`: what happens to logits, and in which order.
const SAMPLING: &str = "\
Sampling, in this order: logit bias; penalties (repetition over prompt and output, positive logits \
divided and negative multiplied; then frequency and presence over the output only; drafts before a \
row count as output); masks (ids beyond the tokenizer, end tokens before --min-tokens); \
temperature; top-k; top-p; min-p. Each filter renormalises. At temperature 0 (or below 1e-5) the \
token is the argmax after bias, penalties and masks. With one --seed the tokens are the same with \
and without drafts under --rule match; under the other rules their law is.

With --host-semantics all of it as in mistral.rs 0.8.1: penalties over prompt and output (frequency \
and presence, then repetition), top-p over the probabilities before top-k, min-p strict, any finite \
temperature, filter, penalty or bias (but a repetition penalty above 0), and the token after the one that \
completed a --stop ends the output, uncut if it is an end token or the last allowed one.";

/// Said by `judge --help`: what is judged, and what the exit status means.
const JUDGE: &str = "\
Sections: exact, output laws by enumeration; accept, the rules over adversarial tables; engine, \
everything that runs over a built-in target; live, the model and drafter given (ngram without \
--drafter or --draft). The p-values of the whole table are corrected together (Holm). Exit status: 0 PASS, \
1 FAIL or a failed run, 2 wrong usage, 3 UNDECIDED (more --samples are needed).";

/// Speculative decoding that emits exactly the tokens of plain decoding.
#[derive(Debug, Parser)]
#[command(name = "eyrie", version)]
pub struct Cli {
    /// What to do; without a word, the demo.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a prompt plainly and with drafts, side by side, and judge the law (without a command, too)
    #[command(after_help = DEMO)]
    Demo(DemoArgs),
    /// Generate text, or token ids for a model without a tokenizer
    #[command(after_help = SAMPLING)]
    Generate(Box<GenerateArgs>),
    /// Measure drafters beside plain decoding, in interleaved runs of the same requests
    #[command(after_help = BENCH)]
    Bench(Box<BenchArgs>),
    /// Print what was understood of a checkpoint
    Inspect(InspectArgs),
    /// Prove or refute the output law of this build on a model: PASS, FAIL or UNDECIDED
    #[command(after_help = JUDGE)]
    Judge(Box<JudgeArgs>),
    /// Say how often an EAGLE head guesses what its target says, and whether something looks wrong
    #[command(after_help = CHECK)]
    CheckHead(CheckHeadArgs),
    /// Write an EAGLE head in another public format: all of it, or an error
    Convert(ConvertArgs),
    /// Have the target answer prompts, and keep what it held at every token, to train a head on
    #[command(after_help = DISTILL)]
    Distill(DistillArgs),
    /// Train a head for a target on its own answers
    #[command(after_help = TRAIN)]
    Train(TrainArgs),
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Model or EAGLE head: directory (config.json and *.safetensors, or a head's *.bin), .gguf file, tiny or
    /// embedded
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// The target of a head
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// What the head's files leave open.
    #[command(flatten)]
    pub head: HeadArgs,
}

/// Flags of the models and of the engine, which several commands share.
#[derive(Clone, Debug, Args)]
pub struct SetupArgs {
    /// Target: directory (config.json, *.safetensors, tokenizer.json), .gguf file, or tiny, which is embedded
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// What guesses; without it none, or what the file of --draft is
    #[arg(long, value_enum)]
    pub drafter: Option<DrafterKind>,
    /// Draft model (as --model), EAGLE head (directory, .gguf file, or embedded, that of tiny), or the
    /// script: a JSON list of token lists, one a round
    #[arg(long, value_name = "PATH")]
    pub draft: Option<PathBuf>,
    /// Drafted tokens a round, 1 to 64 [default: 4]
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub depth: Option<u8>,
    /// Draft trees instead of chains, with a draft model or head: follow the TOPK best tokens, for up
    /// to DEPTH levels (1 to 64 each), and keep the best NODES (1 to 1024); with less NODES than DEPTH, less
    /// levels
    #[arg(long, value_name = "TOPKxDEPTHxNODES", conflicts_with = "depth")]
    pub tree: Option<TreeSize>,
    /// How an EAGLE head is read.
    #[command(flatten)]
    pub head: HeadArgs,
    /// How the drafter picks at temperatures above 0 [default: coupled; drawn with --rule rejection and block]
    #[arg(long, value_enum)]
    pub pick: Option<PickKind>,
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
    /// Most sequences (choices of requests) in one pass of the target
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_batch: u16,
    /// Tokens that the cache holds, up to 16777216 [default: the context for every sequence, up to 2 GiB]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub kv_tokens: Option<u32>,
    /// Most prompt tokens of a sequence in one pass
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_chunk: u32,
    /// Use a draft model whose tokenizer differs from the target's
    #[arg(long)]
    pub allow_tokenizer_mismatch: bool,
}

/// Flags of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Models and engine.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// How drafts are accepted
    #[arg(long, value_enum, default_value_t = RuleKind::Match)]
    pub rule: RuleKind,
    /// Requests to run, one JSON object a line; its fields are the flags below in snake_case
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    pub requests: Option<PathBuf>,
    /// Most requests at once [default: --max-batch]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: Option<u16>,
    /// Print one JSON object for each finished choice
    #[arg(long)]
    pub json: bool,
    /// Write one JSON object for each round
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
    /// Seed; with --requests, of which each line gets its own [default: from the system]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// The request.
    #[command(flatten)]
    pub request: RequestArgs,
}

/// Flags of `judge`.
#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Models and engine.
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Judge this rule only [default: every rule]
    #[arg(long, value_enum)]
    pub rule: Option<RuleKind>,
    /// All seeds are derived from this one
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub seed: u64,
    /// Probability of failing an honest build, over the whole table
    #[arg(long, value_name = "A", allow_negative_numbers = true, default_value_t = 1e-6, value_parser = share)]
    pub alpha: f64,
    /// The total variation that every finding must exclude, or it is undecided
    #[arg(long, value_name = "T", allow_negative_numbers = true, default_value_t = 0.05, value_parser = share)]
    pub tv: f64,
    /// Samples of a finding of the section accept; engine takes a tenth, live a tenth up to 4000
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub samples: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the resolved configuration as JSON, and stop
    #[arg(long)]
    pub print_config: bool,
    /// Judge a build that is broken on purpose
    #[cfg(feature = "mutants")]
    #[arg(long, hide = true)]
    pub mutant: Option<String>,
}

/// What guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DrafterKind {
    /// Nothing: plain decoding
    None,
    /// The longest match of the latest tokens in prompt and output
    Ngram,
    /// A smaller model, or the same one
    Model,
    /// An EAGLE-1 or EAGLE-3 head of the target
    Eagle,
    /// As ngram, and where that has no guess, as eagle
    #[serde(rename = "ngram+eagle")]
    #[value(name = "ngram+eagle")]
    NgramEagle,
    /// A list of drafts from a file
    Script,
}

impl DrafterKind {
    /// Whether it guesses with an EAGLE head.
    pub(super) fn has_head(self) -> bool {
        matches!(self, Self::Eagle | Self::NgramEagle)
    }

    /// Whether it grows trees.
    pub(super) fn branches(self) -> bool {
        self.has_head() || self == Self::Model
    }
}

/// How drafts are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RuleKind {
    /// A draft is kept if it is the token that plain decoding emits there
    Match,
    /// A drawn draft is kept as often as target and drafter overlap; keeps the law, not the tokens of a seed
    Rejection,
    /// As rejection, for the chain as a whole, which keeps more
    Block,
}

/// How the drafter picks at temperatures above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PickKind {
    /// With the random numbers of the target
    Coupled,
    /// The likeliest token
    Greedy,
    /// Drawn from the drafter's law; ngram and script, which have none, draft as ever
    Drawn,
}

/// A type of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Dtype {
    /// As in the checkpoint
    AsStored,
    /// 32-bit floats
    F32,
    /// bfloat16
    Bf16,
    /// 16-bit floats
    F16,
    /// 8 bits in blocks of 32
    #[serde(rename = "q8_0")]
    #[value(name = "q8_0")]
    Q8_0,
    /// 4 bits in blocks of 32
    #[serde(rename = "q4_0")]
    #[value(name = "q4_0")]
    Q4_0,
    /// 4 bits and an offset in blocks of 32
    #[serde(rename = "q4_1")]
    #[value(name = "q4_1")]
    Q4_1,
    /// 4 bits in super-blocks of 256
    #[serde(rename = "q4_k")]
    #[value(name = "q4_k")]
    Q4K,
    /// 6 bits in super-blocks of 256
    #[serde(rename = "q6_k")]
    #[value(name = "q6_k")]
    Q6K,
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| *x > 0.0 && *x < 1.0);
    number.ok_or_else(|| "a number above 0 and below 1 is accepted".to_owned())
}

/// Where a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The slice kernels of this program.
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Threads to compute with: as many as asked for, or as there are cores.
pub(super) fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, usize::from)
}

pub(super) fn device(text: &str) -> Result<Device, String> {
    let accepted = if cfg!(feature = "cuda") {
        "cpu and cuda:N are accepted"
    } else {
        "cpu is accepted"
    };
    let index = text.strip_prefix("cuda").map(|rest| match rest {
        "" => Some(0),
        _ => rest.strip_prefix(':')?.parse().ok(),
    });
    match (text, index) {
        ("cpu", _) => Ok(Device::Cpu),
        (_, Some(Some(index))) if cfg!(feature = "cuda") => Ok(Device::Cuda(index)),
        (_, Some(Some(_))) => Err(format!("this build has no CUDA support; {accepted}")),
        _ => Err(accepted.to_owned()),
    }
}
