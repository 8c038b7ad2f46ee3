//! Checkpoints: round trips, and one test per way a file can lie.

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
    load::{Checkpoint, Stored, StoredType, gguf},
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

// Round trips.

#[test]
fn safetensors_of_every_type_come_back_as_they_were_rounded() {
    let round: [(Dtype, StoredType, fn(f32) -> f32); 3] = [
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
                tensor.kind = ours.ggml();
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return;
    }
    let mut file = fs::File::open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    let header = gguf::Header::read(&mut file, len).unwrap();
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

// What was understood.

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

// Lies of paths.

#[test]
fn lies_what_is_no_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    refused(&dir.path().join("absent"), &["absent", "cannot open it"]);
    refused(dir.path(), &["config.json", "cannot open it"]);
    let file = dir.path().join("some.txt");
    fs::write(&file, "text").unwrap();
    refused(&file, &["some.txt", "starts with \"text\"", "a GGUF file"]);
    fs::write(&file, "").unwrap();
    refused(&file, &["some.txt", "a GGUF file"]);
    let dir = written(&td());
    fs::rename(dir.path().join(SINGLE), dir.path().join("other")).unwrap();
    refused(dir.path(), &["no weights", SINGLE, INDEX]);
    fs::create_dir(dir.path().join(SINGLE)).unwrap();
    refused(dir.path(), &[SINGLE, "not a regular file"]);
}

#[test]
fn lies_single_file_and_index_together() {
    let dir = written(&td());
    Fixture { shards: 2, ..td() }.write_dir(dir.path()).unwrap();
    refused(dir.path(), &[SINGLE, INDEX, "one of the two"]);
}

// Lies of config.json.

#[test]
fn lies_config_not_json_and_twice_the_same_key() {
    let dir = written(&td());
    let path = dir.path().join("config.json");
    fs::write(&path, r#"{"model_type": "llama", "model_type": "mistral"}"#).unwrap();
    refused(
        dir.path(),
        &["config.json", "\"model_type\" is given twice", "line 1"],
    );
    fs::write(&path, "[]").unwrap();
    refused(dir.path(), &["config.json", "is []", "an object"]);
    fs::write(&path, [0xff, 0xfe]).unwrap();
    refused(dir.path(), &["config.json", "UTF-8"]);
    fs::write(&path, "{").unwrap();
    refused(dir.path(), &["config.json", "not valid JSON", "line 1"]);
}

#[test]
fn lies_config_of_what_we_do_not_compute() {
    let cases = [
        ("model_type", json!("qwen2"), "\"llama\" or \"mistral\""),
        ("hidden_act", json!("gelu"), "\"silu\""),
        ("attention_bias", json!(true), "false"),
        ("mlp_bias", json!(true), "false"),
        ("sliding_window", json!(4096), "null"),
        ("use_sliding_window", json!(true), "false"),
        ("pretraining_tp", json!(2), "1"),
        ("attention_multiplier", json!(0.5), "null"),
        ("embedding_multiplier", json!(12), "1"),
        ("residual_multiplier", json!(0.22), "1"),
        ("logits_scaling", json!(8), "1"),
        ("attn_logit_softcapping", json!(50.0), "null"),
        ("final_logit_softcapping", json!(30.0), "null"),
        ("partial_rotary_factor", json!(0.5), "1"),
        ("rope_interleaved", json!(true), "false"),
        (
            "quantization_config",
            json!({"quant_method": "gptq"}),
            "null",
        ),
        ("num_local_experts", json!(8), "null"),
        (
            "layer_types",
            json!(["sliding_attention"]),
            "full_attention",
        ),
        ("qk_norm", json!(true), "false"),
    ];
    for (key, value, accepted) in cases {
        config_refused(key, value.clone(), &[key, &value.to_string(), accepted]);
    }
    let harmless = [
        ("hidden_act", json!("swish")),
        ("pretraining_tp", json!(1)),
        ("sliding_window", Value::Null),
    ];
    for (key, value) in harmless {
        let mut config = td().config_json();
        config[key] = value;
        let declared = Config::from_json(&config.to_string()).unwrap();
        assert!(
            declared.warnings.is_empty(),
            "{key}: {:?}",
            declared.warnings
        );
    }
}

#[test]
fn lies_config_sizes() {
    let required = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "model_type",
    ];
    for key in required {
        let mut config = td().config_json();
        config.as_object_mut().unwrap().remove(key);
        let error = Config::from_json(&config.to_string())
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("key {key} is missing")), "{error}");
    }
    for (key, value) in [
        ("hidden_size", json!(-32)),
        ("num_hidden_layers", json!(1.5)),
        ("vocab_size", json!("64")),
        ("num_attention_heads", json!(0)),
    ] {
        config_refused(
            key,
            value.clone(),
            &[key, &value.to_string(), "a positive integer"],
        );
    }
    config_refused(
        "hidden_size",
        json!(u64::MAX),
        &["hidden_size", "18446744073709551615"],
    );
    config_refused(
        "num_hidden_layers",
        json!(100_000),
        &["num_hidden_layers is 100000", "1 to 1024"],
    );
    config_refused(
        "vocab_size",
        json!(1_u64 << 40),
        &["vocab_size is 1099511627776", "4194304"],
    );
    config_refused(
        "num_key_value_heads",
        json!(3),
        &["num_attention_heads is 4", "num_key_value_heads is 3"],
    );
    config_refused(
        "num_attention_heads",
        json!(5),
        &[
            "hidden_size is 32",
            "num_attention_heads is 5",
            "head_dim is missing",
        ],
    );
    config_refused("head_dim", json!(7), &["head_dim is 7", "even"]);
    config_refused(
        "rms_norm_eps",
        json!(0.0),
        &["rms_norm_eps is 0", "between 0 and 1"],
    );
    config_refused(
        "rms_norm_eps",
        json!("1e-5"),
        &["rms_norm_eps is \"1e-5\"", "a number"],
    );
    config_refused("rope_theta", json!(-1), &["rope_theta is -1", "at least 1"]);
    config_refused(
        "tie_word_embeddings",
        json!("no"),
        &["tie_word_embeddings is \"no\"", "true or false"],
    );
}

