//! The models of a benchmark: one target for every arm, each drafter's file loaded once.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::plan::{ArmPlan, Plan, about};
use crate::{
    cli::{
        args::{Device, DrafterKind, PickKind, RuleKind},
        models::{Guesser, Loaded, Models, Opened},
        setup::Setup,
    },
    judge::Kind,
    kernels::{Format, Weight},
    model::{self, Target, load::Checkpoint},
    schedule::{Engine, EngineOptions, Parts},
};

/// A way of decoding, ready to run.
#[derive(Debug)]
pub(super) struct Arm {
    loaded: Loaded,
    options: EngineOptions,
    pick: PickKind,
}

/// Everything loaded.
#[derive(Debug)]
pub(super) struct Arms {
    pub(super) opened: Opened,
    pub(super) target: Arc<dyn Target>,
    pub(super) kv_tokens: usize,
    /// In the order of the plan.
    pub(super) arms: Vec<Arm>,
    pub(super) warnings: Vec<String>,
}

/// What the checkpoints' headers say, before any weight is read.
#[derive(Debug)]
pub(super) struct Found {
    models: Vec<Models>,
    kv_tokens: usize,
    pub(super) warnings: Vec<String>,
}

impl Found {
    /// Opens the models of every arm. Their caches get the same size: the smallest that one asks for.
    pub(super) fn open(plan: &mut Plan) -> Result<Self> {
        let mut models = Vec::new();
        let mut warnings: Vec<String> = Vec::new();
        for arm in &mut plan.arms {
            let opened = Models::open(&mut arm.setup).with_context(|| about_arm(arm))?;
            let new = opened
                .warnings
                .iter()
                .filter(|text| !warnings.contains(text));
            let new: Vec<_> = new.cloned().collect();
            warnings.extend(new);
            models.push(opened);
        }
        let kv_tokens = models.iter().map(|models| models.kv_tokens).min();
        let kv_tokens = kv_tokens.unwrap_or_default();
        for (arm, models) in plan.arms.iter_mut().zip(&mut models) {
            arm.setup.kv_tokens = Some(kv_tokens);
            models.kv_tokens = kv_tokens;
        }
        Ok(Self {
            models,
            kv_tokens,
            warnings,
        })
    }

    /// The target, before its weights.
    pub(super) fn target(&self) -> &Opened {
        &self.models[0].target
    }

    /// Notes what has to be measured of the target; nothing on the CPU.
    pub(super) fn measure(&self, plan: &mut Plan) -> Result<()> {
        let (first, rest) = plan.arms.split_at_mut(1);
        self.models[0].measure(&mut first[0].setup)?;
        for arm in rest {
            arm.setup.row_invariant = first[0].setup.row_invariant;
        }
        Ok(())
    }

    /// Loads the weights.
    pub(super) fn load(self, plan: &mut Plan) -> Result<Arms> {
        let target = self.models[0].target.load(plan.plain())?;
        let mut arms = Vec::new();
        let mut guessers: Vec<(DrafterKind, Option<std::path::PathBuf>, Guesser)> = Vec::new();
        for (arm, models) in plan.arms.iter_mut().zip(&self.models) {
            arm.setup.measured(target.row_invariant());
            let setup = &arm.setup;
            let same = guessers
                .iter()
                .find(|(kind, path, _)| *kind == setup.drafter && *path == setup.draft);
            let guesser = match same {
                Some((_, _, guesser)) => guesser.clone(),
                None => {
                    let guesser = models.guesser(setup, &target);
                    let guesser = guesser.with_context(|| about_arm(arm))?;
                    guessers.push((setup.drafter, setup.draft.clone(), guesser.clone()));
                    guesser
                }
            };
            arms.push(Arm {
                loaded: models.with(setup, Arc::clone(&target), guesser),
                options: setup.options(self.kv_tokens),
                pick: setup.pick.unwrap_or(PickKind::Coupled),
            });
        }
        let mut models = self.models;
        Ok(Arms {
            opened: models.swap_remove(0).target,
            target,
            kv_tokens: self.kv_tokens,
            arms,
            warnings: self.warnings,
        })
    }
}

impl Arms {
    /// A fresh engine for each arm.
    pub(super) fn engines(&self, rule: RuleKind) -> Result<Vec<Engine>> {
        let engine = |arm: &Arm| {
            let parts = Parts {
                target: Arc::clone(&self.target),
                text: self.opened.tokenizer.clone(),
                eos: self.opened.eos(),
                valid: self.opened.valid(),
                drafter: arm.loaded.drafter(arm.pick.into()),
                rule: Kind::from(rule).rule(),
            };
            Ok(Engine::new(parts, arm.options)?)
        };
        self.arms.iter().map(engine).collect()
    }
}

fn about_arm(arm: &ArmPlan) -> String {
    let spec = super::args::DrafterSpec {
        kind: arm.setup.drafter,
        path: arm.setup.draft.clone(),
    };
    about(&spec)
}

/// Bytes of weights that a pass reads: every matrix once as it lies in memory, of the embedding a few
/// rows.
pub(super) fn weight_bytes(checkpoint: &Checkpoint, setup: &Setup) -> usize {
    let tied = checkpoint.config().tied;
    let [dtype, head]: [model::Dtype; 2] = [setup.dtype, setup.head_dtype].map(Into::into);
    let bytes = |name: &str| {
        let (stored, shape) = checkpoint.shape(name)?;
        let [rows, width] = *shape else {
            return Some(shape.iter().product::<usize>() * size_of::<f32>());
        };
        let embedding = name == "model.embed_tokens.weight";
        if embedding && !tied {
            return None;
        }
        let to = if embedding || name == "lm_head.weight" {
            head
        } else {
            dtype
        };
        let format: Format = match to {
            model::Dtype::AsStored => stored.format()?,
            model::Dtype::To(format) => format,
        };
        if setup.device == Device::Cpu {
            return Weight::packed_bytes(format, rows, width);
        }
        // What a device cannot multiply as it is becomes floats there.
        let format = match format {
            Format::F32 | Format::F16 | Format::BF16 => format,
            _ => Format::F32,
        };
        Some(rows * format.row_bytes(width)?)
    };
    checkpoint.names().filter_map(bytes).sum()
}
