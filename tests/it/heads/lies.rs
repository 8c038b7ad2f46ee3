//! Heads that contradict themselves, their target, or what any head is.

use super::*;

fn resize(tensors: &mut [Weight], name: &str, shape: &[usize]) {
    let tensor = tensors
        .iter_mut()
        .find(|tensor| tensor.name == name)
        .unwrap();
    tensor.shape = shape.to_vec();
    tensor.values.resize(shape.iter().product(), 0.5);
}

#[test]
fn a_tensor_of_another_shape() {
    for (name, shape, words) in [
        (
            "midlayer.self_attn.q_proj.weight",
            [32, 128],
            "[heads * head_dim, 2 * hidden]",
        ),
        (
            "midlayer.self_attn.o_proj.weight",
            [64, 32],
            "[hidden, heads * head_dim]",
        ),
        (
            "midlayer.mlp.down_proj.weight",
            [64, 95],
            "[hidden, intermediate]",
        ),
        ("lm_head.weight", [31, 63], "[draft_vocab, hidden]"),
    ] {
        let canonical = name.replace("midlayer.", "layers.0.");
        lie(
            &e3(),
            |_, tensors| resize(tensors, name, &shape),
            &[&canonical, words],
        );
    }
    lie(
        &e3(),
        |_, tensors| resize(tensors, "fc.weight", &[64, 200]),
        &["[64, 200]", "width is 64"],
    );
    lie(
        &e1(),
        |_, tensors| resize(tensors, "fc.weight", &[64, 64]),
        &["of no head of width 64"],
    );
}

#[test]
fn a_tensor_that_is_missing() {
    for name in [
        "midlayer.mlp.up_proj.weight",
        "norm.weight",
        "midlayer.input_layernorm.weight",
    ] {
        let canonical = name.replace("midlayer.", "layers.0.");
        lie(
            &e3(),
            |_, tensors| tensors.retain(|tensor| tensor.name != name),
            &[&canonical, "is missing"],
        );
    }
    lie(
        &e3(),
        |_, tensors| tensors.retain(|tensor| tensor.name != "lm_head.weight"),
        &["lm_head.weight is missing", "31 rows"],
    );
}

#[test]
fn a_tensor_without_a_place() {
    for (name, why) in [
        ("mask_hidden", "P-EAGLE"),
        ("enorm.weight", "vLLM v0"),
        ("token_map", "vLLM v0"),
        ("eh_proj.weight", "multi-token prediction"),
        ("verifier_lm_head.weight", "no head"),
        ("hidden_norm.weight", "no head"),
        ("midlayer.self_attn.qkv_proj.weight", "no head"),
        ("embed_norm.weight", "without it"),
    ] {
        lie(
            &e3(),
            |_, tensors| tensors.push(e3().weight(name, &[64])),
            &[name, why],
        );
    }
    lie(
        &e3(),
        |_, tensors| tensors.push(e3().weight("layers.0.hidden_norm.weight", &[64])),
        &[
            "layers.0.hidden_norm.weight is given twice",
            "midlayer.hidden_norm.weight",
        ],
    );
    lie(
        &Head { layers: 2, ..e3() },
        |_, tensors| {
            let norm = tensors
                .iter_mut()
                .find(|t| t.name == "layers.1.input_layernorm.weight");
            norm.unwrap().name = "layers.1.hidden_norm.weight".to_owned();
        },
        &["layers.1.hidden_norm.weight", "SGLang"],
    );
    lie(
        &e3(),
        |_, tensors| tensors.push(e3().weight("layers.4000000000.mlp.up_proj.weight", &[96, 64])),
        &["the number of layers"],
    );
}