#[test]
fn config_defaults_are_those_of_the_class() {
    let mut config = td().config_json();
    for key in [
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_theta",
    ] {
        config.as_object_mut().unwrap().remove(key);
    }
    let declared = Config::from_json(&config.to_string()).unwrap();
    let got = &declared.config;
    assert_eq!(
        (got.kv_heads, got.max_position, got.eps, got.rope.theta),
        (4, 2048, 1e-6, 10_000.0)
    );
    assert_eq!(declared.warnings.len(), 3, "{:?}", declared.warnings);

    config["num_attention_heads"] = json!(16);
    config["model_type"] = json!("mistral");
    let error = Config::from_json(&config.to_string())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sliding_window is missing") && error.contains("4096"),
        "{error}"
    );
    config["sliding_window"] = Value::Null;
    let declared = Config::from_json(&config.to_string()).unwrap();
    assert_eq!(
        (declared.config.kv_heads, declared.config.max_position),
        (8, 131_072)
    );
}

#[test]
fn config_keys_that_nobody_knows_are_warned_of() {
    let dir = written(&td());
    edit_json(dir.path().join("config.json"), |config| {
        config["surprise"] = json!(7)
    });
    let checkpoint = open(dir.path());
    assert_eq!(checkpoint.warnings().len(), 1);
    assert!(checkpoint.warnings()[0].contains("surprise (7)"));
    assert_eq!(checkpoint.inspect().warnings, checkpoint.warnings());
}

