//! Head files of every public format: found out by their tensors, read, and made one.
//!
//! What each engine leaves unsaid is decided here once, and said in the configuration's warnings.
//! A tensor without a place is an error: that is how a broken head would come to guess badly and
//! never complain.

mod declared;
mod gguf;
mod json;
mod names;
mod output;
mod resolve;
mod shapes;
mod taps;
mod vocab;

pub use declared::Declared;
pub(super) use names::gguf_name;
pub use resolve::Resolved;
pub use shapes::Shapes;
pub(super) use taps::usual;
pub use vocab::Maps;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::config::{HeadConfig, TapsConvention};
use crate::model::load::{
    Files, Inspect, LoadError, Problem, Source, Stored, StoredType, inspect,
    table::{self, Entry, INDEX, SINGLE, Table},
};
use names::Role;

const CONFIG: &str = "config.json";
const PICKLE: &str = "pytorch_model.bin";
const EMBEDDING: &str = "embed_tokens.weight";
const HEAD: &str = "lm_head.weight";
const ACCEPTED: &str =
    "a directory with config.json and pytorch_model.bin or model.safetensors, or a GGUF file";

/// What has to be known of the target to read a head for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// Width of its residual stream.
    pub hidden: usize,
    /// Its layers.
    pub layers: usize,
    /// Rows of its embedding.
    pub vocab: usize,
    /// Whether its output head is its embedding.
    pub tied: bool,
}

impl From<&crate::model::config::Config> for TargetFacts {
    fn from(config: &crate::model::config::Config) -> Self {
        let (hidden, layers, vocab, tied) =
            (config.hidden, config.layers, config.vocab, config.tied);
        Self {
            hidden,
            layers,
            vocab,
            tied,
        }
    }
}

/// Answers to what a head's files leave open; `None` takes what they say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadOptions {
    /// How the listed taps are numbered, [`TapsConvention::Input`] or `Output`.
    pub taps_convention: Option<TapsConvention>,
    /// Base of the rotary frequencies.
    pub theta: Option<f64>,
    /// Positions that the head is used for.
    pub context: Option<usize>,
    /// What the key `norm_output` means.
    pub norm_output: Option<NormOutput>,
}

/// What the key `norm_output` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOutput {
    /// Whether what is fed back is normed (EAGLE-3.1).
    Feedback,
    /// Whether the head is fed the normed output (SpecForge up to 0.2.0).
    Head,
}

/// An opened head: checked headers, tensors still in their files.
#[derive(Debug)]
pub struct HeadCheckpoint {
    path: PathBuf,
    config: HeadConfig,
    /// By canonical name.
    tensors: Table,
    order: Option<Vec<usize>>,
    /// Number of tensors in the files.
    count: usize,
}

/// What the files of a head hold, before a target is known.
struct Contents {
    declared: Declared,
    config_path: PathBuf,
    gguf: bool,
    /// By canonical name.
    tensors: Table,
    maps: Maps,
    /// Number of tensors in the files.
    count: usize,
}

impl Contents {
    fn read(files: &Files) -> Result<Self, LoadError> {
        let path = files.path();
        let mut warnings = Vec::new();
        let (metadata, mut table) = read_table(files, &mut warnings)?;
        let count = table.len();
        let (mut declared, config_path) = match &metadata {
            Some(metadata) => {
                let factors = table::rope_factors(&mut table, path)?;
                let declared = Declared::from_gguf(metadata, factors);
                (declared.map_err(|p| p.in_file(path))?, path.to_owned())
            }
            None => {
                let config = files.file(CONFIG);
                if !config.exists() {
                    let found = format!("there is no {CONFIG}");
                    return Err(unrecognised(found).in_file(path));
                }
                let declared = Declared::from_json(&table::read_json(&config)?);
                (
                    declared.map_err(|p| p.in_file(config.path()))?,
                    config.path().to_owned(),
                )
            }
        };
        warnings.append(&mut declared.warnings);
        declared.warnings = warnings;
        let gguf = metadata.is_some();
        let (tensors, maps) = sorted(table, gguf, path)?;
        Ok(Self {
            declared,
            config_path,
            gguf,
            tensors,
            maps,
            count,
        })
    }
}

impl TargetFacts {
    /// The number of layers of a target that is not known.
    pub const UNKNOWN: usize = usize::MAX;

