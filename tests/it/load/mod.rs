//! Checkpoints: round trips, and one test per way a file can lie.

mod config;
mod gguf;
mod mutants;
mod safetensors;

use std::{
    fs,
    path::{Path, PathBuf},
};

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QTensor},
};
use eyrie::model::{
    config::{Config, RopeScaling},
    load::{Checkpoint, Stored, StoredType, gguf::Header},
};
use eyrie_fixtures::{
    Dtype, Fixture, Quant, Rope,
    gguf::{File as Gguf, Meta, Tensor as GgufTensor},
    safetensors_bytes, td, tokenizer,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn written(fixture: &Fixture) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fixture.write_dir(dir.path()).unwrap();
    dir
}

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap()
}

/// The message of the refusal of `path`, which must have every one of `parts`.
#[track_caller]
fn refused(path: &Path, parts: &[&str]) {
    let error = match Checkpoint::open(path) {
        Ok(_) => panic!("{} was accepted; expected {parts:?}", path.display()),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

/// TD's configuration with `key` set to `value`, refused with `parts`.
#[track_caller]
fn config_refused(key: &str, value: Value, parts: &[&str]) {
    let mut config = td().config_json();
    config[key] = value;
    let error = Config::from_json(&config.to_string())
        .unwrap_err()
        .to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

fn edit_json(path: PathBuf, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Rewrites the header of a safetensors file.
fn edit_header(path: PathBuf, edit: impl FnOnce(&mut Value, &mut Vec<u8>)) {
    let bytes = fs::read(&path).unwrap();
    let size = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let mut header = serde_json::from_slice(&bytes[8..8 + size]).unwrap();
    let mut data = bytes[8 + size..].to_vec();
    edit(&mut header, &mut data);
    fs::write(path, safetensors_bytes(&header.to_string(), &data)).unwrap();
}

fn gguf_of(fixture: &Fixture, edit: impl FnOnce(&mut Gguf)) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    let mut file = fixture.gguf(Quant::F32).unwrap();
    edit(&mut file);
    fs::write(&path, file.bytes()).unwrap();
    (dir, path)
}

#[track_caller]
fn gguf_refused(edit: impl FnOnce(&mut Gguf), parts: &[&str]) {
    let (_dir, path) = gguf_of(&td(), edit);
    refused(&path, &[&["x.gguf"], parts].concat());
}

fn all(checkpoint: &Checkpoint) -> Vec<Stored> {
    let names = checkpoint.names();
    names.map(|name| checkpoint.stored(name).unwrap()).collect()
}

#[test]
fn safetensors_of_every_type_come_back_as_they_were_rounded() {
    type Round = fn(f32) -> f32;
    let round: [(Dtype, StoredType, Round); 3] = [
        (Dtype::F32, StoredType::F32, |x| x),
        (Dtype::F16, StoredType::F16, |x| {
            half::f16::from_f32(x).to_f32()
        }),
        (Dtype::BF16, StoredType::BF16, |x| {
            half::bf16::from_f32(x).to_f32()
        }),
    ];
    for (dtype, stored_type, round) in round {
        let fixture = Fixture { dtype, ..td() };
        let dir = written(&fixture);
        let checkpoint = open(dir.path());
        let weights = fixture.tensors();
        assert_eq!(checkpoint.names().count(), weights.len());
        for weight in weights {
            let stored = checkpoint.stored(&weight.name).unwrap();
            assert_eq!((stored.dtype, &stored.shape), (stored_type, &weight.shape));
            let expected: Vec<f32> = weight.values.into_iter().map(round).collect();
            assert_eq!(stored.floats().unwrap(), expected, "{}", weight.name);
        }
        assert!(
            checkpoint.warnings().is_empty(),
            "{:?}",
            checkpoint.warnings()
        );
    }
}

#[test]
fn shards_hold_what_a_single_file_holds() {
    let single = written(&td());
    let sharded = written(&Fixture { shards: 3, ..td() });
    assert!(!sharded.path().join(SINGLE).exists());
    assert_eq!(all(&open(single.path())), all(&open(sharded.path())));
}

#[test]
fn gguf_holds_what_safetensors_hold_bit_for_bit_and_half_split() {
    for tied in [false, true] {
        let fixture = Fixture {
            tied,
            eos: Some(vec![5]),
            ..td()
        };
        let dir = written(&fixture);
        let path = dir.path().join("x.gguf");
        fixture.write_gguf(&path, Quant::F32).unwrap();
        let (safe, gguf) = (open(dir.path()), open(&path));
        assert_eq!(all(&safe), all(&gguf));
        assert_eq!(gguf.dir(), dir.path());
        assert_eq!((safe.eos(), gguf.eos()), (&[5][..], &[5][..]));
        let (mut ours, mut theirs) = (safe.config().clone(), gguf.config().clone());
        assert!((ours.eps - theirs.eps).abs() < 1e-12);
        (ours.eps, theirs.eps) = (0.5, 0.5);
        assert_eq!(ours, theirs);
        assert_eq!(ours.tied, tied);
        assert_eq!(safe.has("lm_head.weight"), !tied);
    }
}

/// What is stored in interleaved order in the file comes back with its rows moved, for every type:
/// the same as quantising the canonical matrix.
#[test]
fn every_ggml_type_comes_back_by_the_block() {
    let types = [
        (GgmlDType::F32, StoredType::F32),
        (GgmlDType::F16, StoredType::F16),
        (GgmlDType::BF16, StoredType::BF16),
        (GgmlDType::Q4_0, StoredType::Q4_0),
        (GgmlDType::Q4_1, StoredType::Q4_1),
        (GgmlDType::Q5_0, StoredType::Q5_0),
        (GgmlDType::Q5_1, StoredType::Q5_1),
        (GgmlDType::Q8_0, StoredType::Q8_0),
        (GgmlDType::Q8_1, StoredType::Q8_1),
        (GgmlDType::Q2K, StoredType::Q2K),
        (GgmlDType::Q3K, StoredType::Q3K),
        (GgmlDType::Q4K, StoredType::Q4K),
        (GgmlDType::Q5K, StoredType::Q5K),
        (GgmlDType::Q6K, StoredType::Q6K),
        (GgmlDType::Q8K, StoredType::Q8K),
    ];
    let fixture = Fixture {
        hidden: 256,
        intermediate: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        layers: 1,
        vocab: 8,
        ..td()
    };
    let blocks = |values: &[f32], cols: usize, dtype| {
        let values = Tensor::from_slice(values, (values.len() / cols, cols), &Device::Cpu).unwrap();
        QTensor::quantize(&values, dtype)
            .unwrap()
            .data()
            .unwrap()
            .into_owned()
    };
    let floats = |tensor: &GgufTensor| -> Vec<f32> {
        let bytes = tensor.bytes.as_chunks().0.iter();
        bytes.map(|b| f32::from_le_bytes(*b)).collect()
    };
    for (candle, ours) in types {
        let (_dir, path) = gguf_of(&fixture, |file| {
            for tensor in file
                .tensors
                .iter_mut()
                .filter(|tensor| tensor.dims.len() == 2)
            {
                tensor.bytes = blocks(&floats(tensor), 256, candle);
                tensor.kind = ours.ggml().unwrap();
            }
        });
        let checkpoint = open(&path);
        for weight in fixture.tensors().iter().filter(|w| w.shape.len() == 2) {
            let stored = checkpoint.stored(&weight.name).unwrap();
            assert_eq!((stored.dtype, &stored.shape), (ours, &weight.shape));
            let expected = blocks(&weight.values, 256, candle);
            assert!(stored.bytes == expected, "{} as {candle:?}", weight.name);
        }
    }
}

/// The fixtures' own quantisers, read by candle: within half a step, or a step where the scale was
/// rounded to 16 bits.
#[test]
fn quantised_fixtures_are_near_their_weights() {
    let block = |values: &[f32], quant: Quant| match quant {
        Quant::Q8_0 => values.iter().fold(0.0, |m: f32, x| m.max(x.abs())) / 127.0,
        Quant::Q4_0 => values.iter().fold(0.0, |m: f32, x| m.max(x.abs())) / 8.0,
        _ => {
            let least = values.iter().copied().fold(f32::MAX, f32::min);
            (values.iter().copied().fold(f32::MIN, f32::max) - least) / 15.0
        }
    };
    let fixture = td();
    for quant in [Quant::Q8_0, Quant::Q4_0, Quant::Q4_1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.gguf");
        fixture.write_gguf(&path, quant).unwrap();
        let checkpoint = open(&path);
        for weight in fixture.tensors().iter().filter(|w| w.shape.len() == 2) {
            let stored = checkpoint.stored(&weight.name).unwrap();
            let (quant, candle) = match stored.dtype {
                StoredType::Q8_0 => (Quant::Q8_0, GgmlDType::Q8_0),
                StoredType::Q4_0 => (Quant::Q4_0, GgmlDType::Q4_0),
                StoredType::Q4_1 => (Quant::Q4_1, GgmlDType::Q4_1),
                other => panic!("{other:?}"),
            };
            let cpu = Device::Cpu;
            let tensor = candle_core::quantized::ggml_file::qtensor_from_ggml(
                candle,
                &stored.bytes,
                stored.shape.clone(),
                &cpu,
            );
            let got = tensor
                .unwrap()
                .dequantize(&cpu)
                .unwrap()
                .flatten_all()
                .unwrap();
            let got: Vec<f32> = got.to_vec1().unwrap();
            for (got, want) in got.chunks(32).zip(weight.values.chunks(32)) {
                let step = block(want, quant);
                let worst = got
                    .iter()
                    .zip(want)
                    .map(|(a, b)| (a - b).abs())
                    .fold(0.0, f32::max);
                assert!(worst <= 1.05 * step, "{}: {worst} of {step}", weight.name);
            }
        }
    }
}

#[test]
fn smollm2_is_understood() {
    let Some(path) = crate::support::smollm2() else {
        return;
    };
    let mut file = fs::File::open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    let header = Header::read(&mut file, len).unwrap();
    assert_eq!((header.version, header.data), (3, 1_785_664));
    assert_eq!((header.tensors.len(), header.metadata.len()), (272, 33));
    let tokens = header.metadata.strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.unwrap().len(), 49_152);
    let merges = header.metadata.array("tokenizer.ggml.merges").unwrap();
    assert_eq!(merges.unwrap().len(), 48_900);

    let checkpoint = open(&path);
    let config = checkpoint.config();
    assert_eq!(
        (config.layers, config.hidden, config.intermediate),
        (30, 576, 1536)
    );
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (9, 3, 64));
    assert_eq!(
        (config.vocab, config.max_position, config.tied),
        (49_152, 8192, true)
    );
    assert_eq!(
        (config.rope.theta, &config.rope.scaling),
        (100_000.0, &RopeScaling::None)
    );
    assert_eq!(checkpoint.eos(), [2]);
    assert!(
        checkpoint.warnings().is_empty(),
        "{:?}",
        checkpoint.warnings()
    );
    let embedding = checkpoint.shape("model.embed_tokens.weight").unwrap();
    assert_eq!(embedding, (StoredType::Q8_0, &[49_152, 576][..]));
    let key = checkpoint
        .stored("model.layers.29.self_attn.k_proj.weight")
        .unwrap();
    assert_eq!(
        (key.dtype, key.bytes.len()),
        (StoredType::Q4_1, 192 * 18 * 20)
    );
    let report = checkpoint.inspect();
    assert_eq!(
        (report.dtype.as_str(), report.tensors),
        ("q4_1+q8_0+f32", 272)
    );
}

#[test]
fn inspect_has_the_keys_of_the_contract() {
    let rope = Rope::Llama3 {
        factor: 8.0,
        low: 1.0,
        high: 4.0,
        original: 64,
    };
    let dir = written(&Fixture { rope, ..td() });
    let report = open(dir.path()).inspect();
    let value = serde_json::to_value(&report).unwrap();
    let keys: Vec<_> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys.join(" "),
        "format source taps taps_convention hidden target_hidden layers heads kv_heads head_dim \
         vocab draft_vocab vocab_map embedding lm_head norms rope max_position dtype tensors warnings"
    );
    assert_eq!(value["format"], "llama");
    assert_eq!(value["source"], "safetensors");
    assert_eq!(value["taps"], json!([]));
    assert_eq!(value["target_hidden"], Value::Null);
    assert_eq!(value["head_dim"], 8);
    assert_eq!(value["rope"]["type"], "llama3");
    assert_eq!(value["rope"]["scaling"]["factor"], 8.0);
    let text = report.to_string();
    for line in [
        "format          llama",
        "kv_heads        2",
        "dtype           f32",
    ] {
        assert!(
            text.lines().any(|l| l == line),
            "{line:?} is not in:\n{text}"
        );
    }
}

