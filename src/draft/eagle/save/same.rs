//! Whether two heads compute the same.

use super::{
    super::{
        config::HeadConfig, config::MapForm, config::Source, load::HeadCheckpoint, parts::eps,
    },
    error::SaveError,
    held::single,
};
use crate::model::{
    config::{RopeConfig, RopeScaling},
    load::Stored,
};

/// The first difference in what is computed: a line of the configuration, or a tensor.
pub(super) fn difference(
    one: &HeadCheckpoint,
    other: &HeadCheckpoint,
) -> Result<Option<String>, SaveError> {
    let (ours, theirs) = (one.config(), other.config());
    let (a, b) = (essence(ours), essence(theirs));
    if a != b {
        let (a, b) = (format!("{a:#?}"), format!("{b:#?}"));
        let mut lines = a.lines().zip(b.lines());
        let line = lines
            .find(|(a, b)| a != b)
            .unwrap_or(("another length", ""));
        return Ok(Some(format!("{} against {}", line.0.trim(), line.1.trim())));
    }
    if eps(ours).to_bits() != eps(theirs).to_bits() {
        return Ok(Some(format!("eps: {} against {}", ours.eps, theirs.eps)));
    }
    let turns = |config: &HeadConfig| config.rope.frequencies(config.head_dim);
    let far = |(a, b): &(f32, f32)| a.to_bits().abs_diff(b.to_bits()) > 1;
    if let Some((a, b)) = turns(ours).into_iter().zip(turns(theirs)).find(far) {
        return Ok(Some(format!("a rotary frequency: {a} against {b}")));
    }
    let loud = [ours, theirs].map(|config| match config.rope.scaling {
        RopeScaling::Yarn {
            attention_factor, ..
        } => single(attention_factor),
        _ => 1.0,
    });
    if loud[0].to_bits() != loud[1].to_bits() {
        let [one, other] = loud;
        return Ok(Some(format!("attention_factor: {one} against {other}")));
    }
    for name in one.names() {
        if !equal(&one.stored(&name)?, &other.stored(&name)?) {
            return Ok(Some(format!("tensor {name}")));
        }
    }
    Ok(None)
}

/// Bit for bit; a norm may be stored wider.
fn equal(one: &Stored, other: &Stored) -> bool {
    let values = |stored: &Stored| stored.floats().ok();
    one.shape == other.shape
        && match one.dtype == other.dtype {
            true => one.bytes == other.bytes,
            false => one.shape.len() == 1 && values(one) == values(other) && values(one).is_some(),
        }
}

/// The configuration without what is compared in another way, and what does not compute.
fn essence(config: &HeadConfig) -> HeadConfig {
    HeadConfig {
        source: Source::SafeAiLab,
        taps_convention: None,
        map_form: MapForm::Identity,
        warnings: Vec::new(),
        eps: 0.0,
        rope: RopeConfig {
            theta: 1.0,
            scaling: RopeScaling::None,
        },
        ..config.clone()
    }
}