    /// What the files of `head` say of its target, for work that needs no target: widths and
    /// vocabulary. The layers stay [`UNKNOWN`](Self::UNKNOWN), so taps that the files do not list have
    /// no meaning yet.
    ///
    /// # Errors
    /// If its headers cannot be read, or do not say.
    pub fn of_head(head: impl Into<Files>) -> Result<Self, LoadError> {
        let Contents {
            declared,
            config_path,
            tensors,
            maps,
            ..
        } = Contents::read(&head.into())?;
        let rows = |name: &str| tensors.get(name)?.shape.first().copied();
        let marks = maps.t2d.as_ref().map(Vec::len);
        let vocab = declared.vocab.or(marks).or_else(|| rows(EMBEDDING));
        let vocab = vocab.ok_or_else(|| {
            Problem::missing("vocab_size", "the target's vocabulary, or --model")
                .in_file(&config_path)
        })?;
        Ok(Self {
            hidden: declared.target_hidden.unwrap_or(declared.hidden),
            layers: Self::UNKNOWN,
            vocab,
            tied: false,
        })
    }
}

/// Whether the checkpoint of `files` is a head, by its tensors.
///
/// # Errors
/// If its headers cannot be read.
pub fn is_head(files: impl Into<Files>) -> Result<bool, LoadError> {
    let files = files.into();
    let weights = || [SINGLE, INDEX, PICKLE].map(|name| files.file(name));
    if files.is_dir() && !weights().iter().any(Source::exists) {
        return Ok(false);
    }
    if !files.is_dir() && !is_gguf(&files)? {
        return Ok(false);
    }
    let mut warnings = Vec::new();
    let (_, table) = read_table(&files, &mut warnings)?;
    Ok(table.keys().any(|name| names::only_in_heads(name)))
}

impl HeadCheckpoint {
    /// Opens the directory or GGUF file `files` as a head for `target`: reads and checks all
    /// headers and the vocabulary map, no weight.
    ///
    /// # Errors
    /// Whatever is unknown, missing, of the wrong shape, out of range, contradictory or ambiguous;
    /// see [`Problem`].
    pub fn open(
        files: impl Into<Files>,
        target: &TargetFacts,
        options: &HeadOptions,
    ) -> Result<Self, LoadError> {
        let files = files.into();
        let path = files.path();
        let Contents {
            declared,
            config_path,
            gguf,
            mut tensors,
            maps,
            count,
        } = Contents::read(&files)?;
        let shapes = tensors
            .iter()
            .map(|(name, entry)| (name.clone(), entry.shape.clone()))
            .collect();
        let resolved = declared
            .resolve(&shapes, &maps, target, options)
            .map_err(|p| p.in_file(&config_path))?;
        resolved.check(&shapes).map_err(|p| p.in_file(path))?;
        let Resolved {
            config,
            order,
            dropped,
        } = resolved;
        tensors.retain(|name, _| !dropped.contains(name));
        for (name, entry) in &mut tensors {
            entry.check_type()?;
            if gguf {
                entry.interleave(name, config.heads, config.kv_heads);
            }
        }
        let path = path.to_owned();
        Ok(Self {
            path,
            config,
            tensors,
            order,
            count,
        })
    }

    /// What the head computes.
    #[must_use]
    pub fn config(&self) -> &HeadConfig {
        &self.config
    }

    /// What was opened: the directory or the GGUF file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its vocabulary had to be changed to fit the target, if it had: rows that the files hold and
    /// the head has not, or the other way round.
    #[must_use]
    pub fn refitted(&self) -> Option<String> {
        let config = &self.config;
        let rows = |name: &str| self.tensors.get(name)?.shape.first().copied();
        let changed = |name: &str, ours: usize| {
            let theirs = rows(name).filter(|theirs| *theirs != ours)?;
            Some(format!("{name} of {theirs} rows for {ours} tokens"))
        };
        changed(EMBEDDING, config.vocab).or_else(|| changed(HEAD, config.draft_vocab))
    }

    /// Stored types of its tensors, by canonical name.
    pub fn types(&self) -> impl Iterator<Item = (&str, StoredType)> {
        let entries = self.tensors.iter();
        entries.map(|(name, entry)| (name.as_str(), entry.dtype))
    }

