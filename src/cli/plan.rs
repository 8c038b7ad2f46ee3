//! The resolved configuration: printed by `--print-config` and stored with each result.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    args::{Device, DrafterKind, Dtype, GenerateArgs, PickKind, RuleKind},
    error::usage,
    request_args::flag,
};
use crate::request::RequestSpec;

/// Most bytes of keys and values that the default of `--kv-tokens` asks for.
const KV_BYTES: usize = 2 << 30;

/// The configuration of a run. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// This program's version.
    pub version: &'static str,
    /// The target, as given.
    pub model: PathBuf,
    /// What guesses.
    pub drafter: DrafterKind,
    /// The file it guesses with.
    pub draft: Option<PathBuf>,
    /// Drafted tokens a round; none without a drafter.
    pub depth: Option<u8>,
    /// How drafts are accepted.
    pub rule: RuleKind,
    /// How the drafter picks; none without a drafter.
    pub pick: Option<PickKind>,
    /// Type of the weights.
    pub dtype: Dtype,
    /// Type of the output head's weights.
    pub head_dtype: Dtype,
    /// Where it computes.
    pub device: Device,
    /// `yes` if a row's bits do not depend on the rows it is fed with: by construction on the CPU,
    /// measured when the target is loaded elsewhere. If `no`, the law is promised, not the tokens.
    pub row_invariant: &'static str,
    /// Threads.
    pub threads: usize,
    /// Most sequences in a pass.
    pub max_batch: usize,
    /// Tokens that the cache holds; known once the target's shape is.
    pub kv_tokens: Option<usize>,
    /// Most prompt tokens of a sequence in a pass.
    pub prefill_chunk: usize,
    /// A draft model with another tokenizer is used.
    pub allow_tokenizer_mismatch: bool,
    /// File of requests.
    pub requests: Option<PathBuf>,
    /// Most requests at once.
    pub concurrency: usize,
    /// The seed of the flags, from which lines of a file get theirs.
    pub seed: Option<u64>,
    /// Results are JSON.
    pub json: bool,
    /// File of rounds.
    pub trace: Option<PathBuf>,
    /// File of the prompt.
    pub prompt_file: Option<PathBuf>,
    /// The request of the flags, or the one that a result belongs to.
    pub request: Option<RequestSpec>,
}

impl Plan {
    /// Resolves flags.
    ///
    /// # Errors
    /// [`Usage`](super::error::Usage) naming a flag that is out of range or does not apply; a file
    /// that cannot be read.
    pub(super) fn new(args: &GenerateArgs) -> Result<Self> {
        let drafter = drafter(args)?;
        let drafts = drafter != DrafterKind::None;
        if !drafts && args.depth.is_some() {
            return usage("--depth", "needs a drafter; there is none");
        }
        if !drafts && args.pick.is_some() {
            return usage("--pick", "needs a drafter; there is none");
        }
        let pick = pick(args)?;
        if args.allow_tokenizer_mismatch && drafter != DrafterKind::Model {
            return usage("--allow-tokenizer-mismatch", "needs --drafter model");
        }
        if args.concurrency.is_some() && args.requests.is_none() {
            return usage("--concurrency", "needs --requests");
        }
        for (flag, dtype) in [
            ("--dtype", Some(args.dtype)),
            ("--head-dtype", args.head_dtype),
        ] {
            let floats = [Dtype::AsStored, Dtype::F32, Dtype::Bf16, Dtype::F16];
            if args.device != Device::Cpu && !dtype.is_none_or(|dtype| floats.contains(&dtype)) {
                let device = args.device;
                let reason = format!("as-stored, f32, bf16 and f16 are accepted on {device}");
                return usage(flag, reason);
            }
        }
        let max_batch = usize::from(args.max_batch);
        let concurrency = args.concurrency.map_or(max_batch, usize::from);
        if concurrency > max_batch {
            let reason = format!("{concurrency} is more than --max-batch {max_batch}");
            return usage("--concurrency", reason);
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            model: args.model.clone(),
            drafter,
            draft: args.draft.clone(),
            depth: drafts.then(|| args.depth.unwrap_or(4)),
            rule: args.rule,
            pick: drafts.then_some(pick),
            dtype: args.dtype,
            head_dtype: args.head_dtype.unwrap_or(args.dtype),
            device: args.device,
            row_invariant: word(true),
            threads: args.threads.map_or_else(cores, usize::from),
            max_batch,
            kv_tokens: args.kv_tokens.map(|n| n as usize),
            prefill_chunk: args.prefill_chunk as usize,
            allow_tokenizer_mismatch: args.allow_tokenizer_mismatch,
            requests: args.requests.clone(),
            concurrency,
            seed: args.seed,
            json: args.json,
            trace: args.trace.clone(),
            prompt_file: args.request.prompt_file.clone(),
            request: request(args)?,
        })
    }

    /// Sets the tokens of a cache, which depend on the target's `context` positions and the `width`
    /// bytes of keys and values a token (of all models), and returns them. Without `--kv-tokens`, every sequence gets a whole context, up to 2 GiB.
    ///
    /// # Errors
    /// [`Usage`](super::error::Usage) for more memory than there is.
    pub(super) fn fit(&mut self, context: usize, width: usize) -> Result<usize> {
        let most = (KV_BYTES / width.max(1)).max(1);
        let whole = context.saturating_mul(self.max_batch);
        let tokens = *self.kv_tokens.get_or_insert(whole.min(most));
        let bytes = tokens.saturating_mul(width);
        if self.device == Device::Cpu && Vec::<u8>::new().try_reserve_exact(bytes).is_err() {
            let reason = format!(
                "{tokens} tokens need {} MiB, more than there is",
                bytes >> 20
            );
            return usage("--kv-tokens", reason);
        }
        Ok(tokens)
    }

    /// Notes what was found of the target.
    pub(super) fn measured(&mut self, row_invariant: bool) {
        self.row_invariant = word(row_invariant);
    }

    /// How errors call the file of rounds.
    pub(super) fn trace_name(&self) -> String {
        let path = self.trace.as_deref().unwrap_or(Path::new(""));
        format!("--trace {}", path.display())
    }

    /// The configuration of the result of one request.
    pub(super) fn of(&self, request: Option<RequestSpec>) -> Self {
        Self {
            request,
            ..self.clone()
        }
    }
}

