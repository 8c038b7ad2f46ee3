//! The header of a GGUF file, versions 2 and 3: metadata and where the tensors lie.

mod read;
mod value;

pub use value::{Metadata, Value};

use std::{collections::BTreeMap, io::Read};

use super::{
    error::Problem,
    stored::{GGML_ACCEPTED, StoredType},
};
use read::Cursor;

const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_KEYS: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 16;
const MAX_DIMS: u32 = 4;
const MAX_KEY: u64 = 1 << 16;
const MAX_NAME: u64 = 1 << 10;
/// Name length, dimension count, one dimension, type, offset.
const MIN_INFO: u64 = 8 + 4 + 8 + 4 + 8;

/// Everything before the data of a GGUF file. What it says of the tensors has been checked against
/// the length of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Format version, 2 or 3.
    pub version: u32,
    /// The metadata.
    pub metadata: Metadata,
    /// The tensors, in file order.
    pub tensors: Vec<TensorInfo>,
    /// Offset of the data section in the file.
    pub data: u64,
}

/// One tensor of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name, as the file has it.
    pub name: String,
    /// Stored type.
    pub dtype: StoredType,
    /// Slowest dimension first: `[out, in]` (the file has the fastest first).
    pub shape: Vec<usize>,
    /// Offset of the first byte in the data section.
    pub begin: u64,
    /// Number of bytes.
    pub bytes: usize,
}

impl Header {
    /// Reads a header from the start of a file of `len` bytes. No allocation is larger than a small
    /// multiple of `len`.
    ///
    /// # Errors
    /// A [`Problem`] for each way the header can contradict itself or the file's length.
    pub fn read(file: &mut impl Read, len: u64) -> Result<Self, Problem> {
        let mut file = Cursor::new(file, len);
        let magic: [u8; 4] = file.array("the magic")?;
        if &magic != b"GGUF" {
            return Err(Problem::Magic {
                found: magic.escape_ascii().to_string(),
            });
        }
        let version = file.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(Problem::Version { found: version });
        }
        let tensor_count = file.u64("the tensor count")?;
        let key_count = file.u64("the key count")?;
        file.bound("the key count", key_count, MAX_KEYS, 8 + 4 + 1)?;
        file.bound("the tensor count", tensor_count, MAX_TENSORS, MIN_INFO)?;

        let mut metadata = Metadata::default();
        for i in 0..key_count {
            let key = file.string(MAX_KEY, || format!("the name of metadata key {i}"))?;
            let value = file.value(&key)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(Problem::DuplicateKey { key });
            }
        }
        let alignment = alignment(&metadata)?;
        let tensors = (0..tensor_count)
            .map(|i| tensor(&mut file, i))
            .collect::<Result<Vec<_>, _>>()?;
        let data = file.at().next_multiple_of(alignment);
        place(&tensors, alignment, len.saturating_sub(data))?;
        Ok(Self {
            version,
            metadata,
            tensors,
            data,
        })
    }
}

fn alignment(metadata: &Metadata) -> Result<u64, Problem> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.uint(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && (8..=1 << 16).contains(&alignment) {
        Ok(alignment)
    } else {
        Err(Problem::key(
            KEY,
            alignment,
            "a power of two from 8 to 65536",
        ))
    }
}

fn tensor(file: &mut Cursor<'_, impl Read>, i: u64) -> Result<TensorInfo, Problem> {
    let name = file.string(MAX_NAME, || format!("the name of tensor {i}"))?;
    let rank = file.u32(&name)?;
    if !(1..=MAX_DIMS).contains(&rank) {
        return Err(Problem::TooLarge {
            what: format!("the number of dimensions of tensor {name} (1 at least)"),
            value: rank.into(),
            limit: MAX_DIMS.into(),
        });
    }
    let mut dims = (0..rank)
        .map(|_| file.u64(&name))
        .collect::<Result<Vec<_>, _>>()?;
    dims.reverse();
    let id = file.u32(&name)?;
    let begin = file.u64(&name)?;
    let dtype = StoredType::from_ggml(id).ok_or_else(|| Problem::TensorType {
        tensor: name.clone(),
        found: id.to_string(),
        accepted: GGML_ACCEPTED,
    })?;
    let (shape, bytes) = size(&name, dtype, &dims)?;
    Ok(TensorInfo {
        name,
        dtype,
        shape,
        begin,
        bytes,
    })
}

/// The shape in `usize` and the bytes of a tensor, if both can be counted.
pub(in crate::model::load) fn size(
    name: &str,
    dtype: StoredType,
    dims: &[u64],
) -> Result<(Vec<usize>, usize), Problem> {
    let countless = || Problem::Dimensions {
        tensor: name.to_owned(),
        shape: dims.to_vec(),
        accepted: "dimensions of at least 1 whose bytes can be counted in 63 bits",
    };
    let shape = dims
        .iter()
        .map(|dim| usize::try_from(*dim).ok().filter(|dim| *dim > 0))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(countless)?;
    let cols = shape.last().copied().unwrap_or(1);
    if !cols.is_multiple_of(dtype.block()) {
        return Err(Problem::Ragged {
            tensor: name.to_owned(),
            row: cols,
            block: dtype.block(),
            dtype: dtype.name(),
        });
    }
    let bytes = dtype
        .bytes(&shape)
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(countless)?;
    Ok((shape, bytes))
}

/// Checks that the tensors lie in the `len` bytes of the data section, aligned and apart.
fn place(tensors: &[TensorInfo], alignment: u64, len: u64) -> Result<(), Problem> {
    let mut names = BTreeMap::new();
    let mut spans = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        if names.insert(&tensor.name, ()).is_some() {
            return Err(Problem::DuplicateTensor {
                tensor: tensor.name.clone(),
                places: "in one header".to_owned(),
            });
        }
        if !tensor.begin.is_multiple_of(alignment) {
            return Err(Problem::Unaligned {
                tensor: tensor.name.clone(),
                begin: tensor.begin,
                alignment,
            });
        }
        let end = tensor.begin.saturating_add(tensor.bytes as u64);
        if end > len {
            return Err(Problem::OutOfFile {
                tensor: tensor.name.clone(),
                begin: tensor.begin,
                end,
                len,
            });
        }
        spans.push((tensor.begin, end, &tensor.name));
    }
    spans.sort_unstable();
    match spans.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(()),
        Some(pair) => Err(Problem::Overlap {
            tensor: pair[1].2.clone(),
            begin: pair[1].0,
            other: pair[0].2.clone(),
            end: pair[0].1,
        }),
    }
}
