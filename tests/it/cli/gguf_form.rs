//! Heads as GGUF, by a reader of this file's own, against what llama.cpp asks of its architecture `eagle3`:
//! the keys and tensors that its loader names, their types and shapes, and what it does not know.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{eyrie, file, shipped::shipped};
use crate::support::say;

const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Keys that have to be there, by GGUF's number of their type, and what they say as the head's config.json
/// calls it.
const KEYS: [(&str, u32, &str); 16] = [
    ("general.architecture", STRING, ""),
    ("eagle3.block_count", U32, "num_hidden_layers"),
    ("eagle3.context_length", U32, "max_position_embeddings"),
    ("eagle3.embedding_length", U32, "hidden_size"),
    ("eagle3.feed_forward_length", U32, "intermediate_size"),
    ("eagle3.attention.head_count", U32, "num_attention_heads"),
    ("eagle3.attention.head_count_kv", U32, "num_key_value_heads"),
    (
        "eagle3.attention.layer_norm_rms_epsilon",
        F32,
        "rms_norm_eps",
    ),
    ("eagle3.attention.key_length", U32, ""),
    ("eagle3.rope.dimension_count", U32, ""),
    ("eagle3.rope.freq_base", F32, "rope_theta"),
    ("eagle3.vocab_size", U32, "vocab_size"),
    ("eagle3.target_hidden_size", U32, ""),
    ("eagle3.target_layers", ARRAY, ""),
    ("eagle3.norm_before_residual", BOOL, ""),
    ("eagle3.norm_before_fc", BOOL, ""),
];
/// Keys of the architecture that may be there.
const MORE_KEYS: [&str; 3] = [
    "eagle3.attention.value_length",
    "eagle3.rope.scaling.type",
    "eagle3.rope.scaling.factor",
];

/// Tensors that have to be there, by their names in the paper's form; a capital is a width.
const TENSORS: [(&str, &str, &str); 14] = [
    ("fc.weight", "fc.weight", "H T"),
    (
        "blk.0.attn_norm.weight",
        "midlayer.input_layernorm.weight",
        "H",
    ),
    (
        "blk.0.attn_norm_2.weight",
        "midlayer.hidden_norm.weight",
        "H",
    ),
    (
        "blk.0.attn_q.weight",
        "midlayer.self_attn.q_proj.weight",
        "Q X",
    ),
    (
        "blk.0.attn_k.weight",
        "midlayer.self_attn.k_proj.weight",
        "K X",
    ),
    (
        "blk.0.attn_v.weight",
        "midlayer.self_attn.v_proj.weight",
        "K X",
    ),
    (
        "blk.0.attn_output.weight",
        "midlayer.self_attn.o_proj.weight",
        "H Q",
    ),
    (
        "blk.0.ffn_norm.weight",
        "midlayer.post_attention_layernorm.weight",
        "H",
    ),
    (
        "blk.0.ffn_gate.weight",
        "midlayer.mlp.gate_proj.weight",
        "M H",
    ),
    ("blk.0.ffn_up.weight", "midlayer.mlp.up_proj.weight", "M H"),
    (
        "blk.0.ffn_down.weight",
        "midlayer.mlp.down_proj.weight",
        "H M",
    ),
    ("output_norm.weight", "norm.weight", "H"),
    ("output.weight", "lm_head.weight", "D H"),
    ("d2t", "d2t", "D"),
];
/// Tensors that may be there.
const MORE_TENSORS: [&str; 2] = ["token_embd.weight", "rope_freqs.weight"];

/// A file as it lies there.
#[derive(Clone, Debug, Default)]
struct Form {
    /// By name, the number of the type and the value.
    keys: BTreeMap<String, (u32, Value)>,
    /// By name, slowest dimension first, the number of the type, and the bytes.
    tensors: BTreeMap<String, (Vec<u64>, u32, Vec<u8>)>,
    twice: Vec<String>,
}

