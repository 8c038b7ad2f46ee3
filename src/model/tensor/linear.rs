//! A matrix on a device.

use candle_core::{DType, Device, Tensor};

use crate::{
    error::Result,
    kernels::{Format, Weight},
};

/// A linear layer without bias, `[out, in]`.
#[derive(Clone, Debug)]
pub(super) struct Linear(Tensor);

impl Linear {
    /// Moves `weight`. candle's CPU has no products of 16-bit floats that are worth it: there all
    /// matrices are f32.
    pub(super) fn of(weight: &Weight, device: &Device) -> Result<Self> {
        let dtype = match weight.format() {
            Format::F16 if !device.is_cpu() => DType::F16,
            Format::BF16 if !device.is_cpu() => DType::BF16,
            _ => DType::F32,
        };
        let (outputs, width) = (weight.outputs(), weight.width());
        let mut values = vec![0.0; outputs * width];
        for (i, row) in values.chunks_exact_mut(width).enumerate() {
            weight.unpack_row(i, row);
        }
        let values = Tensor::from_vec(values, (outputs, width), &Device::Cpu)?;
        Ok(Self(values.to_dtype(dtype)?.to_device(device)?))
    }

    /// `[rows, in]` to `[rows, out]`, f32 both.
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.to_dtype(self.0.dtype())?;
        Ok(x.matmul(&self.0.t()?)?.to_dtype(DType::F32)?)
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.elem_count() * self.0.dtype().size_in_bytes()
    }
}