    /// Canonical names of all tensors, those of [`HeadConfig::tensors`].
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.config.tensors().into_iter().map(|(name, ..)| name)
    }

    /// Reads the tensor `name`, with the shape that [`HeadConfig::tensors`] gives: rows of the head
    /// in the order of their tokens, the embedding with a row for each of the target's tokens.
    ///
    /// # Errors
    /// If there is none, or the file cannot be read.
    pub fn stored(&self, name: &str) -> Result<Stored, LoadError> {
        let own = self.tensors.get(name);
        let tied = || {
            self.tensors
                .get(EMBEDDING)
                .filter(|_| name == HEAD && self.config.own_head)
        };
        let Some(entry) = own.or_else(tied) else {
            let tensor = name.to_owned();
            let accepted = "the name of a tensor of this head".to_owned();
            return Err(Problem::MissingTensor { tensor, accepted }.in_file(&self.path));
        };
        let mut stored = entry.read(name)?;
        match (name, &self.order) {
            (HEAD, Some(order)) => {
                let rows = order.iter().flat_map(|row| stored.row(*row));
                stored.bytes = rows.copied().collect();
                stored.shape[0] = order.len();
            }
            (EMBEDDING, _) if stored.shape[0] != self.config.vocab => {
                let width = stored.bytes.len() / stored.shape[0];
                stored.bytes.resize(width * self.config.vocab, 0);
                stored.shape[0] = self.config.vocab;
            }
            _ => {}
        }
        Ok(stored)
    }

    /// Checks that the network that was built used every tensor.
    ///
    /// # Errors
    /// [`Problem::UnusedTensor`] with the first tensor that is not in `used`.
    pub fn finish_check<'n>(
        &self,
        used: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), LoadError> {
        let used: BTreeSet<&str> = used.into_iter().collect();
        match self.names().find(|name| !used.contains(name.as_str())) {
            None => Ok(()),
            Some(tensor) => Err(Problem::UnusedTensor { tensor }.in_file(&self.path)),
        }
    }

    /// What was understood.
    #[must_use]
    pub fn inspect(&self) -> Inspect {
        let config = &self.config;
        let own = |own: bool| if own { "own" } else { "target" };
        Inspect {
            format: config.version.name(),
            source: config.source.name(),
            taps: config.feature.taps().to_vec(),
            taps_convention: config
                .taps_convention
                .map(|convention| convention.name().to_owned()),
            hidden: config.hidden,
            target_hidden: Some(config.target_hidden),
            layers: config.layers,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            vocab: config.vocab,
            draft_vocab: Some(config.draft_vocab),
            vocab_map: Some(config.map_form.name().to_owned()),
            embedding: own(config.own_embedding),
            lm_head: own(config.own_head),
            norms: config.norms().into_iter().map(str::to_owned).collect(),
            rope: inspect::rope(&config.rope),
            max_position: config.max_position,
            dtype: table::types(self.tensors.values()),
            tensors: self.count,
            warnings: config.warnings.clone(),
        }
    }
}

fn unrecognised(found: String) -> Problem {
    let accepted = ACCEPTED.to_owned();
    Problem::Unrecognised { found, accepted }
}

fn is_gguf(files: &Files) -> Result<bool, LoadError> {
    Ok(table::magic(&files.whole())? == Some(table::GGUF))
}

/// The metadata, if it is a GGUF file, and the tensors by the file's names.
fn read_table(
    files: &Files,
    warnings: &mut Vec<String>,
) -> Result<(Option<crate::model::load::gguf::Metadata>, Table), LoadError> {
    let path = files.path();
    if !files.is_dir() {
        if !is_gguf(files)? {
            return Err(unrecognised("the file is no GGUF file".to_owned()).in_file(path));
        }
        let (metadata, table) = table::gguf(&files.whole())?;
        return Ok((Some(metadata), table));
    }
    let pickle = files.file(PICKLE);
    let safetensors = files.file(SINGLE).exists() || files.file(INDEX).exists();
    if !pickle.exists() {
        if !safetensors {
            return Err(unrecognised("there are no weights".to_owned()).in_file(path));
        }
        return Ok((None, table::safetensors(files, warnings)?));
    }
    let table = table::pickle(&pickle)?;
    if safetensors {
        let other = table::safetensors(files, &mut Vec::new())?;
        agree(&table, &other).map_err(|p| p.in_file(path))?;
        warnings.push(format!("{PICKLE} and safetensors hold the same tensors; the former is read, as the reference does"));
    }
    Ok((None, table))
}

