//! The resolved configuration: printed by `--print-config` and stored with each result.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::{
    args::{DrafterKind, GenerateArgs, RuleKind},
    error::usage,
    request_args::flag,
    setup::Setup,
};
use crate::request::RequestSpec;

/// The configuration of a run. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// This program's version.
    pub version: &'static str,
    /// Models and engine.
    #[serde(flatten)]
    pub setup: Setup,
    /// How drafts are accepted.
    pub rule: RuleKind,
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
        let setup = Setup::new(&args.setup, &[args.rule], DrafterKind::None)?;
        if args.concurrency.is_some() && args.requests.is_none() {
            return usage("--concurrency", "needs --requests");
        }
        let max_batch = setup.max_batch;
        let concurrency = args.concurrency.map_or(max_batch, usize::from);
        if concurrency > max_batch {
            let reason = format!("{concurrency} is more than --max-batch {max_batch}");
            return usage("--concurrency", reason);
        }
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            setup,
            rule: args.rule,
            requests: args.requests.clone(),
            concurrency,
            seed: args.seed,
            json: args.json,
            trace: args.trace.clone(),
            prompt_file: args.request.prompt_file.clone(),
            request: request(args)?,
        })
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