/// What is left of a file.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_first_chunk().expect("more bytes");
        self.0 = rest;
        *now
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn size(&mut self) -> usize {
        usize::try_from(self.u64()).expect("a size")
    }

    fn string(&mut self) -> String {
        let size = self.size();
        let (now, rest) = self.0.split_at(size);
        self.0 = rest;
        String::from_utf8(now.to_vec()).expect("text")
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            0 => json!(u8::from_le_bytes(self.take())),
            1 => json!(i8::from_le_bytes(self.take())),
            2 => json!(u16::from_le_bytes(self.take())),
            3 => json!(i16::from_le_bytes(self.take())),
            U32 => json!(self.u32()),
            I32 => json!(i32::from_le_bytes(self.take())),
            F32 => json!(f32::from_le_bytes(self.take())),
            BOOL => json!(self.take::<1>() == [1]),
            STRING => json!(self.string()),
            ARRAY => {
                let (kind, count) = (self.u32(), self.u64());
                let values: Vec<Value> = (0..count).map(|_| self.value(kind)).collect();
                json!({"kind": kind, "values": values})
            }
            10 => json!(self.u64()),
            11 => json!(i64::from_le_bytes(self.take())),
            12 => json!(f64::from_le_bytes(self.take())),
            other => panic!("GGUF has no type {other}"),
        }
    }
}

