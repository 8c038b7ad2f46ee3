//! Answers to what an EAGLE head's files leave open.

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::draft::eagle::{HeadOptions, NormOutput, TapsConvention};

/// How an EAGLE head is read.
#[derive(Clone, Copy, Debug, Default, Args, PartialEq, Serialize)]
pub struct HeadArgs {
    /// How the EAGLE head numbers the layers that it taps, if its files leave it open
    #[arg(long, value_enum)]
    pub taps_convention: Option<TapsKind>,
    /// Base of the EAGLE head's rotary embedding [default: as its files say]
    #[arg(long, value_name = "THETA", allow_negative_numbers = true, value_parser = theta)]
    pub head_theta: Option<f64>,
    /// Positions that the EAGLE head is used for; beyond them a request goes on without drafts [default: as its files say]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub head_context: Option<u32>,
    /// What the key norm_output of the EAGLE head means, of which engines make two things
    #[arg(long, value_enum)]
    pub head_norm_output: Option<NormOutputKind>,
}

/// How a head numbers the layers that it taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TapsKind {
    /// By the layer that the stream enters
    Input,
    /// By the layer that the stream leaves
    Output,
}

/// What the key `norm_output` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum NormOutputKind {
    /// Whether what is fed back is normed (EAGLE-3.1)
    Feedback,
    /// Whether the output head reads the normed output (SpecForge up to 0.2.0)
    Head,
}

impl HeadArgs {
    /// The flag that was given, if any was.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.taps_convention.is_some(), "--taps-convention"),
            (self.head_theta.is_some(), "--head-theta"),
            (self.head_context.is_some(), "--head-context"),
            (self.head_norm_output.is_some(), "--head-norm-output"),
        ];
        flags
            .iter()
            .find(|(given, _)| *given)
            .map(|(_, flag)| *flag)
    }

    /// What the flags say.
    pub(super) fn options(&self) -> HeadOptions {
        let convention = |kind| match kind {
            TapsKind::Input => TapsConvention::Input,
            TapsKind::Output => TapsConvention::Output,
        };
        let meaning = |kind| match kind {
            NormOutputKind::Feedback => NormOutput::Feedback,
            NormOutputKind::Head => NormOutput::Head,
        };
        HeadOptions {
            taps_convention: self.taps_convention.map(convention),
            theta: self.head_theta,
            context: self.head_context.map(|n| n as usize),
            norm_output: self.head_norm_output.map(meaning),
        }
    }
}

fn theta(text: &str) -> Result<f64, String> {
    let theta: Option<f64> = text.parse().ok();
    let good = theta.filter(|theta| theta.is_finite() && *theta >= 1.0);
    good.ok_or_else(|| "a finite number of at least 1 is accepted".to_owned())
}
