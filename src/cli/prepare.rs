//! From flags to an engine's parts: for `generate`, and for programs that embed the engine.

use std::sync::Arc;

use anyhow::Result;

use super::{
    args::{DrafterKind, PickKind, RuleKind, SetupArgs},
    models::Models,
    setup::Setup,
};
use crate::{
    judge::Kind,
    model::Target,
    request::Resolver,
    schedule::{EngineOptions, Parts},
};

/// Models that were loaded, and everything that an engine over them is made of.
#[derive(Debug)]
pub struct Prepared {
    /// For [`Engine::new`](crate::schedule::Engine::new).
    pub parts: Parts,
    /// Its settings.
    pub options: EngineOptions,
    /// What turns prompts into tokens: tokenizer, chat template and limits.
    pub resolver: Resolver,
    /// The flags, resolved.
    pub setup: Setup,
    /// What was left out, not understood, or taken by default, one line each.
    pub warnings: Vec<String>,
}

/// Opens and loads what the flags name. Without a drafter and a draft file there are no drafts.
///
/// ```no_run
/// use clap::Parser;
/// use eyrie::{cli::{RuleKind, SetupArgs, prepare}, schedule::Engine};
///
/// #[derive(Parser)]
/// struct Flags {
///     #[command(flatten)]
///     setup: SetupArgs,
/// }
///
/// let prepared = prepare(&Flags::parse().setup, RuleKind::Match)?;
/// let engine = Engine::new(prepared.parts, prepared.options)?;
/// # anyhow::Ok(())
/// ```
///
/// # Errors
/// [`Usage`](super::Usage) naming a flag that is out of range or does not apply; a file that cannot
/// be read or understood, models that do not fit each other.
pub fn prepare(args: &SetupArgs, rule: RuleKind) -> Result<Prepared> {
    let mut setup = Setup::new(args, &[rule], DrafterKind::None)?;
    let models = Models::open(&mut setup)?;
    load(models, setup, rule)
}

/// Loads the weights of models that were opened for `setup`.
pub(super) fn load(models: Models, mut setup: Setup, rule: RuleKind) -> Result<Prepared> {
    let loaded = models.load(&setup)?;
    let target: Arc<dyn Target> = Arc::clone(&loaded.target);
    setup.measured(target.row_invariant());
    let pick = setup.pick.unwrap_or(PickKind::Coupled);
    let (opened, kv_tokens) = (models.target, models.kv_tokens);
    let (eos, valid) = (opened.eos(), opened.valid());
    Ok(Prepared {
        options: setup.options(kv_tokens),
        resolver: Resolver {
            tokenizer: opened.tokenizer.clone(),
            chat: opened.chat,
            valid,
            context: target.context(),
            kv_tokens,
        },
        parts: Parts {
            target,
            text: opened.tokenizer,
            eos,
            valid,
            drafter: loaded.drafter(pick.into()),
            rule: Kind::from(rule).rule(),
        },
        setup,
        warnings: models.warnings,
    })
}
