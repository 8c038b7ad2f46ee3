//! `eyrie inspect`: what was understood of a checkpoint.

use std::io::Write;

use anyhow::{Result, bail};

use super::{args::InspectArgs, embedded, error::Unwritable, head_args::HeadArgs, models};
use crate::{
    draft::eagle::{HeadCheckpoint, TargetFacts, load::is_head},
    model::load::Inspect,
};

pub(super) fn run(args: &InspectArgs) -> Result<()> {
    let report = understood(args)?;
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)
    } else {
        write!(out, "{report}")
    };
    Ok(written.and_then(|()| out.flush()).map_err(Unwritable)?)
}

fn understood(args: &InspectArgs) -> Result<Inspect> {
    let InspectArgs {
        path, model, head, ..
    } = args;
    models::exists("", path)?;
    let files = embedded::files(path);
    if !is_head(files.clone())? {
        let model = models::checkpoint("", path)?;
        if let Some(flag) = given(args) {
            bail!("{flag}: {} is no EAGLE head", path.display());
        }
        return Ok(model.inspect());
    }
    let Some(model) = model else {
        bail!(
            "{} is an EAGLE head, which is understood with its target: give --model",
            path.display()
        );
    };
    let target = models::checkpoint("--model", model)?;
    let facts = TargetFacts::from(target.config());
    Ok(HeadCheckpoint::open(files, &facts, &head.into())?.inspect())
}

fn given(args: &InspectArgs) -> Option<&'static str> {
    args.model
        .as_ref()
        .map(|_| "--model")
        .or_else(|| HeadArgs::given(&args.head))
}
