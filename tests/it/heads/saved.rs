//! Heads that public packages saved: each opens as it is, with the options its index states.

use eyrie::draft::eagle::{Feature, NormOutput};

use super::*;

fn index() -> Value {
    let text = fs::read(data().join("index.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn data() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/heads")
}

/// The head's files, put together in one place, and the path to open.
fn assembled(head: &Value, scratch: &Path) -> std::path::PathBuf {
    let mut path = scratch.to_owned();
    for (name, file) in head["files"].as_object().unwrap() {
        fs::copy(
            data().join(file["at"].as_str().unwrap()),
            scratch.join(name),
        )
        .unwrap();
        if name.ends_with(".gguf") {
            path = scratch.join(name);
        }
    }
    path
}

#[test]
fn every_saved_head_is_understood_as_it_was_made() {
    let index = index();
    let heads = index["heads"].as_object().unwrap();
    assert!(heads.len() > 50);
    for (name, head) in heads {
        let scratch = tempfile::tempdir().unwrap();
        let path = assembled(head, scratch.path());
        let wanted = &head["options"];
        let size = |key: &str| usize::try_from(wanted[key].as_u64().unwrap()).unwrap();
        let target = TargetFacts {
            hidden: size("target_hidden"),
            layers: 8,
            vocab: 97,
            tied: false,
        };
        let old = head["note"].as_str().unwrap().starts_with("before the fix");
        let options = HeadOptions {
            norm_output: old.then_some(NormOutput::Head),
            ..HeadOptions::default()
        };
        let opened = HeadCheckpoint::open(&path, &target, &options);
        let opened = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = opened.config();
        assert_eq!(config.version.name(), head["format"], "{name}");
        // An `eagle_config` makes a flat file SpecForge's, whoever wrote it.
        if head["source"] != "safeailab" {
            assert_eq!(config.source.name(), head["source"], "{name}");
        }
        for (key, got) in [
            ("hidden", config.hidden),
            ("heads", config.heads),
            ("kv_heads", config.kv_heads),
            ("head_dim", config.head_dim),
            ("intermediate", config.intermediate),
            ("draft_vocab", config.draft_vocab),
            ("layers", config.layers),
        ] {
            assert_eq!(got, size(key), "{name}: {key}");
        }
        for (key, got) in [
            ("own_embed", config.own_embedding),
            ("fc_bias", config.fc_bias),
            ("qkv_bias", config.attention_bias),
            ("o_bias", config.output_bias),
            ("qk_norm", config.qk_norm),
            ("joint_norm", config.norm_before_fc),
            ("tap_norms", config.fc_norm),
            ("extra_norms", config.embed_norm),
            ("norm_before_residual", config.norm_before_residual),
            ("norm_output", config.norm_output),
        ] {
            assert_eq!(got, wanted[key], "{name}: {key}");
        }
        if config.version == Version::Eagle3 {
            assert_eq!(config.norm_before_head, wanted["head_norm"], "{name}");
            assert_eq!(config.own_head, wanted["own_head"], "{name}");
            let is_final = config.feature == Feature::Final;
            assert_eq!(is_final, wanted["final"], "{name}");
            if !is_final {
                assert_eq!(json!(config.feature.taps()), wanted["taps"], "{name}");
            }
        }
        let near = |got: f64, key: &str| {
            let want = wanted[key].as_f64().unwrap();
            assert!(
                (got / want - 1.0).abs() < 1e-6,
                "{name}: {key} {got} {want}"
            );
        };
        near(config.eps, "eps");
        near(config.rope.theta, "theta");
        let scaling = wanted["rope"]["rope_type"].as_str().unwrap_or("default");
        let divisors = config.source == Source::Gguf && scaling == "llama3";
        let expected = if divisors { "factors" } else { scaling };
        assert_eq!(config.rope.scaling.name(), expected, "{name}");
        let window = wanted["window"]
            .as_u64()
            .map(|n| usize::try_from(n).unwrap());
        assert!(config.sliding_window.iter().all(|w| *w == window), "{name}");

        let golden =
            fs::read(data().join(head["files"]["golden.safetensors"]["at"].as_str().unwrap()));
        let golden = golden.unwrap();
        let golden = safetensors::SafeTensors::deserialize(&golden).unwrap();
        let ids = golden.tensor("ids").unwrap();
        let ids: Vec<u32> = match ids.dtype() {
            safetensors::Dtype::I64 => ids
                .data()
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| u32::try_from(i64::from_le_bytes(*b)).unwrap())
                .collect(),
            _ => ids
                .data()
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| u32::from_le_bytes(*b))
                .collect(),
        };
        match &config.vocab_map {
            VocabMap::Identity => assert!(ids.iter().copied().eq(0..97), "{name}"),
            VocabMap::Reduced(ours) => assert_eq!(**ours, *ids, "{name}"),
        }
        for (tensor, shape, _) in config.tensors() {
            assert_eq!(
                opened.stored(&tensor).unwrap().shape,
                shape,
                "{name}: {tensor}"
            );
        }
    }
}
