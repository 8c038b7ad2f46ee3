//! The resolved configuration of a benchmark: what every arm is, and what it is asked.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    args::{BenchArgs, DrafterSpec},
    cells::greedy,
};
use crate::cli::{
    args::{DrafterKind, RuleKind, SetupArgs},
    error::usage,
    head_args::HeadArgs,
    setup::Setup,
    tree::TreeSize,
};

/// Drafted tokens a round where nothing is said.
const DEPTH: u8 = 4;

/// The configuration of a benchmark. Every flag shows in it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plan {
    pub(super) version: &'static str,
    pub(super) drafters: Vec<DrafterSpec>,
    /// Plain decoding first.
    pub(super) arms: Vec<ArmPlan>,
    pub(super) rule: RuleKind,
    pub(super) concurrency: Vec<usize>,
    pub(super) temperature: Vec<f64>,
    pub(super) prompts: Vec<PathBuf>,
    /// Lines of each file; none: all.
    pub(super) take: Option<usize>,
    /// Prompts go through the chat template; none: if the model has one.
    pub(super) chat: Option<bool>,
    pub(super) max_tokens: usize,
    pub(super) ignore_eos: bool,
    pub(super) repeats: usize,
    pub(super) warm_up: usize,
    pub(super) seed: u64,
    pub(super) out: PathBuf,
    pub(super) json: bool,
}

/// One way of decoding: a drafter and how much it drafts.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ArmPlan {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) setup: Setup,
}

impl Plan {
    /// Resolves flags.
    ///
    /// # Errors
    /// [`Usage`](crate::cli::Usage) naming a flag that is out of range or does not apply.
    pub(super) fn new(args: &BenchArgs) -> Result<Self> {
        let drafters = drafters(args)?;
        check_flags(args, &drafters)?;
        let concurrency: Vec<usize> = args.concurrency.iter().map(|n| usize::from(*n)).collect();
        let most = concurrency.iter().copied().max().unwrap_or(1);
        if let Some(given) = args.max_batch.filter(|given| usize::from(*given) < most) {
            let reason = format!("{given} is less than --concurrency {most}");
            return usage("--max-batch", reason);
        }
        let mut arms = Vec::new();
        for spec in &drafters {
            let alone = drafters.iter().filter(|other| other.kind == spec.kind);
            let name = match alone.count() {
                1 => spec.name().to_owned(),
                _ => spec.to_string(),
            };
            for size in sizes(args, spec) {
                arms.push(arm(args, spec, &name, size).with_context(|| about(spec))?);
            }
        }
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            drafters,
            arms,
            rule: args.rule,
            concurrency,
            temperature: args.temperature.clone(),
            prompts: args.prompts.clone(),
            take: args.take.map(|n| n as usize),
            chat: match (args.chat, args.raw) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            max_tokens: args.max_tokens as usize,
            ignore_eos: args.ignore_eos,
            repeats: args.repeats.into(),
            warm_up: args.warm_up.into(),
            seed: args.seed,
            out: args.out.clone(),
            json: args.json,
        })
    }

    /// Plain decoding's settings, which all arms share but for their drafts.
    pub(super) fn plain(&self) -> &Setup {
        &self.arms[0].setup
    }
}

/// How errors call a drafter of the list.
pub(super) fn about(spec: &DrafterSpec) -> String {
    format!("--drafters {spec}")
}

/// The list with plain decoding first and every file filled in.
fn drafters(args: &BenchArgs) -> Result<Vec<DrafterSpec>> {
    let mut all = vec![DrafterSpec {
        kind: DrafterKind::None,
        path: None,
    }];
    let mut used = false;
    for given in &args.drafters {
        let mut spec = given.clone();
        if spec.reads() && spec.path.is_none() {
            let Some(path) = &args.draft else {
                let name = spec.name();
                return usage(
                    "--drafters",
                    format!("{name} needs a file: {name}=PATH or --draft"),
                );
            };
            spec.path = Some(path.clone());
            used = true;
        }
        let plain = spec.kind == DrafterKind::None;
        if all.contains(&spec)
            && !(plain && args.drafters.iter().filter(|g| *g == given).count() == 1)
        {
            return usage("--drafters", format!("{spec} is given twice"));
        }
        if !plain {
            all.push(spec);
        }
    }
    if args.draft.is_some() && !used {
        return usage("--draft", "no drafter of --drafters is without a file");
    }
    Ok(all)
}

