//! `eyrie convert`: an EAGLE head in another public format.

use std::{io::Write, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::{embedded, error::Unwritable, head_args::HeadArgs, models, say};
use crate::draft::eagle::{
    HeadCheckpoint, TargetFacts,
    load::is_head,
    save::{Conversion, Format},
};

/// Flags of `convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// EAGLE head: directory (config.json and *.safetensors or *.bin) or .gguf file
    #[arg(value_name = "HEAD")]
    pub path: PathBuf,
    /// The format to write
    #[arg(long, value_enum)]
    pub to: FormatArg,
    /// Folder to write, new or empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The head's target, where its layers or tokenizer are needed
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// How the head is read; what is given here is written into its new configuration.
    #[command(flatten)]
    pub head: HeadArgs,
}

/// A format of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub enum FormatArg {
    /// The paper's own code's; what SpecForge, SGLang and vLLM also read
    SafeAiLab,
    /// vLLM's speculators
    Speculators,
    /// llama.cpp's, as DIR/head.gguf
    Gguf,
}

pub(super) fn run(args: &ConvertArgs) -> Result<()> {
    let path = &args.path;
    models::exists("", path)?;
    let files = embedded::files(path);
    if !is_head(files.clone())? {
        bail!("{} is no EAGLE head", path.display());
    }
    let target = args
        .model
        .as_ref()
        .map(|model| models::checkpoint("--model", model));
    let target = target.transpose()?;
    let facts = match &target {
        Some(target) => TargetFacts::from(target.config()),
        None => TargetFacts::of_head(files.clone())?,
    };
    let head = HeadCheckpoint::open(files, &facts, &(&args.head).into())?;
    for warning in &head.config().warnings {
        say("warning", &format!("{}: {warning}", path.display()));
    }
    let conversion = Conversion {
        head: &head,
        target: &facts,
        metadata: target.as_ref().and_then(|target| target.metadata()),
    };
    let saved = conversion.save(args.to.into(), &args.out);
    let saved = saved.with_context(|| path.display().to_string())?;
    for note in &saved.notes {
        say("note", note);
    }
    let mut out = std::io::stdout().lock();
    Ok(writeln!(out, "{}", saved.path.display()).map_err(Unwritable)?)
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::SafeAiLab => Self::SafeAiLab,
            FormatArg::Speculators => Self::Speculators,
            FormatArg::Gguf => Self::Gguf,
        }
    }
}
