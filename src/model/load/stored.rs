//! Tensors as a file stores them.

use half::{bf16, f16};

use super::error::Problem;
use crate::kernels::Format;

/// One tensor, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Canonical name.
    pub name: String,
    /// How the values are stored.
    pub dtype: StoredType,
    /// `[out, in]`, row-major; `[n]` for a norm.
    pub shape: Vec<usize>,
    /// The rows, one after the other, little-endian; a quantised row is GGML blocks along `in`.
    pub bytes: Vec<u8>,
}

impl Stored {
    /// Number of rows: the product of all dimensions but the last.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape[..self.shape.len().saturating_sub(1)]
            .iter()
            .product()
    }

    /// Values in a row.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Bytes of row `i`.
    #[must_use]
    pub fn row(&self, i: usize) -> &[u8] {
        let width = self.bytes.len() / self.rows();
        &self.bytes[i * width..(i + 1) * width]
    }

    /// The values of a tensor stored as f32, f16 or bf16; each conversion is exact.
    ///
    /// # Errors
    /// [`Problem::TensorType`] for any other type.
    pub fn floats(&self) -> Result<Vec<f32>, Problem> {
        let halves = || self.bytes.as_chunks::<2>().0.iter();
        match self.dtype {
            StoredType::F32 => Ok(self
                .bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect()),
            StoredType::F16 => Ok(halves().map(|b| f16::from_le_bytes(*b).to_f32()).collect()),
            StoredType::BF16 => Ok(halves().map(|b| bf16::from_le_bytes(*b).to_f32()).collect()),
            _ => Err(Problem::TensorType {
                tensor: self.name.clone(),
                found: self.dtype.name().to_owned(),
                accepted: "f32, f16, bf16",
            }),
        }
    }
}

/// How values are stored: floats, GGML blocks, or what is not computed with: integers
/// and, a byte each, truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the formats' own")]
pub enum StoredType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    I32,
    I64,
    Bool,
}

/// Type, GGML number, and the kernels' format of its values.
const TYPES: [(StoredType, Option<u32>, Option<Format>); 18] = [
    (StoredType::F32, Some(0), Some(Format::F32)),
    (StoredType::F16, Some(1), Some(Format::F16)),
    (StoredType::Q4_0, Some(2), Some(Format::Q4_0)),
    (StoredType::Q4_1, Some(3), Some(Format::Q4_1)),
    (StoredType::Q5_0, Some(6), Some(Format::Q5_0)),
    (StoredType::Q5_1, Some(7), Some(Format::Q5_1)),
    (StoredType::Q8_0, Some(8), Some(Format::Q8_0)),
    (StoredType::Q8_1, Some(9), Some(Format::Q8_1)),
    (StoredType::Q2K, Some(10), Some(Format::Q2K)),
    (StoredType::Q3K, Some(11), Some(Format::Q3K)),
    (StoredType::Q4K, Some(12), Some(Format::Q4K)),
    (StoredType::Q5K, Some(13), Some(Format::Q5K)),
    (StoredType::Q6K, Some(14), Some(Format::Q6K)),
    (StoredType::Q8K, Some(15), Some(Format::Q8K)),
    (StoredType::I32, Some(26), None),
    (StoredType::I64, Some(27), None),
    (StoredType::BF16, Some(30), Some(Format::BF16)),
    (StoredType::Bool, None, None),
];

/// The types of [`TYPES`] by GGML's numbers, for messages.
pub(crate) const GGML_ACCEPTED: &str = "0 f32, 1 f16, 2 q4_0, 3 q4_1, 6 q5_0, 7 q5_1, 8 q8_0, 9 q8_1, 10 q2_k, 11 q3_k, \
     12 q4_k, 13 q5_k, 14 q6_k, 15 q8_k, 26 i32, 27 i64, 30 bf16";

impl StoredType {
    fn entry(self) -> &'static (Self, Option<u32>, Option<Format>) {
        TYPES
            .iter()
            .find(|entry| entry.0 == self)
            .expect("every type has its line in the table")
    }

    /// The type with GGML's number `id`.
    #[must_use]
    pub fn from_ggml(id: u32) -> Option<Self> {
        TYPES
            .iter()
            .find(|entry| entry.1 == Some(id))
            .map(|entry| entry.0)
    }

    /// GGML's number of the type, if it has one.
    #[must_use]
    pub fn ggml(self) -> Option<u32> {
        self.entry().1
    }

    /// How the kernels call its values; `None` for integers and truth values, with which nothing is computed.
    #[must_use]
    pub fn format(self) -> Option<Format> {
        self.entry().2
    }

    /// Its name, as `--dtype` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.format(), self) {
            (Some(format), _) => format.name(),
            (None, Self::I32) => "i32",
            (None, Self::Bool) => "bool",
            (None, _) => "i64",
        }
    }

    /// Values in a block; 1 for all but GGML blocks.
    #[must_use]
    pub fn block(self) -> usize {
        self.format().map_or(1, |format| format.block().0)
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match (self.format(), self) {
            (Some(format), _) => format.block().1,
            (None, Self::I32) => 4,
            (None, Self::Bool) => 1,
            (None, _) => 8,
        }
    }

    /// Whether this is f32, f16 or bf16.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Bytes of a tensor of `shape`; `None` if they cannot be counted or a row is no whole number
    /// of blocks.
    #[must_use]
    pub fn bytes(self, shape: &[usize]) -> Option<usize> {
        let cols = shape.last().copied().unwrap_or(1);
        if !cols.is_multiple_of(self.block()) {
            return None;
        }
        shape
            .iter()
            .try_fold(1_usize, |n, dim| n.checked_mul(*dim))?
            .checked_div(self.block())?
            .checked_mul(self.block_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::GgmlDType as G;

    #[test]
    fn blocks_are_as_candle_has_them() {
        let candle = [
            G::F32,
            G::F16,
            G::Q4_0,
            G::Q4_1,
            G::Q5_0,
            G::Q5_1,
            G::Q8_0,
            G::Q8_1,
            G::Q2K,
            G::Q3K,
            G::Q4K,
            G::Q5K,
            G::Q6K,
            G::Q8K,
        ];
        for (ours, theirs) in TYPES.iter().zip(candle) {
            assert_eq!(
                (ours.0.block(), ours.0.block_bytes()),
                (theirs.block_size(), theirs.type_size()),
                "{ours:?}"
            );
            assert_eq!(format!("{:?}", ours.0), format!("{theirs:?}"));
        }
        assert_eq!(TYPES.len(), candle.len() + 4);
        assert_eq!(StoredType::from_ggml(30), Some(StoredType::BF16));
        assert_eq!(StoredType::Q4_1.bytes(&[3, 64]), Some(3 * 40));
        assert_eq!(StoredType::Q4_1.bytes(&[3, 48]), None);
        assert_eq!(StoredType::F32.bytes(&[usize::MAX, 2]), None);
    }
}
