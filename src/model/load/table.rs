//! Tables of tensors: what the headers of a checkpoint's files say of them, whatever the container.

use std::{
    collections::BTreeMap,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use super::{
    Files, LoadError, Problem, Source, Stored, StoredType, file, gguf, names, pickle,
    safetensors::{Header, Index, TensorInfo},
    source::Reader,
};

pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a checkpoint, by name.
pub(crate) type Table = BTreeMap<String, Entry>;

/// Where a tensor lies.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) file: Source,
    /// The file's name for it.
    pub(crate) name: String,
    pub(crate) dtype: StoredType,
    pub(crate) shape: Vec<usize>,
    /// Offset in the file.
    pub(crate) begin: u64,
    pub(crate) bytes: usize,
    /// Heads whose rows are in interleaved rotary order.
    pub(crate) interleaved: Option<usize>,
}

impl Entry {
    pub(crate) fn read(&self, name: &str) -> Result<Stored, LoadError> {
        let fail = |source| {
            Problem::io(&format!("read tensor {}", self.name), source).in_file(self.file.path())
        };
        let (mut file, _) = self.file.open().map_err(fail)?;
        file.seek(SeekFrom::Start(self.begin)).map_err(fail)?;
        let mut bytes = vec![0; self.bytes];
        file.read_exact(&mut bytes).map_err(fail)?;
        let mut stored = Stored {
            name: name.to_owned(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            bytes,
        };
        if let Some(heads) = self.interleaved {
            names::half_split(&mut stored, heads);
        }
        Ok(stored)
    }

    /// Refuses types that have no values, and blocks where a norm is.
    pub(crate) fn check_type(&self) -> Result<(), LoadError> {
        let norm = self.shape.len() == 1;
        if self.dtype.format().is_some() && (!norm || self.dtype.is_float()) {
            return Ok(());
        }
        let problem = Problem::TensorType {
            tensor: self.name.clone(),
            found: self.dtype.name().to_owned(),
            accepted: if norm {
                "f32, f16, bf16"
            } else {
                "floats and GGML blocks"
            },
        };
        Err(problem.in_file(self.file.path()))
    }

    /// Notes that the rows of queries and keys are interleaved, as GGUF files have them; `name` is
    /// canonical.
    pub(crate) fn interleave(&mut self, name: &str, heads: usize, kv_heads: usize) {
        if name.ends_with("q_proj.weight") {
            self.interleaved = Some(heads);
        } else if name.ends_with("k_proj.weight") {
            self.interleaved = Some(kv_heads);
        }
    }
}

/// What a GGUF file begins with.
pub(crate) const GGUF: [u8; 4] = *b"GGUF";

/// The first bytes of a file; `None` if it is shorter.
pub(crate) fn magic(source: &Source) -> Result<Option<[u8; 4]>, LoadError> {
    let (mut file, len) = open_file(source)?;
    let mut magic = [0; 4];
    let whole = len >= 4 && file.read_exact(&mut magic).is_ok();
    Ok(whole.then_some(magic))
}

/// Takes the divisors of rotary frequencies out of a GGUF file's tensors, if it has some.
pub(crate) fn rope_factors(table: &mut Table, path: &Path) -> Result<Option<Vec<f32>>, LoadError> {
    const NAME: &str = "rope_freqs.weight";
    let read = |entry: Entry| {
        let stored = entry.read(NAME)?;
        stored.floats().map_err(|problem| problem.in_file(path))
    };
    table.remove(NAME).map(read).transpose()
}

fn open_file(source: &Source) -> Result<(Reader, u64), LoadError> {
    let fail = |error| Problem::io("open it", error).in_file(source.path());
    source.open().map_err(fail)
}

pub(crate) fn read_json(source: &Source) -> Result<String, LoadError> {
    let (mut json, len) = open_file(source)?;
    if len > file::MAX_TEXT {
        let what = "the length of the file".to_owned();
        let (value, limit) = (len, file::MAX_TEXT);
        return Err(Problem::TooLarge { what, value, limit }.in_file(source.path()));
    }
    let mut text = String::new();
    json.read_to_string(&mut text)
        .map_err(|error| Problem::io("read it", error).in_file(source.path()))?;
    Ok(text)
}

/// The tensors of a directory of safetensors, single or with an index, by the files' names.
pub(crate) fn safetensors(files: &Files, warnings: &mut Vec<String>) -> Result<Table, LoadError> {
    let (single, index) = (files.file(SINGLE), files.file(INDEX));
    match (single.exists(), index.exists()) {
        (true, false) => shard(&single),
        (has_single, true) => sharded(files, &index, has_single, warnings),
        (false, false) => {
            let problem = Problem::Unrecognised {
                found: "there are no weights".to_owned(),
                accepted: format!("a directory with {SINGLE} or {INDEX}"),
            };
            Err(problem.in_file(files.path()))
        }
    }
}

/// The metadata and the tensors of a GGUF file, by its own names.
pub(crate) fn gguf(source: &Source) -> Result<(gguf::Metadata, Table), LoadError> {
    let (mut file, len) = open_file(source)?;
    let header = gguf::Header::read(&mut file, len).map_err(|p| p.in_file(source.path()))?;
    let entry = |info: gguf::TensorInfo| {
        let entry = Entry {
            file: source.clone(),
            name: info.name.clone(),
            dtype: info.dtype,
            shape: info.shape,
            begin: header.data.saturating_add(info.begin),
            bytes: info.bytes,
            interleaved: None,
        };
        (info.name, entry)
    };
    let table = header.tensors.into_iter().map(entry).collect();
    Ok((header.metadata, table))
}

/// The tensors of one safetensors file, by its own names.
fn shard(source: &Source) -> Result<Table, LoadError> {
    let (mut file, len) = open_file(source)?;
    let header = Header::read(&mut file, len).map_err(|p| p.in_file(source.path()))?;
    Ok(entries(source, header.tensors, header.data))
}

fn sharded(
    files: &Files,
    listed: &Source,
    has_single: bool,
    warnings: &mut Vec<String>,
) -> Result<Table, LoadError> {
    let path = listed.path();
    let index = Index::parse(&read_json(listed)?).map_err(|p| p.in_file(path))?;
    if has_single && !index.shards().contains(SINGLE) {
        let problem = Problem::contradiction(
            format!("there is {SINGLE}"),
            format!("{INDEX} does not name it"),
            "one of the two, or an index that names the file",
        );
        return Err(problem.in_file(files.path()));
    }
    let mut shards = BTreeMap::new();
    for name in index.shards() {
        let file = files.file(name);
        if !file.exists() {
            let tensor = index.weight_map.iter().find(|(_, shard)| *shard == name);
            let problem = Problem::MissingShard {
                tensor: tensor.map(|(tensor, _)| tensor.clone()).unwrap_or_default(),
                shard: name.to_owned(),
            };
            return Err(problem.in_file(path));
        }
        shards.insert(name, shard(&file)?);
    }
    let holders = |tensor: &str| -> Vec<&str> {
        let holds = shards.iter().filter(|(_, held)| held.contains_key(tensor));
        holds.map(|(name, _)| *name).collect()
    };
    for (tensor, named) in &index.weight_map {
        let holders = holders(tensor);
        if let [_, _, ..] = holders[..] {
            let problem = Problem::DuplicateTensor {
                tensor: tensor.clone(),
                places: holders.join(", "),
            };
            return Err(problem.in_file(path));
        }
        if holders.first() != Some(&named.as_str()) {
            let problem = Problem::Elsewhere {
                tensor: tensor.clone(),
                shard: named.clone(),
                elsewhere: holders
                    .first()
                    .map_or(String::new(), |s| format!("; {s} does")),
            };
            return Err(problem.in_file(path));
        }
    }
    let mut entries = BTreeMap::new();
    for (name, held) in shards {
        for (tensor, entry) in held {
            if !index.weight_map.contains_key(&tensor) {
                let shard = name.to_owned();
                return Err(Problem::Unlisted { tensor, shard }.in_file(path));
            }
            entries.insert(tensor, entry);
        }
    }
    let bytes = entries
        .values()
        .fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes as u64));
    if let Some(total) = index.total_size.filter(|total| *total != bytes) {
        warnings.push(format!(
            "{INDEX}: total_size is {total}, but its tensors have {bytes} bytes"
        ));
    }
    Ok(entries)
}