impl Form {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("the file");
        let mut rest = Rest(&bytes);
        assert_eq!(&rest.take::<4>(), b"GGUF");
        assert_eq!(rest.u32(), 3, "the version");
        let (tensors, keys) = (rest.u64(), rest.u64());
        let mut form = Self::default();
        for _ in 0..keys {
            let (key, kind) = (rest.string(), rest.u32());
            let value = rest.value(kind);
            if form.keys.insert(key.clone(), (kind, value)).is_some() {
                form.twice.push(key);
            }
        }
        let mut places = Vec::new();
        for _ in 0..tensors {
            let (name, rank) = (rest.string(), rest.u32());
            let mut shape: Vec<u64> = (0..rank).map(|_| rest.u64()).collect();
            shape.reverse();
            places.push((name, shape, rest.u32(), rest.size()));
        }
        let data = (bytes.len() - rest.0.len()).next_multiple_of(32);
        for (name, shape, kind, offset) in places {
            assert_eq!(offset % 32, 0, "{name} begins at {offset}");
            let size = match kind {
                0 => 4,
                1 | 30 => 2,
                27 => 8,
                other => panic!("{name} has type {other}"),
            };
            let len = size * usize::try_from(shape.iter().product::<u64>()).expect("a size");
            let values = bytes[data + offset..][..len].to_vec();
            let before = form.tensors.insert(name.clone(), (shape, kind, values));
            if before.is_some() {
                form.twice.push(name);
            }
        }
        form
    }

    fn number(&self, key: &str) -> u64 {
        self.keys[key].1.as_u64().expect(key)
    }

    /// What llama.cpp would not read, or read as another head than the one in the folder `head`.
    fn faults(&self, head: &Path) -> Vec<String> {
        let mut faults: Vec<String> = self
            .twice
            .iter()
            .map(|name| format!("{name} is there twice"))
            .collect();
        let text = fs::read_to_string(head.join("config.json")).expect("config.json");
        let config: Value = serde_json::from_str(&text).expect("JSON");
        self.keys_into(&config, &mut faults);
        if faults.is_empty() {
            self.tensors_into(head, &mut faults);
        }
        faults
    }

    fn keys_into(&self, config: &Value, faults: &mut Vec<String>) {
        for (key, kind, from) in KEYS {
            let Some((found, value)) = self.keys.get(key) else {
                faults.push(format!("{key} is missing"));
                continue;
            };
            if *found != kind {
                faults.push(format!("{key} has type {found}"));
            }
            let same = match (value.as_f64(), config[from].as_f64()) {
                _ if from.is_empty() => true,
                (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs(),
                _ => false,
            };
            if !same {
                faults.push(format!("{key} is {value}, {from} {}", config[from]));
            }
        }
        let known = |key: &str| {
            KEYS.iter().any(|(known, ..)| *known == key)
                || MORE_KEYS.contains(&key)
                || key.starts_with("tokenizer.")
                || key.starts_with("general.")
        };
        let unknown = self.keys.keys().filter(|key| !known(key));
        faults.extend(unknown.map(|key| format!("{key} is unknown")));
        if !faults.is_empty() {
            return;
        }
        if self.keys["general.architecture"].1 != "eagle3" {
            faults.push("another architecture".to_owned());
        }
        if self.number("eagle3.block_count") != 1 {
            faults.push("more than a layer".to_owned());
        }
        let width = self.number("eagle3.attention.key_length");
        let turned = self.number("eagle3.rope.dimension_count");
        if width != turned || !width.is_multiple_of(2) {
            faults.push(format!("heads of {width} of which {turned} are turned"));
        }
        let taps = &self.keys["eagle3.target_layers"].1;
        let ids: Vec<u64> = (taps["values"].as_array().into_iter().flatten())
            .filter_map(Value::as_u64)
            .collect();
        let listed = &config["eagle_aux_hidden_state_layer_ids"];
        let usual = matches!(ids[..], [2, middle, last] if middle == (last + 3) / 2);
        if taps["kind"] != I32 || ids.len() != 3 || !(usual || *listed == json!(ids)) {
            faults.push(format!("taps {taps}, {listed} in config.json"));
        }
        match self.keys.get("tokenizer.ggml.model") {
            Some((STRING, model)) if model == "none" => {}
            Some((STRING, _)) => {
                let tokens = self.keys.get("tokenizer.ggml.tokens");
                let tokens = tokens.and_then(|(_, tokens)| tokens["values"].as_array());
                let count = tokens.map_or(0, Vec::len) as u64;
                if count != self.number("eagle3.vocab_size") {
                    faults.push(format!("a tokenizer of {count} tokens"));
                }
            }
            other => faults.push(format!("tokenizer.ggml.model is {other:?}")),
        }
    }

    fn tensors_into(&self, head: &Path, faults: &mut Vec<String>) {
        let bytes = fs::read(head.join("model.safetensors")).expect("the tensors");
        let theirs = SafeTensors::deserialize(&bytes).expect("safetensors");
        let width = self.number("eagle3.attention.key_length");
        let heads = |key: &str| self.number(&format!("eagle3.attention.{key}"));
        let hidden = self.number("eagle3.embedding_length");
        let letter = |letter: &str| match letter {
            "H" => hidden,
            "X" => 2 * hidden,
            "T" => 3 * self.number("eagle3.target_hidden_size"),
            "Q" => heads("head_count") * width,
            "K" => heads("head_count_kv") * width,
            "M" => self.number("eagle3.feed_forward_length"),
            "D" => self.tensors["d2t"].0.iter().product(),
            other => panic!("no width {other}"),
        };
        let known = |name: &str| {
            TENSORS.iter().any(|(known, ..)| *known == name) || MORE_TENSORS.contains(&name)
        };
        let unknown = self.tensors.keys().filter(|name| !known(name));
        faults.extend(unknown.map(|name| format!("{name} is unknown")));
        let missing = TENSORS
            .iter()
            .filter(|(name, ..)| !self.tensors.contains_key(*name));
        faults.extend(missing.map(|(name, ..)| format!("{name} is missing")));
        if !faults.is_empty() {
            return;
        }
        for (name, from, widths) in TENSORS {
            let (shape, kind, values) = &self.tensors[name];
            let expected: Vec<u64> = widths.split(' ').map(letter).collect();
            let stored = theirs.tensor(from).expect(from);
            let same = match (name, shape.len()) {
                ("d2t", _) => *kind == 27 && *values == absolute(stored.data()),
                // Its loader takes norms as f32 only.
                (_, 1) => *kind == 0,
                ("blk.0.attn_q.weight" | "blk.0.attn_k.weight", _) => {
                    let width = usize::try_from(width).expect("a width");
                    let rows = usize::try_from(shape[0]).expect("rows");
                    *kind == number(stored.dtype()) && *values == turned(stored.data(), rows, width)
                }
                _ => *kind == number(stored.dtype()) && *values == *stored.data(),
            };
            if *shape != expected || !same {
                faults.push(format!(
                    "{name}: {shape:?} of type {kind}; {expected:?} of {from}"
                ));
            }
        }
        let vocab = self.number("eagle3.vocab_size");
        let mut ids: Vec<u64> = longs(&self.tensors["d2t"].2);
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != count || ids.last().is_some_and(|id| *id >= vocab) {
            faults.push(format!("d2t leads out of {vocab} tokens, or twice to one"));
        }
    }
}

fn number(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 1,
        Dtype::BF16 => 30,
        other => panic!("GGUF has no number here for {other:?}"),
    }
}

