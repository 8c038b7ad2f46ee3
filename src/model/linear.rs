//! A matrix of a checkpoint.

use super::{
    dtype::{Dtype, encode},
    load::Stored,
};
use crate::{
    error::{ErrorKind, Result},
    kernels::{Exec, Weight},
};

/// A linear layer, or an embedding: `[out, in]` as stored or converted.
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// The matrix `stored`, converted to `dtype`.
    ///
    /// # Errors
    /// Naming the tensor, if it is no matrix of a type with values, or its rows are no whole blocks
    /// of the type asked for.
    pub fn from_stored(stored: Stored, dtype: Dtype) -> Result<Self> {
        let fail = |what: String| ErrorKind::Weight {
            tensor: stored.name.clone(),
            what,
        };
        let [outputs, width] = stored.shape[..] else {
            return Err(fail(format!("shape {:?}, accepted is [out, in]", stored.shape)).into());
        };
        let format = (stored.dtype.format())
            .ok_or_else(|| fail(format!("type {}, accepted are floats", stored.dtype.name())))?;
        let weight = Weight::new(format, outputs, width, stored.bytes)
            .map_err(|error| fail(error.to_string()))?;
        let target = match dtype {
            Dtype::To(target) if target != format => target,
            _ => return Ok(Self::of(weight)),
        };
        if target.row_bytes(width).is_none() {
            let block = target.block().0;
            return Err(fail(format!(
                "rows of {width} values cannot become {target}, accepted are multiples of {block}"
            ))
            .into());
        }
        let mut values = vec![0.0; outputs * width];
        for (j, row) in values.chunks_exact_mut(width).enumerate() {
            weight.unpack_row(j, row);
        }
        let bytes = encode(values, width, target)?;
        let weight =
            Weight::new(target, outputs, width, bytes).map_err(|error| fail(error.to_string()))?;
        Ok(Self::of(weight))
    }

    fn of(weight: Weight) -> Self {
        Self { weight, bias: None }
    }

    /// The layer with `bias` added, `[out]`.
    ///
    /// # Errors
    /// If there are not as many values as outputs.
    pub fn with_bias(self, bias: Vec<f32>) -> Result<Self> {
        let (found, outputs) = (bias.len(), self.weight.outputs());
        if found != outputs {
            return Err(ErrorKind::Weight {
                tensor: "bias".to_owned(),
                what: format!("{found} values, accepted are as many as outputs, {outputs}"),
            }
            .into());
        }
        let bias = Some(bias);
        Ok(Self { bias, ..self })
    }

    /// `[rows, in]` to `[rows, out]`.
    pub fn apply(&self, x: &[f32], y: &mut [f32], exec: Exec) {
        Self::apply_all([(self, y)], x, exec);
    }

    /// [`apply`](Self::apply) of several layers to the same rows, in one parallel step.
    pub fn apply_all<const N: usize>(mut all: [(&Self, &mut [f32]); N], x: &[f32], exec: Exec) {
        let weights = all.each_mut().map(|(layer, y)| (&layer.weight, &mut **y));
        Weight::apply_all(weights, x, exec);
        for (layer, y) in all {
            layer.add_bias(y);
        }
    }

    fn add_bias(&self, y: &mut [f32]) {
        let Some(bias) = &self.bias else { return };
        for row in y.chunks_exact_mut(bias.len()) {
            for (y, b) in row.iter_mut().zip(bias) {
                *y += b;
            }
        }
    }

    /// Row `i`, as an embedding.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        self.weight.unpack_row(i, out);
    }

    /// The matrix.
    #[must_use]
    pub fn weight(&self) -> &Weight {
        &self.weight
    }
}
