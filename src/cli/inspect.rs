//! `eyrie inspect`: what was understood of a checkpoint.

use std::io::Write;

use anyhow::Result;

use super::{args::InspectArgs, error::Unwritable, models};

pub(super) fn run(args: &InspectArgs) -> Result<()> {
    let report = models::checkpoint("", &args.model)?.inspect();
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)
    } else {
        write!(out, "{report}")
    };
    Ok(written.and_then(|()| out.flush()).map_err(Unwritable)?)
}