fn word(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

fn request(args: &GenerateArgs) -> Result<Option<RequestSpec>> {
    if args.requests.is_some() {
        return Ok(None);
    }
    let spec = args.request.spec(args.seed)?;
    if spec.prompt.is_none() && spec.prompt_ids.is_none() {
        return usage(
            "--prompt",
            "missing; give one of --prompt, --prompt-file, --prompt-ids and --requests",
        );
    }
    match spec.check() {
        Ok(_) => Ok(Some(spec)),
        Err(error) => {
            let field = error.field().unwrap_or_default();
            let text = error.to_string();
            let rest = text.strip_prefix(field).unwrap_or(&text);
            Err(super::error::Usage(format!("{}{rest}", flag(field))).into())
        }
    }
}

/// The pick that the rule needs: drafts to be judged by the law they were drawn from have to be drawn.
fn pick(args: &GenerateArgs) -> Result<PickKind> {
    let needed = if args.rule == RuleKind::Match {
        PickKind::Coupled
    } else {
        PickKind::Drawn
    };
    let given = args.pick.unwrap_or(needed);
    match (needed, given) {
        (PickKind::Coupled, PickKind::Drawn) => {
            usage("--pick", "drawn needs --rule rejection or block")
        }
        (PickKind::Drawn, PickKind::Coupled | PickKind::Greedy) => {
            let reason = "--rule rejection and block judge drawn drafts; drawn is accepted";
            usage("--pick", reason)
        }
        (_, pick) => Ok(pick),
    }
}

fn drafter(args: &GenerateArgs) -> Result<DrafterKind> {
    match (args.drafter, &args.draft) {
        (None, None) => Ok(DrafterKind::None),
        (None, Some(path)) => kind_of(path),
        (Some(DrafterKind::None), Some(_)) => {
            usage("--draft", "cannot be used with --drafter none")
        }
        (Some(DrafterKind::Ngram), Some(_)) => usage("--draft", "--drafter ngram reads no file"),
        (Some(DrafterKind::Model), None) => usage("--draft", "missing; --drafter model needs it"),
        (Some(DrafterKind::Script), None) => usage("--draft", "missing; --drafter script needs it"),
        (Some(kind), _) => Ok(kind),
    }
}

/// What the file of `--draft` is.
fn kind_of(path: &Path) -> Result<DrafterKind> {
    if path.is_dir() {
        return Ok(DrafterKind::Model);
    }
    let about = || format!("--draft {}", path.display());
    let mut head = [0; 64];
    let read = File::open(path)
        .and_then(|mut file| file.read(&mut head))
        .with_context(about)?;
    let head = &head[..read];
    if head.starts_with(b"GGUF") {
        return Ok(DrafterKind::Model);
    }
    if head.trim_ascii_start().starts_with(b"[") {
        return Ok(DrafterKind::Script);
    }
    let reason = "is neither a model directory, a .gguf file nor a JSON list of token lists";
    usage(&about(), reason)
}
