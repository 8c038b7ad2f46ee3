//! The models and the engine of a run, resolved.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    args::{Device, DrafterKind, Dtype, PickKind, RuleKind, SetupArgs, threads},
    embedded,
    error::usage,
    head_args::HeadArgs,
    tree::TreeSize,
};
use crate::{draft::eagle::load::is_head, schedule::EngineOptions};

/// Most bytes of keys and values that the default of `--kv-tokens` asks for.
const KV_BYTES: usize = 2 << 30;

/// Models and engine. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The target, as given.
    pub model: PathBuf,
    /// What guesses.
    pub drafter: DrafterKind,
    /// The file it guesses with.
    pub draft: Option<PathBuf>,
    /// Drafted tokens a round, or levels of a tree; none without a drafter.
    pub depth: Option<u8>,
    /// Sizes of its trees; none if it drafts chains.
    pub tree: Option<TreeSize>,
    /// How an EAGLE head is read.
    #[serde(flatten)]
    pub head: HeadArgs,
    /// How the drafter picks; none without a drafter, and where it is each rule's own.
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
}

impl Setup {
    /// Resolves flags, for these rules, with what guesses where nothing is said.
    ///
    /// # Errors
    /// [`Usage`](super::error::Usage) naming a flag that is out of range or does not apply; a file
    /// that cannot be read.
    pub(super) fn new(args: &SetupArgs, rules: &[RuleKind], default: DrafterKind) -> Result<Self> {
        let drafter = drafter(args, default)?;
        let drafts = drafter != DrafterKind::None;
        if !drafts && args.depth.is_some() {
            return usage("--depth", "needs a drafter; there is none");
        }
        tree(args, drafter, rules)?;
        if let (false, Some(flag)) = (drafter.has_head(), args.head.given()) {
            return usage(flag, "needs --drafter eagle");
        }
        if !drafts && args.pick.is_some() {
            return usage("--pick", "needs a drafter; there is none");
        }
        let pick = pick(args, rules)?;
        if args.allow_tokenizer_mismatch && drafter != DrafterKind::Model {
            return usage("--allow-tokenizer-mismatch", "needs --drafter model");
        }
        floats(args)?;
        Ok(Self {
            model: args.model.clone(),
            drafter,
            draft: args.draft.clone(),
            depth: drafts.then(|| args.tree.map_or(args.depth.unwrap_or(4), |tree| tree.depth)),
            tree: args.tree,
            head: args.head,
            pick: pick.filter(|_| drafts),
            dtype: args.dtype,
            head_dtype: args.head_dtype.unwrap_or(args.dtype),
            device: args.device,
            row_invariant: word(true),
            threads: threads(args.threads),
            max_batch: usize::from(args.max_batch),
            kv_tokens: args.kv_tokens.map(|n| n as usize),
            prefill_chunk: args.prefill_chunk as usize,
            allow_tokenizer_mismatch: args.allow_tokenizer_mismatch,
        })
    }

    /// The engine's settings, with a cache of so many tokens.
    pub(super) fn options(&self, kv_tokens: usize) -> EngineOptions {
        EngineOptions {
            depth: self.depth.map_or(1, usize::from),
            nodes: self.tree.map(|tree| tree.nodes.into()),
            max_batch: self.max_batch,
            kv_tokens,
            prefill_chunk: self.prefill_chunk,
        }
    }

