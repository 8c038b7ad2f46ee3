//! `model.safetensors`.

use std::{collections::HashMap, path::Path};

use safetensors::{Dtype, tensor::TensorView};

use super::{
    super::config::{HeadConfig, Version, VocabMap},
    Conversion, Format,
    error::SaveError,
};
use crate::model::load::{Stored, StoredType};

const FILE: &str = "model.safetensors";

/// Names of a format, and ours.
type Names = [(&'static str, &'static str)];

const SAFEAILAB: [(&str, &str); 1] = [("midlayer.", "layers.0.")];

const SPECULATORS_1: [(&str, &str); 4] = [
    ("transformer.", "layers.0."),
    ("fusion_fc.", "fc."),
    ("embedding_layernorm.", "embed_norm."),
    ("pre_lm_head_layernorm.", "norm."),
];

fn renamed(name: &str, names: &Names) -> String {
    let new = names.iter().find_map(|(theirs, ours)| {
        let rest = name.strip_prefix(ours)?;
        Some(format!("{theirs}{rest}"))
    });
    new.unwrap_or_else(|| name.to_owned())
}

/// Writes the tensors to `folder`, each as it is stored, and the map as offsets.
pub(super) fn write(from: &Conversion<'_>, format: Format, folder: &Path) -> Result<(), SaveError> {
    let config = from.head.config();
    let names: &Names = match (format, config.version) {
        (Format::SafeAiLab, Version::Eagle3) => &SAFEAILAB,
        (Format::Speculators, Version::Eagle1) => &SPECULATORS_1,
        _ => &[],
    };
    let mut tensors = from
        .head
        .names()
        .map(|name| {
            let stored = from.head.stored(&name)?;
            Ok((renamed(&name, names), stored))
        })
        .collect::<Result<Vec<_>, SaveError>>()?;
    tensors.extend(maps(config));
    let path = folder.join(FILE);
    let failed = |error: safetensors::SafeTensorError| {
        let source = match error {
            safetensors::SafeTensorError::IoError(error) => error,
            error => std::io::Error::other(error),
        };
        SaveError::io(&path, "write it")(source)
    };
    let views = tensors.iter().map(|(name, stored)| {
        let view = TensorView::new(dtype(stored), stored.shape.clone(), &stored.bytes);
        Ok((name.as_str(), view.map_err(failed)?))
    });
    let views = views.collect::<Result<Vec<_>, SaveError>>()?;
    let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(about), &path).map_err(failed)
}

/// `d2t` as offsets, and `t2d`; none for the whole vocabulary.
fn maps(config: &HeadConfig) -> Vec<(String, Stored)> {
    let VocabMap::Reduced(ids) = &config.vocab_map else {
        return Vec::new();
    };
    let offsets = ids
        .iter()
        .zip(0_i64..)
        .map(|(id, row)| i64::from(*id) - row);
    let mut marks = vec![0_u8; config.vocab];
    for id in ids.iter() {
        marks[*id as usize] = 1;
    }
    let plain = |name: &str, dtype, shape, bytes| {
        let stored = Stored {
            name: name.to_owned(),
            dtype,
            shape: vec![shape],
            bytes,
        };
        (name.to_owned(), stored)
    };
    let offsets = offsets.flat_map(i64::to_le_bytes).collect();
    vec![
        plain("d2t", StoredType::I64, ids.len(), offsets),
        plain("t2d", StoredType::Bool, config.vocab, marks),
    ]
}

/// The type; those with blocks have been refused.
fn dtype(stored: &Stored) -> Dtype {
    match stored.dtype {
        StoredType::F16 => Dtype::F16,
        StoredType::BF16 => Dtype::BF16,
        StoredType::I64 => Dtype::I64,
        StoredType::Bool => Dtype::BOOL,
        _ => Dtype::F32,
    }
}
