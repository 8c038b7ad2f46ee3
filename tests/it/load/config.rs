//! Lies of config.json.

use super::*;

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
    for kind in ["dynamic", "longrope", "mystery"] {
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
