//! Safetensors files: the header of one, and the index of several.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
};

use safetensors::tensor::{Dtype, TensorInfo as Claim};
use serde_json::Value;

use super::{error::Problem, gguf::size, json, stored::StoredType};

/// The format's own limit.
const MAX_HEADER: u64 = 100_000_000;
const MAX_DIMS: usize = 4;

/// The header of one safetensors file. What it says of the tensors has been checked against the
/// length of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The tensors, by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// Offset of the data section in the file.
    pub data: u64,
}

/// One tensor of a safetensors file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Stored type.
    pub dtype: StoredType,
    /// Slowest dimension first.
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
        let short = |what: &str, at, need, left| Problem::Truncated {
            what: what.to_owned(),
            at,
            need,
            left,
        };
        if len < 8 {
            return Err(short("the header's length", 0, 8, len));
        }
        let mut bytes = [0; 8];
        let read = |source| Problem::io("read the header", source);
        file.read_exact(&mut bytes).map_err(read)?;
        let size = u64::from_le_bytes(bytes);
        if size > MAX_HEADER {
            return Err(Problem::TooLarge {
                what: "the header's length".to_owned(),
                value: size,
                limit: MAX_HEADER,
            });
        }
        if size > len - 8 {
            return Err(short("the header", 8, size, len - 8));
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_exact(&mut text).map_err(read)?;
        let text = String::from_utf8(text).map_err(|error| Problem::Utf8 {
            what: "the header".to_owned(),
            at: error.utf8_error().valid_up_to(),
        })?;
        let mut tensors = BTreeMap::new();
        for (name, value) in json::object("the header", &text)? {
            if name == "__metadata__" {
                texts(&value)?;
            } else {
                let info = claim(&name, value)?;
                tensors.insert(name, info);
            }
        }
        let data = 8 + size;
        place(&tensors, len - data)?;
        Ok(Self { tensors, data })
    }
}

fn texts(metadata: &Value) -> Result<(), Problem> {
    let strings = metadata
        .as_object()
        .is_some_and(|map| map.values().all(Value::is_string));
    if strings {
        return Ok(());
    }
    let value = json::brief(metadata);
    Err(Problem::key("__metadata__", value, "an object of strings"))
}

fn claim(name: &str, value: Value) -> Result<TensorInfo, Problem> {
    let shown = json::brief(&value);
    let claim: Claim = serde_json::from_value(value).map_err(|error| {
        let accepted = format!("an object of dtype, shape and data_offsets ({error})");
        Problem::key(format!("tensor {name}"), shown, &accepted)
    })?;
    let dtype = match claim.dtype {
        Dtype::F32 => StoredType::F32,
        Dtype::F16 => StoredType::F16,
        Dtype::BF16 => StoredType::BF16,
        Dtype::I64 => StoredType::I64,
        Dtype::I32 => StoredType::I32,
        Dtype::BOOL => StoredType::Bool,
        other => {
            return Err(Problem::TensorType {
                tensor: name.to_owned(),
                found: format!("{other:?}"),
                accepted: "F32, F16, BF16, I64, I32, BOOL",
            });
        }
    };
    let dims: Vec<u64> = claim.shape.iter().map(|dim| *dim as u64).collect();
    if dims.len() > MAX_DIMS {
        return Err(Problem::Dimensions {
            tensor: name.to_owned(),
            shape: dims,
            accepted: "at most 4 dimensions",
        });
    }
    let (shape, need) = size(name, dtype, &dims)?;
    let (begin, end) = claim.data_offsets;
    match end.checked_sub(begin) {
        Some(found) if found == need => Ok(TensorInfo {
            dtype,
            shape,
            begin: begin as u64,
            bytes: need,
        }),
        found => Err(Problem::Size {
            tensor: format!("{name} (data_offsets [{begin}, {end}])"),
            found: found.unwrap_or(0) as u64,
            need: need as u64,
        }),
    }
}

/// Checks that the tensors tile the `len` bytes of the data section.
fn place(tensors: &BTreeMap<String, TensorInfo>, len: u64) -> Result<(), Problem> {
    let mut spans: Vec<_> = tensors
        .iter()
        .map(|(name, info)| {
            (
                info.begin,
                info.begin.saturating_add(info.bytes as u64),
                name,
            )
        })
        .collect();
    spans.sort_unstable();
    let mut covered: (u64, Option<&String>) = (0, None);
    for (begin, end, name) in spans {
        if end > len {
            return Err(Problem::OutOfFile {
                tensor: name.clone(),
                begin,
                end,
                len,
            });
        }
        match covered.1 {
            Some(other) if begin < covered.0 => {
                return Err(Problem::Overlap {
                    tensor: name.clone(),
                    begin,
                    other: other.clone(),
                    end: covered.0,
                });
            }
            _ if begin > covered.0 => {
                return Err(Problem::Hole {
                    begin: covered.0,
                    end: begin,
                    before: format!("tensor {name}"),
                });
            }
            _ => covered = (end, Some(name)),
        }
    }
    if covered.0 < len {
        return Err(Problem::Hole {
            begin: covered.0,
            end: len,
            before: "the end of the file".to_owned(),
        });
    }
    Ok(())
}

/// `model.safetensors.index.json`: which shard holds which tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// The shard of each tensor: a file name without a folder.
    pub weight_map: BTreeMap<String, String>,
    /// Bytes of all tensors, if the file says so.
    pub total_size: Option<u64>,
}

impl Index {
    /// Reads the text of an index.
    ///
    /// # Errors
    /// If it is no index, or a shard's name could leave the directory.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        const KEY: &str = "weight_map";
        let map = json::object("the index", text)?;
        let accepted = "an object from tensor names to file names";
        let entries = match map.get(KEY) {
            Some(Value::Object(entries)) if !entries.is_empty() => entries,
            Some(other) => return Err(Problem::key(KEY, json::brief(other), accepted)),
            None => return Err(Problem::missing(KEY, accepted)),
        };
        let mut weight_map = BTreeMap::new();
        for (tensor, shard) in entries {
            let Some(shard) = shard.as_str() else {
                let key = format!("{KEY}.{tensor}");
                return Err(Problem::key(key, json::brief(shard), "a file name"));
            };
            if !is_plain(shard) {
                return Err(Problem::ShardName {
                    tensor: tensor.clone(),
                    shard: shard.chars().take(80).collect(),
                });
            }
            weight_map.insert(tensor.clone(), shard.to_owned());
        }
        let total = map.get("metadata").and_then(|meta| meta.get("total_size"));
        Ok(Self {
            weight_map,
            total_size: total.and_then(Value::as_u64),
        })
    }

    /// The names of the shards, each once.
    #[must_use]
    pub fn shards(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }
}

/// Whether `shard` names a file of the directory itself, on every system.
fn is_plain(shard: &str) -> bool {
    let stem = shard.strip_suffix(".safetensors");
    stem.is_some_and(|stem| {
        !stem.is_empty()
            && !stem.contains(|c: char| matches!(c, '/' | '\\' | ':') || c.is_control())
    })
}