fn longs(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

/// Offsets as the target ids that they lead to.
fn absolute(offsets: &[u8]) -> Vec<u8> {
    let ids = longs(offsets)
        .into_iter()
        .zip(0..)
        .map(|(offset, row)| offset + row);
    ids.flat_map(u64::to_le_bytes).collect()
}

/// Rows with the two of each rotary pair side by side: 0, half, 1, half + 1, ...
fn turned(bytes: &[u8], rows: usize, width: usize) -> Vec<u8> {
    let row = bytes.len() / rows;
    let from = |to: usize| to / width * width + to % width / 2 + to % 2 * (width / 2);
    (0..rows)
        .flat_map(|to| &bytes[from(to) * row..][..row])
        .copied()
        .collect()
}

/// The head `head` in llama.cpp's form.
fn converted(head: &Path, target: &Path) -> Form {
    let dir = TempDir::new().expect("a temporary folder");
    let out = dir.path().join("gguf").display().to_string();
    let [head, target] = [head, target].map(|path| path.display().to_string());
    let ran = eyrie(&[
        "convert", &head, "--to", "gguf", "--model", &target, "--out", &out,
    ]);
    assert_eq!(ran.code, 0, "{head}: {}", ran.err);
    Form::read(Path::new(ran.out.trim_end()))
}

#[test]
fn heads_have_the_form_that_llama_cpp_reads() {
    let mut all = vec![(file("e3"), file("tt.gguf")), (file("e3"), file("tt"))];
    all.extend(shipped().into_iter().map(|one| (one.head, one.target)));
    for (head, target) in all {
        let faults = converted(&head, &target).faults(&head);
        say(&format!(
            "{}: {} faults as GGUF",
            head.display(),
            faults.len()
        ));
        assert!(faults.is_empty(), "{}: {faults:#?}", head.display());
    }
}

/// The check itself: each way to write the form wrongly is one that it names.
#[test]
fn every_departure_from_the_form_is_named() {
    let head = file("e3");
    let right = converted(&head, &file("tt.gguf"));
    let check = |what: &str, change: &dyn Fn(&mut Form)| {
        let mut form = right.clone();
        change(&mut form);
        assert!(!form.faults(&head).is_empty(), "{what} is not noticed");
    };
    for (key, ..) in KEYS {
        check(key, &|form| drop(form.keys.remove(key)));
        check(key, &|form| form.keys.get_mut(key).expect(key).0 = 10);
    }
    for (name, ..) in TENSORS {
        check(name, &|form| drop(form.tensors.remove(name)));
        check(name, &|form| form.tensors.get_mut(name).expect(name).1 = 8);
        check(name, &|form| {
            form.tensors.get_mut(name).expect(name).0[0] += 1
        });
    }
    let bytes = |form: &mut Form, name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        change(&mut form.tensors.get_mut(name).expect(name).2);
    };
    let set = |form: &mut Form, key: &str, value: Value| {
        form.keys.get_mut(key).expect(key).1 = value;
    };
    let taps = |values: &[u32]| json!({"kind": I32, "values": values});
    let offsets = fs::read(head.join("model.safetensors")).expect("the tensors");
    let offsets = SafeTensors::deserialize(&offsets).expect("safetensors");
    let offsets = offsets.tensor("d2t").expect("d2t").data().to_vec();
    check("d2t as offsets", &|form| {
        bytes(form, "d2t", &|d2t| d2t.clone_from(&offsets))
    });
    check("rows in another order", &|form| {
        bytes(form, "blk.0.attn_k.weight", &|k| k.rotate_left(64 * 4));
    });
    check("two taps", &|form| {
        set(form, "eagle3.target_layers", taps(&[2, 3]))
    });
    check("other taps", &|form| {
        set(form, "eagle3.target_layers", taps(&[1, 3, 4]))
    });
    check("theta", &|form| {
        set(form, "eagle3.rope.freq_base", json!(500_000.0))
    });
    check("t2d", &|form| {
        let t2d = form.tensors["d2t"].clone();
        form.tensors.insert("t2d".to_owned(), t2d);
    });
    check("a key of another time", &|form| {
        form.keys
            .insert("eagle3.norm_output".to_owned(), (BOOL, json!(true)));
    });
    check("less tokens", &|form| {
        let tokens = form.keys.get_mut("tokenizer.ggml.tokens").expect("tokens");
        tokens.1["values"].as_array_mut().expect("a list").pop();
    });
}