#[test]
fn rope_is_read_wherever_it_stands() {
    let read = |edit: fn(&mut Value)| {
        let mut config = td().config_json();
        edit(&mut config);
        Config::from_json(&config.to_string()).map(|declared| declared.config.rope)
    };
    let rope = read(|c| c["rope_theta"] = json!(500_000)).unwrap();
    assert_eq!((rope.theta, rope.scaling), (500_000.0, RopeScaling::None));
    let rope = read(|c| {
        c.as_object_mut().unwrap().remove("rope_theta");
        c["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 500_000.0});
    });
    assert_eq!(rope.unwrap().theta, 500_000.0);
    let llama3 = json!({"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128});
    for key in ["type", "rope_type"] {
        let mut config = td().config_json();
        config["rope_scaling"] = llama3.clone();
        config["rope_scaling"][key] = json!("llama3");
        let rope = Config::from_json(&config.to_string()).unwrap().config.rope;
        let expected = RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 128,
        };
        assert_eq!(rope.scaling, expected);
    }
    for neutral in [
        json!({}),
        json!({"type": "default"}),
        json!({"rope_type": "default"}),
    ] {
        let mut config = td().config_json();
        config["rope_scaling"] = neutral;
        let rope = Config::from_json(&config.to_string()).unwrap().config.rope;
        assert_eq!(rope.scaling, RopeScaling::None);
    }
}

#[test]
fn lies_rope() {
    for kind in ["yarn", "linear", "dynamic", "longrope", "mystery"] {
        for key in ["type", "rope_type"] {
            let quoted = format!("{kind:?}");
            let named = format!("rope_scaling.{key}");
            config_refused(
                "rope_scaling",
                json!({key: kind, "factor": 2.0}),
                &[&named, &quoted, "\"llama3\""],
            );
        }
    }
    config_refused(
        "rope_scaling",
        json!({"factor": 2.0}),
        &["rope_scaling.rope_type is missing"],
    );
    config_refused(
        "rope_scaling",
        json!({"type": "default", "rope_type": "llama3"}),
        &[
            "rope_scaling.rope_type",
            "rope_scaling.type",
            "llama3",
            "default",
        ],
    );
    config_refused(
        "rope_scaling",
        json!({"rope_type": "llama3", "factor": 8.0}),
        &["rope_scaling.", "is missing"],
    );
    config_refused(
        "rope_scaling",
        json!({"rope_type": "default", "partial_rotary_factor": 0.5}),
        &["partial_rotary_factor is 0.5"],
    );
    config_refused(
        "rope_scaling",
        json!("linear"),
        &["rope_scaling is \"linear\"", "an object"],
    );
    config_refused(
        "rope_parameters",
        json!({"rope_theta": 5.0}),
        &["rope_theta is 10000", "rope_parameters.rope_theta is 5"],
    );
    let crossed = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 64});
    config_refused(
        "rope_scaling",
        crossed,
        &["low_freq_factor is 4", "high_freq_factor is 1"],
    );
}

#[test]
fn lies_tied_head() {
    let dir = written(&td());
    edit_json(dir.path().join("config.json"), |config| {
        config["tie_word_embeddings"] = json!(true)
    });
    refused(
        dir.path(),
        &[
            "config.json",
            "tie_word_embeddings is true",
            "lm_head.weight is there",
        ],
    );
    let dir = written(&Fixture { tied: true, ..td() });
    assert!(open(dir.path()).config().tied);
    edit_json(dir.path().join("config.json"), |config| {
        config["tie_word_embeddings"] = json!(false)
    });
    refused(
        dir.path(),
        &["tie_word_embeddings is false", "lm_head.weight is missing"],
    );
    edit_json(dir.path().join("config.json"), |config| {
        config
            .as_object_mut()
            .unwrap()
            .remove("tie_word_embeddings");
    });
    assert!(open(dir.path()).config().tied);
}

// Lies of tensors.

#[test]
fn lies_tensors_against_the_configuration() {
    let dir = written(&td());
    edit_json(dir.path().join("config.json"), |config| {
        config["vocab_size"] = json!(63)
    });
    refused(
        dir.path(),
        &[
            SINGLE,
            "model.embed_tokens.weight",
            "[64, 32]",
            "[63, 32]",
            "[vocab, hidden]",
        ],
    );
    edit_json(dir.path().join("config.json"), |config| {
        config["vocab_size"] = json!(64);
        config["num_hidden_layers"] = json!(3);
    });
    refused(
        dir.path(),
        &["model.layers.2.input_layernorm.weight is missing", "[32]"],
    );
    edit_json(dir.path().join("config.json"), |config| {
        config["num_hidden_layers"] = json!(1)
    });
    refused(
        dir.path(),
        &["tensor model.layers.1.", "no place", "1 layers"],
    );
}

#[test]
fn lies_tensors_without_a_place() {
    let dir = written(&td());
    edit_header(dir.path().join(SINGLE), |header, data| {
        let span = [data.len(), data.len() + 128];
        let name = "model.layers.0.self_attn.q_proj.bias";
        header[name] = json!({"dtype": "F32", "shape": [32], "data_offsets": span});
        data.extend([0; 128]);
    });
    refused(dir.path(), &[SINGLE, "self_attn.q_proj.bias", "no biases"]);
}