#[test]
fn keys_that_contradict_tensors_or_the_target() {
    for (key, value, parts) in [
        (
            "draft_vocab_size",
            json!(30),
            &["draft_vocab_size is 30", "31 rows"][..],
        ),
        ("hidden_size", json!(32), &["64"]),
        ("num_attention_heads", json!(8), &["[32, 128]", "[16, 128]"]),
        (
            "num_attention_heads",
            json!(3),
            &["3", "head_dim is missing"],
        ),
        ("num_key_value_heads", json!(3), &["divides"]),
        (
            "num_aux_hidden_states",
            json!(4),
            &["num_aux_hidden_states is 4", "3 taps"],
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            json!([2, 3]),
            &["[2, 3]", "3 taps"],
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            json!([3, 2, 4]),
            &["ascending"],
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            json!([2, 2, 4]),
            &["ascending"],
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            json!([-1, 2, 4]),
            &["a list of layers"],
        ),
        (
            "eagle_aux_hidden_state_layer_ids",
            json!([1, 2, u64::MAX]),
            &["layers up to 7"],
        ),
        ("vocab_size", json!(65), &["t2d has 64 entries", "65"]),
        ("hidden_act", json!("gelu"), &["hidden_act", "silu"]),
        ("rms_norm_eps", json!(0.0), &["rms_norm_eps is 0"]),
        ("mlp_bias", json!(true), &["mlp_bias"]),
        (
            "quantization_config",
            json!({"bits": 4}),
            &["quantization_config"],
        ),
        ("model_type", json!("eagle"), &["model_type is \"eagle\""]),
        ("pard_token", json!(5), &["PARD"]),
        (
            "speculators_model_type",
            json!("dflash"),
            &["\"dflash\"", "\"eagle3\""],
        ),
        (
            "max_position_embeddings",
            json!(0),
            &["max_position_embeddings"],
        ),
        ("head_dim", json!(15), &["head_dim is 15", "even"]),
        ("logit_scale", json!(0.5), &["logit_scale"]),
    ] {
        lie(&e3(), |config, _| config[key] = value, parts);
    }
    let dir = dir(&e3(), |_, _| ());
    let small = TargetFacts {
        vocab: 50,
        ..TARGET
    };
    refused_with(
        dir.path(),
        &small,
        &HeadOptions::default(),
        &["token 51", "vocabulary has 50"],
    );
    let wide = TargetFacts {
        hidden: 80,
        ..TARGET
    };
    refused_with(dir.path(), &wide, &HeadOptions::default(), &["80"]);
    let theta = HeadOptions {
        theta: Some(f64::NAN),
        ..HeadOptions::default()
    };
    refused_with(dir.path(), &TARGET, &theta, &["--head-theta"]);
    let one = nested(&e1(), |_, _| ());
    refused(one.path(), &["the configuration says EAGLE-3", "eagle1"]);
}

#[test]
fn vocabulary_maps_that_lie() {
    let spoiled = |spoil: fn(&mut Vec<i64>, &mut Vec<u8>), parts: &[&str]| {
        let head = e3();
        let (mut d2t, mut t2d) = (head.offsets(), head.marks());
        spoil(&mut d2t, &mut t2d);
        let mut file = head.pickle();
        let count = file.storages.len();
        file.tensors.truncate(count - 2);
        file.storages.truncate(count - 2);
        let bytes = d2t.iter().flat_map(|id| id.to_le_bytes()).collect();
        file.add("d2t", "LongStorage", &[d2t.len()], 8, bytes);
        file.add("t2d", "BoolStorage", &[t2d.len()], 1, t2d);
        let dir = tempfile::tempdir().unwrap();
        head.write_bin(dir.path()).unwrap();
        fs::write(dir.path().join(BIN), file.bytes()).unwrap();
        if parts.is_empty() {
            assert_eq!(
                open(dir.path()).config().vocab_map,
                open(self::dir(&head, |_, _| ()).path()).config().vocab_map
            );
        } else {
            refused(dir.path(), parts);
        }
    };
    spoiled(|_, _| (), &[]);
    spoiled(
        |d2t, _| d2t.iter_mut().zip(0..).for_each(|(id, row)| *id += row),
        &[],
    );
    spoiled(|d2t, _| d2t[4] = 40, &["t2d"]);
    spoiled(|d2t, _| d2t[4] = d2t[3] - 1, &["d2t[4]"]);
    spoiled(
        |d2t, _| d2t[4] = i64::MAX,
        &["d2t[4] is 9223372036854775807"],
    );
    spoiled(|d2t, _| d2t[4] = i64::MIN, &["d2t[4]"]);
    spoiled(|d2t, _| d2t[30] = 34, &["d2t[30] is 34", "below 64"]);
    spoiled(|_, t2d| t2d[0] = 1, &["t2d marks 32 tokens"]);
    spoiled(|_, t2d| t2d.swap(0, 1), &["t2d marks 31 tokens"]);
    spoiled(|_, t2d| t2d[1] = 2, &["t2d[1] is 2"]);
    spoiled(|_, t2d| t2d.truncate(63), &["t2d has 63 entries", "64"]);
    spoiled(
        |d2t, _| d2t.truncate(30),
        &["d2t has 30 entries", "31 rows"],
    );
}

