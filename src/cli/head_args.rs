//! Flags that answer what the files of an EAGLE head leave open.

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::draft::eagle::{HeadOptions, NormOutput, TapsConvention};

/// How an EAGLE head is read.
#[derive(Clone, Copy, Debug, Default, Args, PartialEq, Serialize)]
pub struct HeadArgs {
    /// How an EAGLE head numbers the layers that it taps, where its files can be read in two ways
    #[arg(long, value_enum)]
    pub taps_convention: Option<TapsArg>,
    /// Base of an EAGLE head's rotary frequencies [default: as its files say]
    #[arg(long, value_name = "THETA", allow_negative_numbers = true, value_parser = theta)]
    pub head_theta: Option<f64>,
    /// Positions that an EAGLE head drafts at [default: as its files say]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    pub head_context: Option<u32>,
    /// What an EAGLE head's key norm_output means [default: feedback]
    #[arg(long, value_enum)]
    pub head_norm_output: Option<NormOutputArg>,
}

/// How a head numbers its taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TapsArg {
    /// By the layer that the tapped stream enters, as vLLM reads it
    Input,
    /// By the layer that it leaves, as SGLang reads it
    Output,
}

/// What a head's key norm_output means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum NormOutputArg {
    /// The normed output is fed back (EAGLE-3.1)
    Feedback,
    /// The output is normed before the head (SpecForge up to 0.2.0)
    Head,
}

impl HeadArgs {
    /// The first flag that is there.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--taps-convention", self.taps_convention.is_some()),
            ("--head-theta", self.head_theta.is_some()),
            ("--head-context", self.head_context.is_some()),
            ("--head-norm-output", self.head_norm_output.is_some()),
        ];
        all.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }
}

impl From<&HeadArgs> for HeadOptions {
    fn from(args: &HeadArgs) -> Self {
        Self {
            taps_convention: args.taps_convention.map(|convention| match convention {
                TapsArg::Input => TapsConvention::Input,
                TapsArg::Output => TapsConvention::Output,
            }),
            theta: args.head_theta,
            context: args.head_context.and_then(|n| usize::try_from(n).ok()),
            norm_output: args.head_norm_output.map(|meaning| match meaning {
                NormOutputArg::Feedback => NormOutput::Feedback,
                NormOutputArg::Head => NormOutput::Head,
            }),
        }
    }
}

fn theta(text: &str) -> Result<f64, String> {
    let theta: Option<f64> = text.parse().ok();
    let good = theta.filter(|theta| theta.is_finite() && *theta >= 1.0);
    good.ok_or_else(|| "a finite number of at least 1 is accepted".to_owned())
}
