//! EAGLE heads from files: every format becomes the same head, and one test per way a file can lie.

mod flags;
pub(crate) mod goldens;
mod lies;
pub(crate) mod parity;
mod pickle;
mod save;
mod saved;
mod torch;

use std::{fs, path::Path};

use eyrie::draft::eagle::{
    HeadCheckpoint, HeadConfig, HeadOptions, MapForm, Source, TapsConvention, TargetFacts, Version,
    VocabMap,
};
use eyrie_fixtures::{
    Dtype, Weight,
    head::{Head, e1, e3},
};
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const BIN: &str = "pytorch_model.bin";
const NESTED: &str = "transformer_layer_config";

const TARGET: TargetFacts = TargetFacts {
    hidden: 64,
    layers: 7,
    vocab: 64,
    tied: false,
};

/// A head directory whose configuration and tensors have been changed.
pub(crate) fn dir(head: &Head, edit: impl FnOnce(&mut Value, &mut Vec<Weight>)) -> TempDir {
    written(head, head.config_json(), edit)
}

pub(crate) fn nested(head: &Head, edit: impl FnOnce(&mut Value, &mut Vec<Weight>)) -> TempDir {
    let rename = |weight: &mut Weight| weight.name = weight.name.replace("midlayer.", "layers.0.");
    written(head, head.speculators_json(), |config, tensors| {
        tensors.iter_mut().for_each(rename);
        edit(config, tensors);
    })
}

fn written(
    head: &Head,
    mut config: Value,
    edit: impl FnOnce(&mut Value, &mut Vec<Weight>),
) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = head.tensors();
    edit(&mut config, &mut tensors);
    fs::write(dir.path().join(CONFIG), config.to_string()).unwrap();
    fs::write(dir.path().join(WEIGHTS), head.safetensors(&tensors)).unwrap();
    dir
}

#[track_caller]
fn open(path: &Path) -> HeadCheckpoint {
    HeadCheckpoint::open(path, &TARGET, &HeadOptions::default()).unwrap()
}

#[track_caller]
fn config(head: &Head, edit: impl FnOnce(&mut Value, &mut Vec<Weight>)) -> HeadConfig {
    open(dir(head, edit).path()).config().clone()
}

#[track_caller]
fn refused(path: &Path, parts: &[&str]) {
    refused_with(path, &TARGET, &HeadOptions::default(), parts);
}

#[track_caller]
fn refused_with(path: &Path, target: &TargetFacts, options: &HeadOptions, parts: &[&str]) {
    let error = match HeadCheckpoint::open(path, target, options) {
        Ok(head) => panic!("accepted as {:?}; expected {parts:?}", head.config()),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[track_caller]
fn lie(head: &Head, edit: impl FnOnce(&mut Value, &mut Vec<Weight>), parts: &[&str]) {
    refused(dir(head, edit).path(), parts);
}

/// Canonical names and values of all tensors.
fn values(head: &HeadCheckpoint) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let read = |name: String| {
        let stored = head.stored(&name).unwrap();
        let values = stored.floats().unwrap();
        (name, stored.shape, values)
    };
    head.names().map(read).collect()
}

#[test]
fn every_format_becomes_the_same_eagle3_head() {
    let head = e3();
    let plain = dir(&head, |_, _| ());
    let reference = open(plain.path());
    let expected = values(&reference);
    let ids: Vec<u32> = (0..31).map(|row| 2 * row + 1).collect();
    let config = reference.config();
    assert_eq!(
        (config.version, config.source),
        (Version::Eagle3, Source::SafeAiLab)
    );
    assert_eq!(config.vocab_map, VocabMap::Reduced(ids.into()));
    assert_eq!(config.map_form, MapForm::Offsets);
    assert_eq!(config.feature.taps(), [2, 3, 4]);
    assert_eq!(config.taps_convention, Some(TapsConvention::Default));
    assert!(config.own_head && !config.own_embedding);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);

    let bin = tempfile::tempdir().unwrap();
    head.write_bin(bin.path()).unwrap();
    let speculators = nested(&head, |_, _| ());
    let forge = dir(&head, |config, _| {
        config["architectures"] = json!(["LlamaForCausalLMEagle3"]);
    });
    let vllm = dir(&head, |_, tensors| {
        for tensor in tensors {
            tensor.name = format!("model.{}", tensor.name.replace("midlayer.", "layers.0."));
        }
    });
    let gguf = plain.path().join("x.gguf");
    fs::write(&gguf, head.gguf().bytes()).unwrap();
    for (path, source) in [
        (bin.path(), Source::SafeAiLab),
        (speculators.path(), Source::Speculators),
        (forge.path(), Source::SpecForge),
        (vllm.path(), Source::SafeAiLab),
        (&gguf, Source::Gguf),
    ] {
        let opened = open(path);
        assert_eq!(values(&opened), expected, "{source:?}");
        let mut theirs = opened.config().clone();
        assert_eq!(theirs.source, source);
        let says = |word| theirs.warnings.iter().any(|text| text.contains(word));
        assert_eq!(says("eagle3.target_layers"), source == Source::Gguf);
        theirs.source = config.source;
        theirs.warnings.clear();
        if source == Source::Gguf {
            assert_eq!(theirs.map_form, MapForm::Absolute);
            assert!((theirs.eps - config.eps).abs() < 1e-12);
            (theirs.map_form, theirs.eps) = (config.map_form, config.eps);
            theirs.taps_convention = config.taps_convention;
        }
        assert_eq!(theirs, *config, "{source:?}");
    }
}