    /// Sets the tokens of a cache, which depend on the target's `context` positions and the `width`
    /// bytes of keys and values a token (of all models), and returns them. Without `--kv-tokens`, every
    /// sequence gets a whole context, up to 2 GiB; the `beside` bytes of drafts count, up to half of it.
    ///
    /// # Errors
    /// [`Usage`](super::error::Usage) for more memory than there is.
    pub(super) fn fit(&mut self, context: usize, width: usize, beside: usize) -> Result<usize> {
        let most = ((KV_BYTES - beside.min(KV_BYTES / 2)) / width.max(1)).max(1);
        let whole = context.saturating_mul(self.max_batch);
        let tokens = *self.kv_tokens.get_or_insert(whole.min(most));
        let bytes = tokens.saturating_mul(width).saturating_add(beside);
        if self.device == Device::Cpu && Vec::<u8>::new().try_reserve_exact(bytes).is_err() {
            let reason = format!(
                "{tokens} tokens, and drafts ({} MiB for --max-batch {}), need {} MiB, more than there is",
                beside >> 20,
                self.max_batch,
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
}

/// A promise, in a word.
fn word(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

/// Refuses types that only the CPU computes with, elsewhere.
fn floats(args: &SetupArgs) -> Result<()> {
    let floats = [Dtype::AsStored, Dtype::F32, Dtype::Bf16, Dtype::F16];
    for (flag, dtype) in [
        ("--dtype", Some(args.dtype)),
        ("--head-dtype", args.head_dtype),
    ] {
        if args.device != Device::Cpu && !dtype.is_none_or(|dtype| floats.contains(&dtype)) {
            let device = args.device;
            let reason = format!("as-stored, f32, bf16 and f16 are accepted on {device}");
            return usage(flag, reason);
        }
    }
    Ok(())
}

/// Refuses a tree where nothing grows one, or nothing can judge it.
fn tree(args: &SetupArgs, drafter: DrafterKind, rules: &[RuleKind]) -> Result<()> {
    let reason = match (args.tree, drafter) {
        (None, _) => return Ok(()),
        (_, DrafterKind::None) => "needs a drafter; there is none",
        (_, DrafterKind::Ngram) => "--drafter ngram drafts chains; model and eagle grow trees",
        (_, DrafterKind::Script) => "--drafter script drafts chains; model and eagle grow trees",
        _ if rules == [RuleKind::Block] => {
            "--rule block judges chains; match and rejection are accepted"
        }
        _ => return Ok(()),
    };
    usage("--tree", reason)
}

/// The pick given, if every rule can judge it; else the one that all rules need, if it is one: drafts to
/// be judged by the law they were drawn from have to be drawn.
fn pick(args: &SetupArgs, rules: &[RuleKind]) -> Result<Option<PickKind>> {
    let needed = |rule: &RuleKind| match rule {
        RuleKind::Match => PickKind::Coupled,
        RuleKind::Rejection | RuleKind::Block => PickKind::Drawn,
    };
    let Some(given) = args.pick else {
        let mut all = rules.iter().map(needed);
        let first = all.next();
        return Ok(first.filter(|first| all.all(|other| other == *first)));
    };
    for rule in rules {
        match (needed(rule), given) {
            (PickKind::Coupled, PickKind::Drawn) => {
                return usage("--pick", "drawn needs --rule rejection or block");
            }
            (PickKind::Drawn, PickKind::Coupled | PickKind::Greedy) => {
                let reason = "--rule rejection and block judge drawn drafts; drawn is accepted";
                return usage("--pick", reason);
            }
            _ => {}
        }
    }
    Ok(Some(given))
}

fn drafter(args: &SetupArgs, default: DrafterKind) -> Result<DrafterKind> {
    match (args.drafter, &args.draft) {
        (None, None) => Ok(default),
        (None, Some(path)) => kind_of(path),
        (Some(DrafterKind::None), Some(_)) => {
            usage("--draft", "cannot be used with --drafter none")
        }
        (Some(DrafterKind::Ngram), Some(_)) => usage("--draft", "--drafter ngram reads no file"),
        (Some(DrafterKind::Model), None) => usage("--draft", "missing; --drafter model needs it"),
        (Some(DrafterKind::Eagle), None) => usage("--draft", "missing; --drafter eagle needs it"),
        (Some(DrafterKind::NgramEagle), None) => {
            usage("--draft", "missing; --drafter ngram+eagle needs it")
        }
        (Some(DrafterKind::Script), None) => usage("--draft", "missing; --drafter script needs it"),
        (Some(kind), _) => Ok(kind),
    }
}

/// What the file of `--draft` is: a head by its tensors, else a model or a script by its beginning.
pub(super) fn kind_of(path: &Path) -> Result<DrafterKind> {
    let files = embedded::files(path);
    let about = || format!("--draft {}", path.display());
    let network = || -> Result<DrafterKind> {
        let head = is_head(files.clone()).with_context(about)?;
        Ok(if head {
            DrafterKind::Eagle
        } else {
            DrafterKind::Model
        })
    };
    if files.is_dir() {
        return network();
    }
    let mut head = [0; 64];
    let read = files
        .whole()
        .open()
        .and_then(|(mut file, _)| file.read(&mut head))
        .with_context(about)?;
    let head = &head[..read];
    if head.starts_with(b"GGUF") {
        return network();
    }
    if head.trim_ascii_start().starts_with(b"[") {
        return Ok(DrafterKind::Script);
    }
    let reason =
        "is neither a model or head directory, a .gguf file nor a JSON list of token lists";
    usage(&about(), reason)
}
