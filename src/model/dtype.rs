//! The types that weights can be converted to.

use std::{fmt, str::FromStr};

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QTensor},
};
use half::{bf16, f16};

use crate::{
    error::{ErrorKind, Result},
    kernels::Format,
};

/// What `--dtype` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// The types of the checkpoint.
    #[default]
    AsStored,
    /// One type for all matrices.
    To(Format),
}

/// Formats that weights can be converted to, with candle's names for the quantised ones.
const TARGETS: [(Format, Option<GgmlDType>); 8] = [
    (Format::F32, None),
    (Format::BF16, None),
    (Format::F16, None),
    (Format::Q8_0, Some(GgmlDType::Q8_0)),
    (Format::Q4_0, Some(GgmlDType::Q4_0)),
    (Format::Q4_1, Some(GgmlDType::Q4_1)),
    (Format::Q4K, Some(GgmlDType::Q4K)),
    (Format::Q6K, Some(GgmlDType::Q6K)),
];

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsStored => f.write_str("as-stored"),
            Self::To(format) => format.fmt(f),
        }
    }
}

impl FromStr for Dtype {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = || TARGETS.iter().map(|(format, _)| Self::To(*format));
        all()
            .chain([Self::AsStored])
            .find(|dtype| dtype.to_string() == text)
            .ok_or_else(|| {
                let names: Vec<_> = all().map(|dtype| dtype.to_string()).collect();
                ErrorKind::Setting {
                    name: "dtype",
                    value: text.to_owned(),
                    accepted: format!("accepted are {} and as-stored", names.join(", ")),
                }
                .into()
            })
    }
}

/// `[rows, width]` values in the bytes of `format`, which is one of [`TARGETS`]; rows are whole
/// blocks.
pub(super) fn encode(values: Vec<f32>, width: usize, format: Format) -> Result<Vec<u8>> {
    let quantised = TARGETS.iter().find(|(target, _)| *target == format);
    Ok(match quantised {
        Some((_, Some(dtype))) => {
            let shape = (values.len() / width, width);
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu).map_err(ErrorKind::from)?;
            let tensor = QTensor::quantize(&tensor, *dtype).map_err(ErrorKind::from)?;
            tensor.data().map_err(ErrorKind::from)?.into_owned()
        }
        _ => match format {
            Format::F16 => flat(values, |v| f16::from_f32(v).to_le_bytes()),
            Format::BF16 => flat(values, |v| bf16::from_f32(v).to_le_bytes()),
            Format::F32 => flat(values, f32::to_le_bytes),
            _ => {
                return Err(ErrorKind::Setting {
                    name: "dtype",
                    value: format.to_string(),
                    accepted: "weights cannot be converted to it".to_owned(),
                }
                .into());
            }
        },
    })
}

fn flat<const N: usize>(values: Vec<f32>, bytes: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    values.into_iter().flat_map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_command_lines() {
        let names = "f32 bf16 f16 q8_0 q4_0 q4_1 q4_k q6_k as-stored";
        for name in names.split(' ') {
            let dtype: Dtype = name.parse().expect(name);
            assert_eq!(dtype.to_string(), name);
        }
        let error = "q5_0".parse::<Dtype>().expect_err("no target").to_string();
        assert!(
            error.starts_with("dtype q5_0: accepted are f32, bf16"),
            "{error}"
        );
    }
}
