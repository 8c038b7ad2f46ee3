//! `head.gguf`: llama.cpp's architecture `eagle3`, GGUF version 3.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use super::{
    super::{
        config::{HeadConfig, VocabMap},
        load::gguf_name,
    },
    Conversion,
    error::SaveError,
    held::single,
};
use crate::model::{
    config::{RopeConfig, RopeScaling},
    load::{Stored, StoredType, gguf::Value},
};

pub(super) const FILE: &str = "head.gguf";
const ALIGNMENT: usize = 32;
const FACTORS: &str = "rope_freqs.weight";

/// Writes the head to the file `path`.
pub(super) fn write(
    from: &Conversion<'_>,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<(), SaveError> {
    let config = from.head.config();
    let mut metadata = metadata(config);
    metadata.extend(tokenizer(from, notes));
    let tensors = tensors(from)?;
    let file = File::create(path).map_err(SaveError::io(path, "make it"))?;
    let mut out = BufWriter::new(file);
    let written = file_of(&mut out, &metadata, &tensors).and_then(|()| out.flush());
    written.map_err(SaveError::io(path, "write it"))
}

fn metadata(c: &HeadConfig) -> Vec<(String, Value)> {
    let size = |n: usize| u32::try_from(n).map_or(Value::U64(n as u64), Value::U32);
    let tap = |n: &usize| i32::try_from(*n).map_or(Value::I64(i64::MAX), Value::I32);
    let taps = c.feature.taps().iter().map(tap).collect();
    let mut all = vec![
        ("general.architecture", Value::String("eagle3".to_owned())),
        ("eagle3.block_count", size(c.layers)),
        ("eagle3.context_length", size(c.max_position)),
        ("eagle3.embedding_length", size(c.hidden)),
        ("eagle3.feed_forward_length", size(c.intermediate)),
        ("eagle3.attention.head_count", size(c.heads)),
        ("eagle3.attention.head_count_kv", size(c.kv_heads)),
        (
            "eagle3.attention.layer_norm_rms_epsilon",
            Value::F32(single(c.eps)),
        ),
        ("eagle3.attention.key_length", size(c.head_dim)),
        ("eagle3.attention.value_length", size(c.head_dim)),
        ("eagle3.rope.dimension_count", size(c.head_dim)),
        ("eagle3.rope.freq_base", Value::F32(single(c.rope.theta))),
        ("eagle3.vocab_size", size(c.vocab)),
        ("eagle3.target_hidden_size", size(c.target_hidden)),
        ("eagle3.target_layers", Value::Array(taps)),
        (
            "eagle3.norm_before_residual",
            Value::Bool(c.norm_before_residual),
        ),
        ("eagle3.norm_before_fc", Value::Bool(c.norm_before_fc)),
    ];
    if let RopeScaling::Linear { factor } = c.rope.scaling {
        let kind = Value::String("linear".to_owned());
        all.push(("eagle3.rope.scaling.type", kind));
        all.push(("eagle3.rope.scaling.factor", Value::F32(single(factor))));
    }
    let owned = all.into_iter().map(|(key, value)| (key.to_owned(), value));
    owned.collect()
}

/// The target's tokenizer, which a reader takes from the head's file too; none if it is not at hand.
fn tokenizer(from: &Conversion<'_>, notes: &mut Vec<String>) -> Vec<(String, Value)> {
    let all = from.metadata.iter().flat_map(|metadata| metadata.iter());
    let words = all.filter(|(key, _)| key.starts_with("tokenizer."));
    let words = words.map(|(key, value)| (key.to_owned(), value.clone()));
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        notes.push(
            "no tokenizer is written; with a GGUF target as --model its own would be".to_owned(),
        );
        let none = Value::String("none".to_owned());
        return vec![("tokenizer.ggml.model".to_owned(), none)];
    }
    words
}