#[test]
fn every_format_becomes_the_same_eagle1_head() {
    let head = e1();
    let plain = dir(&head, |_, _| ());
    let reference = open(plain.path());
    let config = reference.config();
    assert_eq!(config.version, Version::Eagle1);
    assert_eq!(config.feature, eyrie::draft::eagle::Feature::Final);
    assert!(!config.input_norm && !config.norm_before_head && !config.fc_bias);
    assert!(!config.own_head && !config.own_embedding);
    let bin = tempfile::tempdir().unwrap();
    head.write_bin(bin.path()).unwrap();
    let speculators = written(&head, head.speculators_json(), |config, tensors| {
        config["speculators_model_type"] = json!("eagle");
        config["layernorms"] = json!(false);
        config["fusion_bias"] = json!(false);
        for tensor in tensors {
            tensor.name = tensor.name.replace("layers.0.", "transformer.");
            tensor.name = tensor.name.replace("fc.", "fusion_fc.");
        }
    });
    for path in [bin.path(), speculators.path()] {
        assert_eq!(values(&open(path)), values(&reference));
    }
}

#[test]
fn case_39_a_bin_holds_every_type() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for head in [Head { dtype, ..e1() }, Head { dtype, ..e3() }] {
            let bin = tempfile::tempdir().unwrap();
            head.write_bin(bin.path()).unwrap();
            let opened = open(bin.path());
            assert_eq!(values(&opened), values(&open(dir(&head, |_, _| ()).path())));
            let weights = head.tensors();
            let fc = opened.stored("fc.weight").unwrap();
            let exact = fc.floats().unwrap();
            let worst = exact
                .iter()
                .zip(&weights[0].values)
                .map(|(a, b)| (a - b).abs());
            let worst = worst.fold(0.0, f32::max);
            assert!(worst < 0.005, "{dtype:?}: {worst}");
            assert_eq!(worst == 0.0, dtype == Dtype::F32);
        }
    }
}

#[test]
fn finish_check_names_what_was_not_used() {
    let head = open(dir(&e3(), |_, _| ()).path());
    let names: Vec<String> = head.names().collect();
    head.finish_check(names.iter().map(String::as_str)).unwrap();
    let error = head
        .finish_check(names[1..].iter().map(String::as_str))
        .unwrap_err()
        .to_string();
    assert!(error.contains("fc.weight was not used"), "{error}");
}

#[test]
fn rows_of_the_head_follow_the_order_of_their_tokens() {
    let plain = dir(&e3(), |_, _| ());
    let sorted = open(plain.path());
    let expected = sorted.stored("lm_head.weight").unwrap();
    let mut file = e3().gguf();
    let swap = |name: &str, width: usize, file: &mut eyrie_fixtures::gguf::File| {
        let tensor = file.tensors.iter_mut().find(|tensor| tensor.name == name);
        let bytes = &mut tensor.unwrap().bytes;
        let (first, rest) = bytes.split_at_mut(width);
        first.swap_with_slice(&mut rest[..width]);
    };
    swap("d2t", 8, &mut file);
    swap("output.weight", 256, &mut file);
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let head = open(&path);
    assert_eq!(head.config().vocab_map, sorted.config().vocab_map);
    assert_eq!(head.stored("lm_head.weight").unwrap().bytes, expected.bytes);
    assert!(
        head.config()
            .warnings
            .iter()
            .any(|text| text.contains("order"))
    );
}

#[test]
fn case_47_padded_vocabularies_are_cut_or_filled() {
    let head = Head {
        embedding: true,
        tokens: None,
        ..e1()
    };
    let own = dir(&head, |_, tensors| {
        tensors.push(head.weight("lm_head.weight", &[64, 64]))
    });
    for (vocab, rows) in [(60, 60), (72, 64)] {
        let target = TargetFacts { vocab, ..TARGET };
        let opened = HeadCheckpoint::open(own.path(), &target, &HeadOptions::default()).unwrap();
        let config = opened.config();
        assert_eq!((config.vocab, config.draft_vocab), (vocab, rows));
        assert_eq!(config.vocab_map == VocabMap::Identity, rows == vocab);
        let shape = |name: &str| opened.stored(name).unwrap();
        let (embedding, head) = (shape("embed_tokens.weight"), shape("lm_head.weight"));
        assert_eq!(
            (embedding.shape, head.shape),
            (vec![vocab, 64], vec![rows, 64])
        );
        assert_eq!(embedding.bytes.len(), vocab * 64 * 4);
        assert_eq!(head.bytes.len(), rows * 64 * 4);
        assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
    }
}
