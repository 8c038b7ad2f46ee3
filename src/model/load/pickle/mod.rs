//! `.bin` files as `torch.save` writes them: a zip archive of a pickle and of the raw storages.
//!
//! Nothing is executed: `machine` knows the opcodes and the names that a table of tensors needs,
//! and refuses every other. Storages are never unpacked, they must lie in the file as they are, so
//! that a tensor is a range of the file's bytes.

mod machine;
mod object;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Seek},
};

use zip::{CompressionMethod, ZipArchive};

use super::{error::Problem, gguf::size, safetensors::TensorInfo};
use object::{Storage, View};

/// The largest pickle that is read; a table of tensors has a hundred bytes for each.
const MAX_PICKLE: u64 = 1 << 24;
const MAX_ENTRIES: usize = 1 << 16;
const MAX_DIMS: usize = 4;
const ACCEPTED: &str =
    "a file of torch.save in its zip format (torch 1.6 or newer), with a table of tensors";

/// The tensors of one `.bin` file. What it says of them has been checked against the length of the
/// file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The tensors, by name; they begin at offsets in the file.
    pub tensors: BTreeMap<String, TensorInfo>,
}

/// Where an entry of the archive lies in the file.
#[derive(Clone, Copy)]
struct Span {
    begin: u64,
    end: u64,
}

impl Header {
    /// Reads the archive's directory and its pickle; the file has `len` bytes. No allocation is
    /// larger than a small multiple of `len`.
    ///
    /// # Errors
    /// A [`Problem`] for each way the archive, the pickle or a tensor can be broken, hostile or
    /// contradictory.
    pub fn read(file: &mut (impl Read + Seek), len: u64) -> Result<Self, Problem> {
        let io = |source| Problem::io("read the archive", source);
        let mut magic = [0; 4];
        if len < 4 || file.read_exact(&mut magic).is_err() {
            return Err(unrecognised(format!("the file has {len} bytes")));
        }
        if &magic != b"PK\x03\x04" {
            return Err(unrecognised(legacy(magic)));
        }
        file.rewind().map_err(io)?;
        let mut archive = ZipArchive::new(file).map_err(|error| zipped(&error))?;
        let entries = spans(&mut archive, len)?;
        let mut roots = entries
            .keys()
            .filter_map(|name| name.strip_suffix("/data.pkl"));
        let (Some(root), None) = (roots.next(), roots.next()) else {
            return Err(unrecognised(
                "it is a zip archive without one NAME/data.pkl".to_owned(),
            ));
        };
        let root = format!("{root}/");
        let pickle = contents(
            &mut archive,
            &entries,
            &format!("{root}data.pkl"),
            MAX_PICKLE,
        )?;
        let small = |archive: &mut _, name: &str| -> Result<Option<String>, Problem> {
            let name = format!("{root}{name}");
            if !entries.contains_key(&name) {
                return Ok(None);
            }
            let bytes = contents(archive, &entries, &name, 64)?;
            Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
        };
        match small(&mut archive, "version")?.as_deref() {
            None | Some("2" | "3") => {}
            Some(other) => return Err(Problem::key("the entry version", other, "2 or 3")),
        }
        match small(&mut archive, "byteorder")?.as_deref() {
            None | Some("little") => {}
            Some(other) => return Err(Problem::key("the entry byteorder", other, "little")),
        }
        let views = machine::run(&pickle)?;
        let tensors = place(&views, &entries, &root)?;
        Ok(Self { tensors })
    }
}

fn unrecognised(found: String) -> Problem {
    let accepted = ACCEPTED.to_owned();
    Problem::Unrecognised { found, accepted }
}

fn legacy(magic: [u8; 4]) -> String {
    if magic.starts_with(&[0x80, 0x02]) {
        "the file is a bare pickle, torch's format before 1.6".to_owned()
    } else {
        format!("the file starts with \"{}\"", magic.escape_ascii())
    }
}

fn zipped(source: &zip::result::ZipError) -> Problem {
    unrecognised(format!("the zip archive cannot be read ({source})"))
}