/// The tensors of a `.bin` file, by its own names.
pub(crate) fn pickle(source: &Source) -> Result<Table, LoadError> {
    let (mut file, len) = open_file(source)?;
    let header = pickle::Header::read(&mut file, len).map_err(|p| p.in_file(source.path()))?;
    Ok(entries(source, header.tensors, 0))
}

fn entries(source: &Source, tensors: BTreeMap<String, TensorInfo>, data: u64) -> Table {
    let entry = |(name, info): (String, TensorInfo)| {
        let entry = Entry {
            file: source.clone(),
            name: name.clone(),
            dtype: info.dtype,
            shape: info.shape,
            begin: data + info.begin,
            bytes: info.bytes,
            interleaved: None,
        };
        (name, entry)
    };
    tensors.into_iter().map(entry).collect()
}

/// Stored types, the one with most bytes first, joined by `+`.
pub(crate) fn types<'e>(entries: impl Iterator<Item = &'e Entry>) -> String {
    let mut bytes = BTreeMap::<StoredType, usize>::new();
    for entry in entries {
        let sum = bytes.entry(entry.dtype).or_default();
        *sum = sum.saturating_add(entry.bytes);
    }
    let mut types: Vec<_> = bytes.into_iter().collect();
    types.sort_by_key(|(dtype, bytes)| (std::cmp::Reverse(*bytes), *dtype));
    let types: Vec<_> = types.iter().map(|(dtype, _)| dtype.name()).collect();
    types.join("+")
}