#[test]
fn lies_tensor_types() {
    let dir = written(&td());
    let norm = "model.norm.weight";
    edit_header(dir.path().join(SINGLE), |header, _| {
        header[norm]["shape"] = json!([16]);
        header[norm]["dtype"] = json!("I64");
    });
    refused(dir.path(), &[SINGLE, norm, "[16]", "[32]"]);
    let set = |dtype: &str| {
        let dir = written(&td());
        edit_header(dir.path().join(SINGLE), |header, _| {
            header[norm]["dtype"] = json!(dtype)
        });
        dir
    };
    refused(
        set("I32").path(),
        &[SINGLE, norm, "type I32", "F32, F16, BF16"],
    );
    refused(set("Q9").path(), &[SINGLE, norm, "Q9"]);
}

// Lies of safetensors.

#[test]
fn lies_safetensors_header() {
    let dir = written(&td());
    let path = dir.path().join(SINGLE);
    let good = fs::read(&path).unwrap();
    let mut check = |bytes: &[u8], parts: &[&str]| {
        fs::write(&path, bytes).unwrap();
        refused(dir.path(), &[&[SINGLE], parts].concat());
    };
    check(
        b"short",
        &["the header's length needs 8 bytes", "5 are left"],
    );
    check(
        &1_000_000_u64.to_le_bytes(),
        &["the header needs 1000000 bytes at offset 8", "0 are left"],
    );
    check(
        &u64::MAX.to_le_bytes(),
        &["header's length is 18446744073709551615", "100000000"],
    );
    check(
        &safetensors_bytes("{", &[]),
        &["the header is not valid JSON"],
    );
    check(
        &safetensors_bytes("[]", &[]),
        &["the header is []", "an object"],
    );
    check(
        &safetensors_bytes(r#"{"__metadata__": {"a": 1}}"#, &[]),
        &["__metadata__", "strings"],
    );
    check(
        &safetensors_bytes(r#"{"a": {"dtype": "F32"}}"#, &[]),
        &["tensor a", "shape", "data_offsets"],
    );
    let twice = r#"{"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    check(
        &safetensors_bytes(twice, &[0; 4]),
        &["\"a\" is given twice"],
    );
    let mut utf8 = safetensors_bytes("{\"a", &[]);
    *utf8.last_mut().unwrap() = 0xff;
    check(&utf8, &["the header is not UTF-8", "byte 2"]);
    check(
        &good[..good.len() - 1],
        &["lies at bytes", "of the data, which has"],
    );
    check(
        &[&good[..], &[0]].concat(),
        &["bytes ", "the end of the file", "belong to no tensor"],
    );
}

#[test]
fn lies_safetensors_spans() {
    let entry = |dtype: &str, shape: Value, span: [u64; 2]| json!({"dtype": dtype, "shape": shape, "data_offsets": span});
    let dir = written(&td());
    let check = |header: Value, data: usize, parts: &[&str]| {
        let bytes = safetensors_bytes(&header.to_string(), &vec![0; data]);
        fs::write(dir.path().join(SINGLE), bytes).unwrap();
        refused(dir.path(), &[&[SINGLE], parts].concat());
    };
    let a = entry("F32", json!([2]), [0, 8]);
    check(
        json!({"a": entry("F32", json!([2]), [0, 4])}),
        4,
        &["tensor a", "has 4 bytes", "need 8"],
    );
    check(
        json!({"a": entry("F32", json!([2]), [8, 0])}),
        8,
        &["tensor a", "[8, 0]", "need 8"],
    );
    check(
        json!({"a": entry("F32", json!([2]), [0, 8])}),
        4,
        &["tensor a", "bytes 0..8", "which has 4"],
    );
    check(
        json!({"a": a, "b": entry("F32", json!([2]), [4, 12])}),
        12,
        &["tensor b", "byte 4", "inside tensor a", "ends at 8"],
    );
    check(
        json!({"a": a, "b": entry("F32", json!([2]), [12, 20])}),
        20,
        &["bytes 8..12", "before tensor b"],
    );
    check(
        json!({"a": entry("F32", json!([0]), [0, 0])}),
        0,
        &["tensor a", "[0]", "at least 1"],
    );
    check(
        json!({"a": entry("F32", json!([1, 1, 1, 1, 1]), [0, 4])}),
        4,
        &["tensor a", "[1, 1, 1, 1, 1]", "at most 4"],
    );
    let huge = json!([1_u64 << 40, 1_u64 << 40]);
    check(
        json!({"a": entry("F32", huge, [0, 4])}),
        4,
        &["tensor a", "1099511627776", "can be counted"],
    );
}

// Lies of the index.

#[test]
fn lies_index() {
    let first = "model-00001-of-00002.safetensors";
    let second = "model-00002-of-00002.safetensors";
    let embedding = "model.embed_tokens.weight";
    let check = |edit: &dyn Fn(&mut Value), parts: &[&str]| {
        let dir = written(&Fixture { shards: 2, ..td() });
        edit_json(dir.path().join(INDEX), edit);
        refused(dir.path(), &[&[INDEX], parts].concat());
    };
    check(&|i| *i = json!([]), &["the index is []", "an object"]);
    check(&|i| *i = json!({}), &["weight_map is missing"]);
    check(&|i| i["weight_map"] = json!({}), &["weight_map is {}"]);
    check(
        &|i| i["weight_map"][embedding] = json!(1),
        &["weight_map.model.embed_tokens.weight is 1", "a file name"],
    );
    for shard in [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "c:x.safetensors",
        "",
        "..",
        ".safetensors",
        "x.bin",
        "x\0.safetensors",
    ] {
        check(
            &|i| i["weight_map"][embedding] = json!(shard),
            &[embedding, &format!("{shard:?}"), "same directory"],
        );
    }
    check(
        &|i| i["weight_map"][embedding] = json!("gone.safetensors"),
        &[embedding, "gone.safetensors", "does not exist"],
    );
    check(
        &|i| i["weight_map"][embedding] = json!(second),
        &[
            embedding,
            second,
            "does not hold it",
            &format!("{first} does"),
        ],
    );
    check(
        &|i| i["weight_map"]["ghost"] = json!(second),
        &["ghost", second, "does not hold it"],
    );
    check(
        &|i| drop(i["weight_map"].as_object_mut().unwrap().remove(embedding)),
        &[first, embedding, "does not list"],
    );

    let dir = written(&Fixture { shards: 2, ..td() });
    edit_header(dir.path().join(second), |header, data| {
        let span = [data.len(), data.len() + 4];
        header[embedding] = json!({"dtype": "F32", "shape": [1], "data_offsets": span});
        data.extend([0; 4]);
    });
    refused(
        dir.path(),
        &[INDEX, embedding, "given twice", first, second],
    );

    let dir = written(&Fixture { shards: 2, ..td() });
    edit_json(dir.path().join(INDEX), |index| {
        index["metadata"]["total_size"] = json!(5)
    });
    let checkpoint = open(dir.path());
    assert!(
        checkpoint.warnings()[0].contains("total_size is 5"),
        "{:?}",
        checkpoint.warnings()
    );
}

// Lies of GGUF.

#[test]
fn gguf_version_2_and_other_alignments_are_read() {
    let (_dir, path) = gguf_of(&td(), |_| ());
    let expected = all(&open(&path));
    let (_dir, path) = gguf_of(&td(), |file| {
        file.version = 2;
        file.alignment = 64;
        file.set("general.alignment", Meta::U32(64));
    });
    assert_eq!(all(&open(&path)), expected);
}

#[test]
fn lies_gguf_header() {
    let (_dir, path) = gguf_of(&td(), |_| ());
    let good = fs::read(&path).unwrap();
    let check = |at: usize, patch: &[u8], parts: &[&str]| {
        let mut bytes = good.clone();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        fs::write(&path, bytes).unwrap();
        refused(&path, &[&["x.gguf"], parts].concat());
    };
    check(4, &1_u32.to_le_bytes(), &["GGUF version 1", "2 and 3"]);
    check(
        4,
        &3_u32.to_be_bytes(),
        &["GGUF version 50331648", "little-endian"],
    );
    check(
        8,
        &u64::MAX.to_le_bytes(),
        &["the tensor count is 18446744073709551615", "at most"],
    );
    check(
        16,
        &u64::MAX.to_le_bytes(),
        &["the key count is 18446744073709551615", "at most"],
    );
    check(
        24,
        &u64::MAX.to_le_bytes(),
        &[
            "the length of the name of metadata key 0 is 18446744073709551615",
            "65536",
        ],
    );
    check(
        32,
        &[0xff],
        &["the name of metadata key 0 is not UTF-8", "byte 0"],
    );
    check(
        32 + 20,
        &99_u32.to_le_bytes(),
        &["key general.architecture", "value type 99", "0 to 12"],
    );
    for cut in 0..good.len().min(4000) {
        fs::write(&path, &good[..cut]).unwrap();
        refused(&path, &["x.gguf"]);
    }
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    refused(
        &path,
        &["x.gguf", "tensor output.weight", "of the data, which has"],
    );
}

#[test]
fn lies_gguf_metadata() {
    let raw = |kind, bytes: &[u8]| Meta::Raw(kind, bytes.to_vec());
    let list = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    gguf_refused(
        |f| f.metadata.push(("general.name".to_owned(), Meta::U32(1))),
        &["general.name is given twice"],
    );
    gguf_refused(|f| f.set("a", raw(7, &[2])), &["a is 2", "0 or 1"]);
    gguf_refused(
        |f| f.set("a", raw(9, &list(4, u64::MAX))),
        &["elements of a is 18446744073709551615", "at most"],
    );
    gguf_refused(
        |f| f.set("a", raw(9, &list(0, 1 << 24))),
        &["elements of a is 16777216", "at most"],
    );
    let deep = (0..4).flat_map(|_| list(9, 1)).collect::<Vec<_>>();
    gguf_refused(
        |f| f.set("a", raw(9, &deep)),
        &["nesting of arrays in a is 4", "at most 3"],
    );
    gguf_refused(
        |f| f.set("a", raw(8, &u64::MAX.to_le_bytes())),
        &["length of a is 18446744073709551615"],
    );
    for alignment in [0, 4, 24, 1 << 20] {
        let named = format!("general.alignment is {alignment}");
        gguf_refused(
            |f| f.set("general.alignment", Meta::U32(alignment)),
            &[&named, "a power of two"],
        );
    }
    gguf_refused(
        |f| f.set("general.alignment", "32".into()),
        &["general.alignment is \"32\"", "a non-negative integer"],
    );
}

#[test]
fn lies_gguf_configuration() {
    let cases: [(&str, Meta, &[&str]); 15] = [
        (
            "general.architecture",
            "qwen2".into(),
            &["\"qwen2\"", "\"llama\""],
        ),
        (
            "general.architecture",
            Meta::U32(1),
            &["general.architecture is 1", "a string"],
        ),
        (
            "llama.rope.scaling.type",
            "yarn".into(),
            &["llama.rope.scaling.type is \"yarn\"", "\"none\""],
        ),
        ("llama.rope.scaling.type", "linear".into(), &["\"linear\""]),
        (
            "llama.vocab_size",
            Meta::U32(63),
            &["llama.vocab_size is 63", "token_embd.weight has 64 rows"],
        ),
        (
            "llama.embedding_length",
            Meta::U32(16),
            &["token_embd.weight", "[64, 32]", "[64, 16]"],
        ),
        (
            "llama.attention.head_count",
            Meta::U32(0),
            &["head_count is 0", "a positive integer"],
        ),
        (
            "llama.attention.head_count_kv",
            Meta::I32s(vec![2, 1]),
            &["head_count_kv is an array of 2", "the same for every layer"],
        ),
        (
            "llama.attention.value_length",
            Meta::U32(4),
            &["value_length is 4", "the width of a head is 8"],
        ),
        (
            "llama.rope.dimension_count",
            Meta::U32(4),
            &["rope.dimension_count is 4", "the width of a head is 8"],
        ),
        (
            "llama.expert_count",
            Meta::U32(8),
            &["llama.expert_count is 8", "accepted is 0"],
        ),
        (
            "llama.attention.sliding_window",
            Meta::U32(64),
            &["sliding_window is 64", "accepted is 0"],
        ),
        (
            "llama.final_logit_softcapping",
            Meta::F32(30.0),
            &["final_logit_softcapping is 30", "no such key"],
        ),
        (
            "split.count",
            Meta::U32(2),
            &["split.count is 2", "accepted is 1"],
        ),
        (
            "tokenizer.ggml.eos_token_id",
            Meta::U32(64),
            &["eos_token_id is 64", "below 64"],
        ),
    ];
    for (key, value, parts) in cases {
        gguf_refused(|f| f.set(key, value), parts);
    }
    for key in [
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon",
    ] {
        gguf_refused(|f| f.unset(key), &[key, "is missing"]);
    }
    let (_dir, path) = gguf_of(&td(), |f| {
        f.set("llama.attention.head_count_kv", Meta::I32s(vec![2, 2]));
        f.set("llama.surprise", Meta::Bool(true));
        f.unset("llama.rope.freq_base");
    });
    let checkpoint = open(&path);
    assert_eq!(
        (checkpoint.config().kv_heads, checkpoint.warnings().len()),
        (2, 2)
    );
}

#[test]
fn lies_gguf_tensors() {
    const AT: usize = 1; // attn_norm of layer 0, 128 bytes after the embedding's 8192
    let embedding = |f: &mut Gguf, edit: fn(&mut GgufTensor)| edit(&mut f.tensors[0]);
    gguf_refused(
        |f| f.tensors[AT].offset = Some(8193),
        &["blk.0.attn_norm.weight", "byte 8193", "multiples of 32"],
    );
    gguf_refused(
        |f| f.tensors[AT].offset = Some(64),
        &[
            "blk.0.attn_norm.weight",
            "byte 64",
            "inside tensor token_embd.weight",
            "8192",
        ],
    );
    gguf_refused(
        |f| f.tensors[AT].offset = Some(1 << 40),
        &[
            "blk.0.attn_norm.weight",
            "1099511627776",
            "of the data, which has",
        ],
    );
    gguf_refused(
        |f| f.tensors[AT].offset = Some(u64::MAX - 31),
        &["blk.0.attn_norm.weight", "18446744073709551584"],
    );
    gguf_refused(
        |f| f.tensors[AT].name = "token_embd.weight".to_owned(),
        &["token_embd.weight is given twice"],
    );
    gguf_refused(
        |f| f.tensors[AT].name = "blk.0.mystery.weight".to_owned(),
        &["input_layernorm.weight is missing"],
    );
    gguf_refused(
        |f| f.tensors[AT].kind = 16,
        &["blk.0.attn_norm.weight has type 16", "8 q8_0", "30 bf16"],
    );
    gguf_refused(
        |f| f.tensors[AT].kind = 8,
        &["blk.0.attn_norm.weight has type q8_0", "f32, f16, bf16"],
    );
    gguf_refused(
        |f| embedding(f, |t| t.kind = 12),
        &["token_embd.weight has rows of 32", "256", "q4_k"],
    );
    gguf_refused(
        |f| embedding(f, |t| t.dims = vec![0, 64]),
        &["token_embd.weight", "[64, 0]", "at least 1"],
    );
    gguf_refused(
        |f| embedding(f, |t| t.dims = vec![1 << 40, 1 << 40]),
        &["token_embd.weight", "can be counted"],
    );
    gguf_refused(
        |f| embedding(f, |t| t.dims = vec![]),
        &["dimensions of tensor token_embd.weight", "is 0"],
    );
    gguf_refused(
        |f| embedding(f, |t| t.dims = vec![1; 9]),
        &[
            "dimensions of tensor token_embd.weight",
            "is 9",
            "at most 4",
        ],
    );
    gguf_refused(
        |f| embedding(f, |t| t.dims = vec![2048]),
        &["token_embd.weight", "[2048]", "[vocab, hidden]"],
    );
    gguf_refused(
        |f| drop(f.tensors.remove(0)),
        &["token_embd.weight is missing"],
    );
    let extra = |name: &str| GgufTensor {
        name: name.to_owned(),
        dims: vec![32],
        kind: 0,
        offset: None,
        bytes: vec![0; 128],
    };
    gguf_refused(
        |f| f.tensors.push(extra("blk.0.attn_q.bias")),
        &["blk.0.attn_q.bias", "no biases"],
    );
    gguf_refused(
        |f| f.tensors.push(extra("rope_freqs.weight")),
        &["rope_freqs.weight has shape [32]", "[4]"],
    );
    let zeros = GgufTensor {
        dims: vec![4],
        bytes: vec![0; 16],
        ..extra("rope_freqs.weight")
    };
    gguf_refused(
        |f| f.tensors.push(zeros),
        &["rope_freqs.weight holds 0 at 0", "above 0"],
    );
}