#[test]
fn llama3_scaling_in_gguf_is_a_tensor_of_divisors() {
    let rope = Rope::Llama3 {
        factor: 8.0,
        low: 1.0,
        high: 4.0,
        original: 64,
    };
    let (_dir, path) = gguf_of(&Fixture { rope, ..td() }, |_| ());
    let checkpoint = open(&path);
    // Wavelengths 2 pi 10^(0, 1, 2, 3) against 64 / 4 and 64 / 1: one kept, one on the ramp.
    let turns = 64.0 / (std::f64::consts::TAU * 10.0);
    let ramp = 1.0 / ((4.0 - turns) / 3.0 / 8.0 + (turns - 1.0) / 3.0);
    let RopeScaling::Factors(factors) = &checkpoint.config().rope.scaling else {
        panic!("{:?}", checkpoint.config().rope);
    };
    let expected = [1.0, ramp, 8.0, 8.0];
    for (got, want) in factors.iter().zip(expected) {
        assert!((f64::from(*got) - want).abs() < 1e-6, "{factors:?}");
    }
    assert!(!checkpoint.names().any(|name| name.contains("rope")));
}

#[test]
fn eos_comes_from_generation_config_then_config_then_gguf() {
    let dir = written(&Fixture {
        eos: Some(vec![3, 4]),
        ..td()
    });
    assert_eq!(open(dir.path()).eos(), [3, 4]);
    let generation = dir.path().join("generation_config.json");
    fs::write(&generation, r#"{"eos_token_id": 9}"#).unwrap();
    assert_eq!(open(dir.path()).eos(), [9]);
    fs::write(&generation, r#"{"eos_token_id": null}"#).unwrap();
    assert!(open(dir.path()).eos().is_empty());
    fs::write(&generation, r#"{"top_k": 5}"#).unwrap();
    assert_eq!(open(dir.path()).eos(), [3, 4]);
    fs::write(&generation, r#"{"eos_token_id": [64]}"#).unwrap();
    refused(
        dir.path(),
        &["generation_config.json", "eos_token_id is 64", "below 64"],
    );
    assert!(open(written(&td()).path()).eos().is_empty());
    assert!(
        open(
            written(&Fixture {
                eos: Some(vec![]),
                ..td()
            })
            .path()
        )
        .eos()
        .is_empty()
    );
    let (_dir, path) = gguf_of(
        &Fixture {
            tokenizer: true,
            ..td()
        },
        |_| (),
    );
    assert_eq!(open(&path).eos(), [tokenizer::EOS]);
    config_refused(
        "eos_token_id",
        json!("x"),
        &["eos_token_id is \"x\"", "a token id"],
    );
}

#[test]
fn old_rotary_buffers_are_passed_over() {
    let dir = written(&td());
    edit_header(dir.path().join(SINGLE), |header, data| {
        let name = "model.layers.1.self_attn.rotary_emb.inv_freq";
        let span = [data.len(), data.len() + 16];
        header[name] = json!({"dtype": "F32", "shape": [4], "data_offsets": span});
        data.extend([0; 16]);
    });
    let checkpoint = open(dir.path());
    assert_eq!(checkpoint.names().count(), td().tensors().len());
}

#[test]
fn a_network_that_leaves_a_tensor_unused_is_told_so() {
    let dir = written(&td());
    let checkpoint = open(dir.path());
    let used: Vec<_> = checkpoint.names().collect();
    checkpoint.finish_check(used.iter().copied()).unwrap();
    let error = checkpoint
        .finish_check(used[1..].iter().copied())
        .unwrap_err();
    assert!(error.to_string().contains(used[0]), "{error}");
    let error = checkpoint
        .stored("model.layers.2.mlp.up_proj.weight")
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("layers.2.mlp.up_proj.weight is missing"),
        "{error}"
    );
}