/// Refuses flags that apply to no arm, and values given twice.
fn check_flags(args: &BenchArgs, drafters: &[DrafterSpec]) -> Result<()> {
    let any = |wanted: fn(&DrafterSpec) -> bool| drafters.iter().any(wanted);
    if !any(|spec| spec.kind != DrafterKind::None) {
        if !args.depths.is_empty() {
            return usage("--depths", "needs a drafter; there is none");
        }
        if args.pick.is_some() {
            return usage("--pick", "needs a drafter; there is none");
        }
        if args.rule != RuleKind::Match {
            return usage("--rule", "needs a drafter; there is none");
        }
    }
    if args.pick.is_some() {
        if !any(DrafterSpec::branches) {
            return usage("--pick", "needs a drafter that has a law: model or eagle");
        }
        let drawn = args.temperature.iter().map(|t| Ok(!greedy(*t)?));
        if !drawn.collect::<Result<Vec<_>>>()?.contains(&true) {
            return usage("--pick", "needs a --temperature above 0");
        }
    }
    if !args.tree.is_empty() && !any(DrafterSpec::branches) {
        return usage(
            "--tree",
            "needs a drafter that grows trees: model, eagle or ngram+eagle",
        );
    }
    if let (false, Some(flag)) = (any(|s| s.kind.has_head()), args.head.given()) {
        return usage(flag, "needs the drafter eagle or ngram+eagle");
    }
    if args.allow_tokenizer_mismatch && !any(|spec| spec.kind == DrafterKind::Model) {
        return usage("--allow-tokenizer-mismatch", "needs the drafter model");
    }
    twice("--depths", &args.depths)?;
    twice("--tree", &args.tree)?;
    twice("--concurrency", &args.concurrency)?;
    twice("--temperature", &args.temperature)?;
    twice("--prompts", &args.prompts)
}

fn twice<T: PartialEq + std::fmt::Debug>(flag: &str, values: &[T]) -> Result<()> {
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            return usage(flag, format!("{value:?} is given twice"));
        }
    }
    Ok(())
}

/// How much a drafter drafts.
#[derive(Clone, Copy, Debug)]
enum Size {
    Nothing,
    Chain(u8),
    Tree(TreeSize),
}

/// The arms of one drafter.
fn sizes(args: &BenchArgs, spec: &DrafterSpec) -> Vec<Size> {
    if spec.kind == DrafterKind::None {
        return vec![Size::Nothing];
    }
    let mut sizes: Vec<Size> = args.depths.iter().copied().map(Size::Chain).collect();
    if spec.branches() {
        sizes.extend(args.tree.iter().copied().map(Size::Tree));
    }
    if sizes.is_empty() {
        sizes.push(Size::Chain(DEPTH));
    }
    sizes
}

fn arm(args: &BenchArgs, spec: &DrafterSpec, name: &str, size: Size) -> Result<ArmPlan> {
    let drafts = spec.kind != DrafterKind::None;
    let largest = args.concurrency.iter().copied().max().unwrap_or(1);
    let setup = SetupArgs {
        model: args.model.clone(),
        drafter: Some(spec.kind),
        draft: spec.path.clone(),
        depth: match size {
            Size::Chain(depth) => Some(depth),
            _ => None,
        },
        tree: match size {
            Size::Tree(tree) => Some(tree),
            _ => None,
        },
        head: if spec.kind.has_head() {
            args.head
        } else {
            HeadArgs::default()
        },
        pick: args.pick.filter(|_| drafts),
        dtype: args.dtype,
        head_dtype: args.head_dtype,
        device: args.device,
        threads: args.threads,
        max_batch: args.max_batch.unwrap_or(largest),
        kv_tokens: args.kv_tokens,
        prefill_chunk: args.prefill_chunk,
        allow_tokenizer_mismatch: args.allow_tokenizer_mismatch && spec.kind == DrafterKind::Model,
    };
    Ok(ArmPlan {
        name: match size {
            Size::Nothing => name.to_owned(),
            Size::Chain(depth) => format!("{name} depth {depth}"),
            Size::Tree(tree) => format!("{name} tree {tree}"),
        },
        setup: Setup::new(&setup, &[args.rule], DrafterKind::None)?,
    })
}