/// Two files of weights must be of one head; their values are not compared.
fn agree(one: &Table, other: &Table) -> Result<(), Problem> {
    let differs =
        |name: &&String| one.get(*name).map(|e| &e.shape) != other.get(*name).map(|e| &e.shape);
    match one.keys().chain(other.keys()).find(differs) {
        None => Ok(()),
        Some(name) => {
            let said = |table: &Table| match table.get(name) {
                Some(entry) => format!("has shape {:?}", entry.shape),
                None => "is missing".to_owned(),
            };
            Err(Problem::contradiction(
                format!("tensor {name} {} in {PICKLE}", said(one)),
                format!("it {} in safetensors", said(other)),
                "one of the two files, or the same tensors in both",
            ))
        }
    }
}

/// Tensors by canonical name, and the vocabulary map.
fn sorted(table: Table, gguf: bool, path: &Path) -> Result<(Table, Maps), LoadError> {
    let mut tensors = Table::new();
    let mut maps = Maps {
        absolute: gguf,
        ..Maps::default()
    };
    let mut places = BTreeMap::<String, String>::new();
    for (name, entry) in table {
        let role = if gguf {
            names::gguf_role(&name)
        } else {
            names::role(&name)
        };
        let canonical = match role {
            Role::Weight(canonical) => canonical,
            Role::DraftToTarget => "d2t".to_owned(),
            Role::TargetToDraft => "t2d".to_owned(),
            Role::Buffer => continue,
            Role::Foreign(method) => {
                let why = format!("it is of {method}; accepted are heads of EAGLE-1 and EAGLE-3");
                return Err(Problem::UnknownTensor { tensor: name, why }.in_file(entry.file.path()));
            }
            Role::Unknown => {
                let why = "no head of EAGLE-1 or EAGLE-3 has one of this name".to_owned();
                return Err(Problem::UnknownTensor { tensor: name, why }.in_file(entry.file.path()));
            }
        };
        if let Some(other) = places.insert(canonical.clone(), name.clone()) {
            let places = format!("as {other} and as {name}");
            let tensor = canonical;
            return Err(Problem::DuplicateTensor { tensor, places }.in_file(path));
        }
        match canonical.as_str() {
            "d2t" => maps.d2t = Some(integers(&entry, &name)?),
            "t2d" => maps.t2d = Some(truths(&entry, &name)?),
            _ => drop(tensors.insert(canonical, entry)),
        }
    }
    Ok((tensors, maps))
}

fn flat(entry: &Entry, name: &str, accepted: &'static str) -> Result<Stored, LoadError> {
    if entry.shape.len() != 1 {
        let shape = entry.shape.iter().map(|dim| *dim as u64).collect();
        let tensor = name.to_owned();
        return Err(Problem::Dimensions {
            tensor,
            shape,
            accepted,
        }
        .in_file(entry.file.path()));
    }
    entry.read(name)
}

fn integers(entry: &Entry, name: &str) -> Result<Vec<i64>, LoadError> {
    let stored = flat(entry, name, "one dimension, the rows of the head")?;
    match stored.dtype {
        StoredType::I64 => Ok(stored
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i64::from_le_bytes(*b))
            .collect()),
        StoredType::I32 => Ok(stored
            .bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b).into())
            .collect()),
        other => {
            let (tensor, found) = (name.to_owned(), other.name().to_owned());
            Err(Problem::TensorType {
                tensor,
                found,
                accepted: "i64, i32",
            }
            .in_file(entry.file.path()))
        }
    }
}

fn truths(entry: &Entry, name: &str) -> Result<Vec<bool>, LoadError> {
    let stored = flat(entry, name, "one dimension, the vocabulary")?;
    if stored.dtype != StoredType::Bool {
        let (tensor, found) = (name.to_owned(), stored.dtype.name().to_owned());
        return Err(Problem::TensorType {
            tensor,
            found,
            accepted: "bool",
        }
        .in_file(entry.file.path()));
    }
    let one = |(at, byte): (usize, &u8)| match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => {
            Err(Problem::key(format!("{name}[{at}]"), other, "0 or 1").in_file(entry.file.path()))
        }
    };
    stored.bytes.iter().enumerate().map(one).collect()
}