#[test]
fn an_empty_map_of_a_smaller_head_is_said() {
    let head = Head {
        tokens: Some((0..31).collect()),
        ..e3()
    };
    let opened = open(dir(&head, |_, _| ()).path());
    assert!(opened.config().warnings[0].contains("all zeros"));
    assert_eq!(
        opened.config().vocab_map,
        VocabMap::Reduced((0..31).collect())
    );
}

#[test]
fn a_smaller_head_without_a_map() {
    let mut file = e3().gguf();
    file.tensors.retain(|tensor| tensor.name != "d2t");
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.gguf");
    fs::write(&path, file.bytes()).unwrap();
    refused(&path, &["d2t is missing", "31 rows for 64 tokens"]);
}

#[test]
fn gguf_heads_that_lie() {
    use eyrie_fixtures::gguf::Meta;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.gguf");
    let spoiled = |key: &str, value: Option<Meta>, parts: &[&str]| {
        let mut file = e3().gguf();
        match value {
            Some(value) => file.set(key, value),
            None => file.unset(key),
        }
        fs::write(&path, file.bytes()).unwrap();
        refused(&path, parts);
    };
    spoiled(
        "general.architecture",
        Some("llama".into()),
        &["\"llama\"", "\"eagle3\""],
    );
    spoiled(
        "eagle3.target_layers",
        Some(Meta::I32s(vec![2, 3])),
        &["three layers"],
    );
    spoiled(
        "eagle3.extract_layers",
        Some(Meta::I32s(vec![1, 2, 3])),
        &["target_layers is [2, 3, 4]", "extract_layers"],
    );
    spoiled(
        "eagle3.target_hidden_size",
        Some(Meta::U32(32)),
        &["32", "64"],
    );
    spoiled(
        "eagle3.norm_before_fc",
        Some(Meta::Bool(true)),
        &["norm_before_fc is true", "input_norm.weight is missing"],
    );
    spoiled(
        "eagle3.embedding_length",
        None,
        &["eagle3.embedding_length is missing"],
    );
    spoiled(
        "eagle3.rope.scaling.type",
        Some("yarn".into()),
        &["\"yarn\""],
    );
    spoiled(
        "eagle3.rope.dimension_count",
        Some(Meta::U32(8)),
        &["rope.dimension_count is 8", "16"],
    );
    let mut old = e3().gguf();
    old.unset("eagle3.target_layers");
    old.set("eagle3.extract_layers", Meta::I32s(vec![1, 2, 7]));
    fs::write(&path, old.bytes()).unwrap();
    assert_eq!(open(&path).config().feature.taps(), [1, 2, 7]);
}

#[test]
fn two_files_of_weights() {
    let both = dir(&e3(), |_, _| ());
    e3().write_bin(both.path()).unwrap();
    let opened = open(both.path());
    assert!(opened.config().warnings[0].contains("the former is read"));
    Head {
        intermediate: 80,
        ..e3()
    }
    .write_bin(both.path())
    .unwrap();
    refused(
        both.path(),
        &["mlp", "[64, 80]", "[64, 96]", "one of the two files"],
    );
}

#[test]
fn what_is_no_head() {
    let empty = tempfile::tempdir().unwrap();
    refused(empty.path(), &["there are no weights"]);
    let file = empty.path().join("x.bin");
    fs::write(&file, "text").unwrap();
    refused(&file, &["no GGUF file"]);
    let target = tempfile::tempdir().unwrap();
    eyrie_fixtures::tt().write_dir(target.path()).unwrap();
    refused(target.path(), &["of no head"]);
}

#[test]
fn a_head_that_can_guess_nothing() {
    let empty = Head {
        tokens: Some(Vec::new()),
        ..e3()
    };
    let edit = |config: &mut Value, _: &mut Vec<Weight>| {
        config
            .as_object_mut()
            .expect("an object")
            .remove("draft_vocab_size");
    };
    lie(&empty, edit, &["shape [0", "dimensions of at least 1"]);
}