/// The tensors by llama.cpp's names: norms as f32, as its own converter writes them, all else as it
/// is stored; queries and keys with the rows of a pair side by side.
fn tensors(from: &Conversion<'_>) -> Result<Vec<Stored>, SaveError> {
    let config = from.head.config();
    let mut all = Vec::new();
    for name in from.head.names() {
        let mut stored = from.head.stored(&name)?;
        if name.ends_with("q_proj.weight") {
            interleave(&mut stored, config.heads);
        } else if name.ends_with("k_proj.weight") {
            interleave(&mut stored, config.kv_heads);
        }
        if let (1, Ok(values)) = (stored.shape.len(), stored.floats()) {
            stored = vector("", &values);
        }
        let Some(theirs) = gguf_name(&name) else {
            let what = format!("tensor {name} has no name in GGUF");
            return Err(SaveError::Differs { what });
        };
        stored.name = theirs.to_owned();
        all.push(stored);
    }
    if let VocabMap::Reduced(ids) = &config.vocab_map {
        let bytes = ids.iter().flat_map(|id| i64::from(*id).to_le_bytes());
        all.push(Stored {
            name: "d2t".to_owned(),
            dtype: StoredType::I64,
            shape: vec![ids.len()],
            bytes: bytes.collect(),
        });
    }
    match &config.rope.scaling {
        RopeScaling::Factors(factors) => all.push(vector(FACTORS, factors)),
        RopeScaling::Llama3 { .. } => all.push(vector(FACTORS, &divisors(config))),
        // YaRN is not held, which was found before.
        RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Yarn { .. } => {}
    }
    Ok(all)
}

fn vector(name: &str, values: &[f32]) -> Stored {
    Stored {
        name: name.to_owned(),
        dtype: StoredType::F32,
        shape: vec![values.len()],
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// Puts the rows i and i + half of each of `heads` heads side by side: GGUF's rotary order.
fn interleave(stored: &mut Stored, heads: usize) {
    let head = stored.rows() / heads;
    let half = head / 2;
    let rows = (0..heads)
        .flat_map(|h| (0..half).flat_map(move |i| [0, half].map(|part| h * head + part + i)));
    stored.bytes = rows.flat_map(|row| stored.row(row)).copied().collect();
}

/// What the plain frequencies are divided by, so that the quotient is the scaled one if any 32-bit
/// divisor leads there, and the nearest one else.
fn divisors(config: &HeadConfig) -> Vec<f32> {
    let plain = RopeConfig {
        theta: config.rope.theta,
        scaling: RopeScaling::None,
    };
    let wanted = config.rope.frequencies(config.head_dim);
    let with = |divisor: f32, pair: usize| {
        let scaling = RopeScaling::Factors(vec![divisor; config.head_dim / 2]);
        let turned = RopeConfig {
            scaling,
            ..plain.clone()
        };
        turned.frequencies(config.head_dim)[pair]
    };
    let base = plain.frequencies(config.head_dim);
    let best = |(pair, (plain, wanted)): (usize, (&f32, &f32))| {
        let near = plain / wanted;
        let tried = [near, near.next_up(), near.next_down()];
        let hits = tried.into_iter().find(|d| with(*d, pair) == *wanted);
        hits.unwrap_or(near)
    };
    base.iter().zip(&wanted).enumerate().map(best).collect()
}

fn file_of(
    out: &mut impl Write,
    metadata: &[(String, Value)],
    tensors: &[Stored],
) -> std::io::Result<()> {
    let count = |n: usize| (n as u64).to_le_bytes();
    out.write_all(b"GGUF")?;
    out.write_all(&3_u32.to_le_bytes())?;
    out.write_all(&count(tensors.len()))?;
    out.write_all(&count(metadata.len()))?;
    let mut head = Vec::new();
    for (key, value) in metadata {
        string(&mut head, key);
        head.extend(kind(value).to_le_bytes());
        payload(&mut head, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        string(&mut head, &tensor.name);
        let rank = u32::try_from(tensor.shape.len()).unwrap_or(u32::MAX);
        head.extend(rank.to_le_bytes());
        // The fastest dimension first.
        head.extend(tensor.shape.iter().rev().flat_map(|dim| count(*dim)));
        head.extend(tensor.dtype.ggml().unwrap_or(u32::MAX).to_le_bytes());
        head.extend(count(offset));
        offset = (offset + tensor.bytes.len()).next_multiple_of(ALIGNMENT);
    }
    let begin = 4 + 4 + 8 + 8 + head.len();
    head.resize(head.len() + begin.next_multiple_of(ALIGNMENT) - begin, 0);
    out.write_all(&head)?;
    for tensor in tensors {
        out.write_all(&tensor.bytes)?;
        let len = tensor.bytes.len();
        out.write_all(&[0; ALIGNMENT][..len.next_multiple_of(ALIGNMENT) - len])?;
    }
    Ok(())
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// GGUF's number of the value's type.
fn kind(value: &Value) -> u32 {
    match value {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    }
}

fn payload(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => string(out, v),
        Value::Array(all) => {
            // What an empty array would hold does not matter.
            out.extend(all.first().map_or(8, kind).to_le_bytes());
            out.extend((all.len() as u64).to_le_bytes());
            all.iter().for_each(|value| payload(out, value));
        }
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
    }
}
