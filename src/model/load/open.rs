//! Opening: from the files of a checkpoint to a checked table of tensors.

use std::{collections::BTreeMap, path::Path};

use super::{
    Checkpoint, Files, LoadError, Problem, eos_ids, json, names,
    table::{self, Table, read_json},
};
use crate::model::config::{Config, Declared};

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";

const ACCEPTED: &str =
    "a directory with config.json and model.safetensors (or its index), or a GGUF file";

pub(super) fn open(files: &Files) -> Result<Checkpoint, LoadError> {
    let unrecognised = |found: String| {
        let accepted = ACCEPTED.to_owned();
        LoadError::new(files.path(), Problem::Unrecognised { found, accepted })
    };
    if files.is_dir() {
        return directory(files);
    }
    let Some(magic) = table::magic(&files.whole())? else {
        let found = format!("the file has fewer than {} bytes", table::GGUF.len());
        return Err(unrecognised(found));
    };
    if magic != table::GGUF {
        let found = format!("the file starts with \"{}\"", magic.escape_ascii());
        return Err(unrecognised(found));
    }
    gguf_file(files)
}

fn directory(files: &Files) -> Result<Checkpoint, LoadError> {
    let dir = files.path();
    let config_file = files.file(CONFIG);
    let config_path = config_file.path();
    if !config_file.exists() {
        let (found, accepted) = (format!("there is no {CONFIG}"), ACCEPTED.to_owned());
        return Err(LoadError::new(
            dir,
            Problem::Unrecognised { found, accepted },
        ));
    }
    let declared =
        Config::from_json(&read_json(&config_file)?).map_err(|p| p.in_file(config_path))?;
    let mut warnings = Vec::new();
    let entries = table::safetensors(files, &mut warnings)?;
    let generation = files.file(GENERATION);
    let generation_eos = if generation.exists() {
        let text = read_json(&generation)?;
        json::object("the configuration", &text)
            .and_then(|map| eos_ids(&map, declared.config.vocab))
            .map_err(|p| p.in_file(generation.path()))?
    } else {
        None
    };
    let Declared {
        mut config,
        tied,
        eos,
        warnings: config_warnings,
    } = declared;
    warnings.extend(config_warnings);

    let has_head = entries.contains_key("lm_head.weight");
    match (tied, has_head) {
        (Some(true), true) | (Some(false), false) => {
            let problem = Problem::contradiction(
                format!("tie_word_embeddings is {has_head}"),
                format!(
                    "tensor lm_head.weight is {}",
                    if has_head { "there" } else { "missing" }
                ),
                "true without the tensor, or false with it",
            );
            return Err(problem.in_file(config_path));
        }
        _ => config.tied = !has_head,
    }
    let tensors = matched(dir, &config, entries, |name| Some(name.to_owned()))?;
    Ok(Checkpoint {
        path: dir.to_owned(),
        dir: dir.to_owned(),
        eos: generation_eos.or(eos).unwrap_or_default(),
        config,
        metadata: None,
        tensors,
        warnings,
    })
}

fn gguf_file(files: &Files) -> Result<Checkpoint, LoadError> {
    let path = files.path();
    let (metadata, mut entries) = table::gguf(&files.whole())?;
    let factors = table::rope_factors(&mut entries, path)?;
    let vocab = embedding_rows(&entries).map_err(|p| p.in_file(path))?;
    let Declared {
        mut config,
        eos,
        warnings,
        ..
    } = Config::from_gguf(&metadata, vocab, factors).map_err(|p| p.in_file(path))?;
    config.tied = !entries.contains_key("output.weight");
    let mut tensors = matched(path, &config, entries, names::canonical)?;
    for (name, entry) in &mut tensors {
        entry.interleave(name, config.heads, config.kv_heads);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    Ok(Checkpoint {
        path: path.to_owned(),
        dir: dir.unwrap_or(Path::new(".")).to_owned(),
        eos: eos.unwrap_or_default(),
        config,
        metadata: Some(metadata),
        tensors,
        warnings,
    })
}

/// The vocabulary, by the tensor that spans it.
fn embedding_rows(entries: &Table) -> Result<usize, Problem> {
    const EMBEDDING: &str = "token_embd.weight";
    match entries.get(EMBEDDING).map(|entry| &entry.shape[..]) {
        Some([vocab, _]) => Ok(*vocab),
        Some(other) => Err(Problem::Dimensions {
            tensor: EMBEDDING.to_owned(),
            shape: other.iter().map(|dim| *dim as u64).collect(),
            accepted: "two dimensions, [vocab, hidden]",
        }),
        None => Err(Problem::MissingTensor {
            tensor: EMBEDDING.to_owned(),
            accepted: "one of shape [vocab, hidden]".to_owned(),
        }),
    }
}

/// Gives every tensor of the network its entry, and every entry its place.
fn matched(
    path: &Path,
    config: &Config,
    entries: Table,
    canonical: impl Fn(&str) -> Option<String>,
) -> Result<Table, LoadError> {
    let mut found = BTreeMap::new();
    let mut odd = Vec::new();
    for (name, entry) in entries {
        match canonical(&name) {
            Some(name) => drop(found.insert(name, entry)),
            None => odd.push(entry),
        }
    }
    let mut tensors = BTreeMap::new();
    for (name, expected, why) in config.tensors() {
        let Some(entry) = found.remove(&name) else {
            let problem = Problem::MissingTensor {
                tensor: name,
                accepted: format!("one of shape {expected:?}, {why}"),
            };
            return Err(problem.in_file(path));
        };
        if entry.shape != expected {
            let problem = Problem::Shape {
                tensor: entry.name,
                found: entry.shape,
                expected,
                why,
            };
            return Err(problem.in_file(entry.file.path()));
        }
        entry.check_type()?;
        tensors.insert(name, entry);
    }
    let left = found.into_values().chain(odd);
    match left
        .filter(|entry| !is_buffer(&entry.name))
        .min_by(|a, b| a.name.cmp(&b.name))
    {
        None => Ok(tensors),
        Some(entry) => {
            let why = if entry.name.ends_with(".bias") {
                "it has no biases".to_owned()
            } else {
                format!(
                    "it has {} layers, and names as the llama decoder has them",
                    config.layers
                )
            };
            let tensor = entry.name;
            Err(Problem::UnknownTensor { tensor, why }.in_file(entry.file.path()))
        }
    }
}

/// Rotary frequencies that old writers saved; they follow from the configuration.
fn is_buffer(name: &str) -> bool {
    name.strip_prefix("model.layers.")
        .is_some_and(|rest| rest.ends_with(".self_attn.rotary_emb.inv_freq"))
        || name == "model.rotary_emb.inv_freq"
}