/// Where each entry lies. None is packed or encrypted, and no two share bytes, so what they unpack
/// to is no more than the file.
fn spans(
    archive: &mut ZipArchive<impl Read + Seek>,
    len: u64,
) -> Result<BTreeMap<String, Span>, Problem> {
    if archive.len() > MAX_ENTRIES {
        return Err(Problem::TooLarge {
            what: "the number of entries of the archive".to_owned(),
            value: archive.len() as u64,
            limit: MAX_ENTRIES as u64,
        });
    }
    let mut entries = BTreeMap::new();
    for i in 0..archive.len() {
        let entry = archive.by_index_raw(i).map_err(|error| zipped(&error))?;
        let name = entry.name().to_owned();
        if entry.encrypted()
            || entry.compression() != CompressionMethod::Stored
            || entry.size() != entry.compressed_size()
        {
            let what = format!("entry {name} of the archive");
            let how = if entry.encrypted() {
                "encrypted"
            } else {
                "compressed"
            };
            return Err(Problem::key(
                what,
                how,
                "entries that are stored as they are, as torch does",
            ));
        }
        let begin = entry.data_start().unwrap_or(u64::MAX);
        let end = begin.saturating_add(entry.size());
        if end > len {
            return Err(Problem::Truncated {
                what: format!("entry {name} of the archive"),
                at: begin,
                need: entry.size(),
                left: len.saturating_sub(begin),
            });
        }
        entries.insert(name, Span { begin, end });
    }
    let mut order: Vec<_> = entries
        .iter()
        .map(|(name, span)| (span.begin, span.end, name))
        .collect();
    order.sort_unstable();
    match order.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(entries),
        Some(pair) => Err(Problem::Overlap {
            tensor: format!("entry {}", pair[1].2),
            begin: pair[1].0,
            other: format!("entry {}", pair[0].2),
            end: pair[0].1,
        }),
    }
}

fn contents(
    archive: &mut ZipArchive<impl Read + Seek>,
    entries: &BTreeMap<String, Span>,
    name: &str,
    limit: u64,
) -> Result<Vec<u8>, Problem> {
    let value = entries.get(name).map_or(0, |span| span.end - span.begin);
    if value > limit {
        let what = format!("the length of entry {name}");
        return Err(Problem::TooLarge { what, value, limit });
    }
    let mut entry = archive.by_name(name).map_err(|error| zipped(&error))?;
    let mut bytes = Vec::new();
    let read = entry.read_to_end(&mut bytes);
    read.map_err(|source| Problem::io(&format!("read entry {name}"), source))?;
    Ok(bytes)
}

/// Gives every tensor its bytes in the file, and every storage its tensors.
fn place(
    views: &BTreeMap<String, View>,
    entries: &BTreeMap<String, Span>,
    root: &str,
) -> Result<BTreeMap<String, TensorInfo>, Problem> {
    let mut used = BTreeSet::new();
    let mut spans: Vec<(u64, u64, &String)> = Vec::new();
    let mut tensors = BTreeMap::new();
    for (name, view) in views {
        let Storage { key, dtype, count } = &view.storage;
        let entry = format!("{root}data/{key}");
        let Some(span) = entries.get(&entry) else {
            return Err(Problem::MissingTensor {
                tensor: name.clone(),
                accepted: format!("an archive with entry {entry}, which holds it"),
            });
        };
        let width = dtype.block_bytes() as u64;
        let found = span.end - span.begin;
        let need = count.checked_mul(width);
        if need != Some(found) {
            return Err(Problem::Size {
                tensor: format!("{name} (storage {key}, {count} values of {})", dtype.name()),
                found,
                need: need.unwrap_or(u64::MAX),
            });
        }
        if view.shape.len() > MAX_DIMS {
            return Err(Problem::Dimensions {
                tensor: name.clone(),
                shape: view.shape.clone(),
                accepted: "at most 4 dimensions",
            });
        }
        let (shape, bytes) = size(name, *dtype, &view.shape)?;
        view.check_strides(name)?;
        let begin = view
            .offset
            .checked_mul(width)
            .and_then(|at| at.checked_add(span.begin));
        let begin = begin.unwrap_or(u64::MAX);
        let end = begin.saturating_add(bytes as u64);
        if end > span.end {
            return Err(Problem::OutOfFile {
                tensor: name.clone(),
                begin: begin.saturating_sub(span.begin),
                end: end.saturating_sub(span.begin),
                len: found,
            });
        }
        used.insert(entry);
        spans.push((begin, end, name));
        let dtype = *dtype;
        tensors.insert(
            name.clone(),
            TensorInfo {
                dtype,
                shape,
                begin,
                bytes,
            },
        );
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        let same = pair[0].0 == pair[1].0 && pair[0].1 == pair[1].1;
        if pair[1].0 < pair[0].1 && !same {
            return Err(Problem::Overlap {
                tensor: pair[1].2.clone(),
                begin: pair[1].0,
                other: pair[0].2.clone(),
                end: pair[0].1,
            });
        }
    }
    let inert = |name: &str| {
        let rest = name.strip_prefix(root).unwrap_or(name);
        [
            "data.pkl",
            "version",
            "byteorder",
            ".format_version",
            ".storage_alignment",
        ]
        .contains(&rest)
            || rest.starts_with(".data/")
    };
    match entries
        .keys()
        .find(|name| !used.contains(*name) && !inert(name))
    {
        None => Ok(tensors),
        Some(name) => Err(Problem::UnknownTensor {
            tensor: format!("entry {name}"),
            why: "no tensor of the archive's table is in it".to_owned(),
        }),
    }
}
