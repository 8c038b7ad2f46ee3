//! Options of heads: what each key and each tensor switches on.

use eyrie::{
    draft::eagle::{Feature, NormOutput},
    model::config::RopeScaling,
};

use super::*;

fn with(
    options: HeadOptions,
    head: &Head,
    edit: impl FnOnce(&mut Value, &mut Vec<Weight>),
) -> HeadConfig {
    let dir = dir(head, edit);
    let opened = HeadCheckpoint::open(dir.path(), &TARGET, &options).unwrap();
    opened.config().clone()
}

#[test]
fn case_29_both_numberings_of_taps_mean_the_same_layers() {
    let ids = |ids: Value| {
        move |config: &mut Value, _: &mut Vec<Weight>| {
            config["eagle_config"] = json!({"eagle_aux_hidden_state_layer_ids": ids});
        }
    };
    let output = config(&e3(), ids(json!([1, 2, 3])));
    let input = config(&e3(), ids(json!([2, 3, 4])));
    let none = config(&e3(), |_, _| ());
    for config in [&output, &input, &none] {
        assert_eq!(config.feature, Feature::Taps(vec![2, 3, 4]));
    }
    assert_eq!(output.taps_convention, Some(TapsConvention::Output));
    assert_eq!(input.taps_convention, Some(TapsConvention::Input));
    assert!(
        output
            .warnings
            .iter()
            .any(|text| text.contains("by their outputs"))
    );
    let top = config(&e3(), |config, _| {
        config["eagle_aux_hidden_state_layer_ids"] = json!([1, 2, 3])
    });
    assert_eq!(top.feature.taps(), [1, 2, 3]);

    lie(
        &e3(),
        ids(json!([3, 4, 5])),
        &["[3, 4, 5]", "--taps-convention input"],
    );
    let taps_convention = Some(TapsConvention::Output);
    let options = HeadOptions {
        taps_convention,
        ..HeadOptions::default()
    };
    let asked = with(options, &e3(), ids(json!([3, 4, 5])));
    assert_eq!(asked.feature.taps(), [4, 5, 6]);
    let plain = dir(&e3(), |_, _| ());
    refused_with(
        plain.path(),
        &TARGET,
        &options,
        &["--taps-convention", "lists no taps"],
    );
}

#[test]
fn case_30_any_number_of_taps_up_to_the_last_boundary() {
    for (ids, fits) in [
        (vec![1, 3, 5, 7], true),
        (vec![7], true),
        (vec![2, 3, 8], false),
    ] {
        let head = Head {
            taps: ids.len(),
            ..e3()
        };
        let dir = dir(&head, |config, _| {
            config["eagle_aux_hidden_state_layer_ids"] = json!(ids)
        });
        if fits {
            assert_eq!(open(dir.path()).config().feature, Feature::Taps(ids));
        } else {
            refused(dir.path(), &["[2, 3, 8]", "layers up to 7", "7 layers"]);
        }
    }
    lie(
        &Head { taps: 4, ..e3() },
        |_, _| (),
        &["eagle_aux_hidden_state_layer_ids is missing", "4 taps"],
    );
}

#[test]
fn case_31_small_targets_need_explicit_taps() {
    for layers in 1..=8 {
        let target = TargetFacts { layers, ..TARGET };
        let dir = dir(&e3(), |_, _| ());
        if layers == 3 || layers >= 7 {
            HeadCheckpoint::open(dir.path(), &target, &HeadOptions::default()).unwrap();
        } else {
            let words = format!("{layers} layers");
            refused_with(
                dir.path(),
                &target,
                &HeadOptions::default(),
                &["a list of 3 layers", &words],
            );
        }
    }
}

#[test]
fn case_32_norms_need_both_key_and_tensor() {
    let joint = |tensors: &mut Vec<Weight>| tensors.push(e3().weight("input_norm.weight", &[192]));
    let each = |tensors: &mut Vec<Weight>| {
        for tap in 0..3 {
            tensors.push(e3().weight(&format!("fc_norm.{tap}.weight"), &[64]));
        }
    };
    for bits in 0..16 {
        let on = |bit: usize| bits >> bit & 1 == 1;
        let dir = dir(&e3(), |config, tensors| {
            config["norm_before_fc"] = json!(on(0));
            config["fc_norm"] = json!(on(1));
            config["norm_before_residual"] = json!(on(2));
            config["norm_output"] = json!(on(3));
            if on(0) {
                joint(tensors);
            }
            if on(1) {
                each(tensors);
            }
        });
        if on(0) && on(1) {
            refused(dir.path(), &["norm_before_fc is true", "fc_norm is true"]);
            continue;
        }
        let head = open(dir.path());
        let config = head.config();
        let flags = [
            config.norm_before_fc,
            config.fc_norm,
            config.norm_before_residual,
            config.norm_output,
        ];
        assert_eq!(flags, [on(0), on(1), on(2), on(3)]);
        assert!(config.norm_before_head);
        assert_eq!(
            values(&head).len(),
            e3().tensors().len() + usize::from(on(0)) + 3 * usize::from(on(1))
        );
    }
    for (key, tensor) in [
        ("norm_before_fc", "input_norm.weight"),
        ("fc_norm", "fc_norm.0.weight"),
    ] {
        lie(
            &e3(),
            |config, _| config[key] = json!(true),
            &[key, tensor, "missing"],
        );
    }
    lie(
        &e3(),
        |_, tensors| joint(tensors),
        &["norm_before_fc is false", "input_norm.weight is there"],
    );
    lie(
        &e3(),
        |_, tensors| each(tensors),
        &["fc_norm is false", "fc_norm.0.weight is there"],
    );
    lie(
        &e3(),
        |config, tensors| {
            config["fc_norm"] = json!(true);
            each(tensors);
            tensors.retain(|tensor| tensor.name != "fc_norm.2.weight");
        },
        &["fc_norm.2.weight is missing"],
    );
}

#[test]
fn norm_output_has_two_meanings_and_a_flag() {
    let options = |norm_output| HeadOptions {
        norm_output,
        ..HeadOptions::default()
    };
    let said = |said: bool| {
        move |config: &mut Value, _: &mut Vec<Weight>| config["norm_output"] = json!(said)
    };
    let feedback = with(options(None), &e3(), said(true));
    assert!(feedback.norm_output && feedback.norm_before_head);
    assert!(
        feedback
            .warnings
            .iter()
            .any(|text| text.contains("--head-norm-output"))
    );
    let old = with(options(Some(NormOutput::Head)), &e3(), said(true));
    assert!(!old.norm_output && old.norm_before_head);
    let bare = with(options(Some(NormOutput::Head)), &e3(), said(false));
    assert!(!bare.norm_output && !bare.norm_before_head);
    for head in [e3(), e1()] {
        let options = options(Some(NormOutput::Head));
        let parts = ["--head-norm-output", "no key norm_output"];
        refused_with(dir(&head, |_, _| ()).path(), &TARGET, &options, &parts);
    }
    assert!(
        bare.tensors()
            .iter()
            .all(|(name, ..)| name != "norm.weight")
    );
    let dir = dir(&e3(), |_, _| ());
    refused_with(
        dir.path(),
        &TARGET,
        &options(Some(NormOutput::Head)),
        &["--head-norm-output"],
    );
}

#[test]
fn case_33_own_tensors_are_used_and_missing_ones_borrowed() {
    for (embedding, own) in [(false, false), (true, false), (false, true), (true, true)] {
        let tokens = own.then(|| e3().tokens).flatten();
        let config = config(
            &Head {
                embedding,
                tokens,
                ..e3()
            },
            |_, _| (),
        );
        assert_eq!((config.own_embedding, config.own_head), (embedding, own));
    }
    let tied =
        |config: &mut Value, _: &mut Vec<Weight>| config["tie_word_embeddings"] = json!(true);
    let head = Head {
        embedding: true,
        tokens: None,
        ..e3()
    };
    let dir = dir(&head, tied);
    let opened = open(dir.path());
    assert!(opened.config().own_head);
    let (one, other) = (
        opened.stored("embed_tokens.weight").unwrap(),
        opened.stored("lm_head.weight").unwrap(),
    );
    assert_eq!(one.bytes, other.bytes);
    lie(
        &Head {
            tokens: None,
            ..e3()
        },
        tied,
        &["tie_word_embeddings is true", "not its embedding"],
    );
}

#[test]
fn case_34_the_head_may_be_narrower_than_the_target() {
    let head = Head {
        target_hidden: 96,
        embedding: true,
        ..e3()
    };
    let target = TargetFacts {
        hidden: 96,
        ..TARGET
    };
    for given in [true, false] {
        let dir = dir(&head, |config, _| {
            if !given {
                config.as_object_mut().unwrap().remove("target_hidden_size");
            }
        });
        let opened = HeadCheckpoint::open(dir.path(), &target, &HeadOptions::default()).unwrap();
        assert_eq!(
            (opened.config().hidden, opened.config().target_hidden),
            (64, 96)
        );
    }
    let wrong = dir(&head, |config, _| config["target_hidden_size"] = json!(80));
    refused_with(
        wrong.path(),
        &target,
        &HeadOptions::default(),
        &["target_hidden_size is 80", "width is 96"],
    );
    let borrowed = dir(
        &Head {
            embedding: false,
            ..head
        },
        |_, _| (),
    );
    refused_with(
        borrowed.path(),
        &target,
        &HeadOptions::default(),
        &["embed_tokens.weight", "64", "96"],
    );
}

#[test]
fn case_41_nested_configurations_keep_every_value() {
    let wide = Head {
        head_dim: 32,
        ..e3()
    };
    let at = |edit: fn(&mut Value)| {
        move |config: &mut Value, _: &mut Vec<Weight>| edit(&mut config[NESTED])
    };
    let theta = |layer: &mut Value| {
        layer.as_object_mut().unwrap().remove("rope_theta");
        layer["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 500_000.0});
    };
    let opened = open(nested(&wide, at(theta)).path());
    assert_eq!(
        (opened.config().head_dim, opened.config().rope.theta),
        (32, 500_000.0)
    );
    let llama3 = |layer: &mut Value| {
        layer["rope_scaling"] = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    };
    let opened = open(nested(&e3(), at(llama3)).path());
    assert_eq!(opened.config().rope.scaling.name(), "llama3");
    let two = open(nested(&Head { layers: 2, ..e3() }, at(|_| ())).path());
    assert_eq!(two.config().layers, 2);
    assert!(two.config().warnings.is_empty());

    // The class's own default is as many key heads as heads, which the tensors contradict.
    let remove = |key: &'static str| {
        move |config: &mut Value, _: &mut Vec<Weight>| {
            config[NESTED].as_object_mut().unwrap().remove(key);
        }
    };
    let kv = nested(&e3(), remove("num_key_value_heads"));
    refused(
        kv.path(),
        &["k_proj.weight has shape [32, 128]", "[64, 128]"],
    );
    let width = nested(&e3(), remove("hidden_size"));
    refused(width.path(), &["4096"]);
    let kind = nested(&e3(), remove("model_type"));
    refused(kind.path(), &["model_type is missing", "qwen3"]);
    let positions = open(nested(&e3(), remove("max_position_embeddings")).path());
    assert_eq!(positions.config().max_position, 2048);
    assert!(positions.config().warnings[0].contains("2048 is the default of its class"));
    let qwen3 = nested(&e3(), |config, tensors| {
        config[NESTED]["model_type"] = json!("qwen3");
        config[NESTED]["head_dim"] = json!(16);
        config[NESTED]
            .as_object_mut()
            .unwrap()
            .remove("max_position_embeddings");
        for name in ["q_norm", "k_norm"] {
            tensors.push(e3().weight(&format!("layers.0.self_attn.{name}.weight"), &[16]));
        }
    });
    let opened = open(qwen3.path());
    assert!(opened.config().qk_norm && opened.config().max_position == 32_768);
}

#[test]
fn norm_before_residual_left_out_is_said() {
    let dir = nested(&e3(), |config, _| {
        config
            .as_object_mut()
            .unwrap()
            .remove("norm_before_residual");
    });
    let opened = open(dir.path());
    assert!(!opened.config().norm_before_residual);
    assert!(
        opened
            .config()
            .warnings
            .iter()
            .any(|text| text.contains("vLLM takes true"))
    );
}

#[test]
fn cases_42_and_43_rope_is_the_heads_own() {
    let theta = |edit: fn(&mut Value)| config(&e3(), |config, _| edit(config)).rope.theta;
    assert_eq!(theta(|config| config["rope_theta"] = json!(5e5)), 5e5);
    let moved = |config: &mut Value, value: Value| {
        config.as_object_mut().unwrap().remove("rope_theta");
        config["rope_parameters"] = value;
    };
    let opened = config(&e3(), |config, _| moved(config, json!({"rope_theta": 5e5})));
    assert_eq!(opened.rope.theta, 5e5);
    let expected: Vec<f32> = (0..8_u8)
        .map(|i| 5e5_f32.powf(-f32::from(i) / 8.0))
        .collect();
    for (got, want) in opened.rope.frequencies(16).iter().zip(expected) {
        assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
    }
    let absent = config(&e3(), |config, _| {
        config.as_object_mut().unwrap().remove("rope_theta");
    });
    assert_eq!(absent.rope.theta, 10_000.0);
    assert!(absent.warnings[0].contains("10000 is the default"));
    let options = HeadOptions {
        theta: Some(2e4),
        context: Some(99),
        ..HeadOptions::default()
    };
    let asked = with(options, &e3(), |_, _| ());
    assert_eq!((asked.rope.theta, asked.max_position), (2e4, 99));

    for empty in [Value::Null, json!({}), json!({"rope_type": "default"})] {
        let opened = config(&e3(), |config, _| config["rope_scaling"] = empty);
        assert_eq!(opened.rope.scaling, RopeScaling::None);
    }
    let linear = config(&e3(), |config, _| {
        config["rope_scaling"] = json!({"type": "linear", "factor": 4.0})
    });
    assert_eq!(linear.rope.scaling, RopeScaling::Linear { factor: 4.0 });
    for kind in ["dynamic", "mystery"] {
        let scaling = json!({"type": kind, "factor": 2.0});
        lie(
            &e3(),
            |config, _| config["rope_scaling"] = scaling,
            &[kind, "\"llama3\""],
        );
    }
    let typed = |config: &mut Value, slid: f64| {
        let of = |theta: f64| json!({"rope_theta": theta});
        moved(
            config,
            json!({"full_attention": of(5e5), "sliding_attention": of(slid)}),
        );
    };
    assert_eq!(
        config(&e3(), |config, _| typed(config, 5e5)).rope.theta,
        5e5
    );
    lie(
        &e3(),
        |config, _| typed(config, 1e4),
        &["rope_parameters", "one rotary embedding"],
    );
    lie(
        &e3(),
        |config, _| config["rope_scaling"] = json!({"type": "yarn", "factor": 4.0, "mscale": 1.0}),
        &["rope_scaling.mscale"],
    );
}

#[test]
fn case_46_biases_are_decided_by_tensors() {
    for (fused, attention) in [(false, false), (true, false), (false, true), (true, true)] {
        for said in [None, Some(true), Some(false)] {
            let dir = dir(&e1(), |config, tensors| {
                if let Some(said) = said {
                    config["bias"] = json!(said);
                }
                if fused {
                    tensors.push(e1().weight("fc.bias", &[64]));
                }
                if attention {
                    for (name, rows) in [("q", 64), ("k", 32), ("v", 32)] {
                        tensors.push(
                            e1().weight(&format!("layers.0.self_attn.{name}_proj.bias"), &[rows]),
                        );
                    }
                }
            });
            let opened = open(dir.path());
            let config = opened.config();
            assert_eq!((config.fc_bias, config.attention_bias), (fused, attention));
            let odd = said.is_some_and(|said| said != fused);
            assert_eq!(
                config.warnings.len(),
                usize::from(odd) + usize::from(attention)
            );
        }
    }
    lie(
        &e3(),
        |config, _| config["attention_bias"] = json!(true),
        &["attention_bias is true", "missing"],
    );
    lie(
        &e3(),
        |_, tensors| tensors.push(e3().weight("midlayer.self_attn.q_proj.bias", &[64])),
        &["k_proj.bias is missing"],
    );
    lie(
        &e3(),
        |_, tensors| tensors.push(e3().weight("midlayer.mlp.up_proj.bias", &[96])),
        &["up_proj.bias"],
    );
}

#[test]
fn a_head_without_fc_is_fed_the_final_feature() {
    let head = Head { taps: 0, ..e3() };
    for said in [None, Some(false)] {
        let opened = config(&head, |config, _| {
            if let Some(said) = said {
                config["eagle_config"] = json!({"use_aux_hidden_state": said});
            }
        });
        assert_eq!((opened.feature, opened.fc), (Feature::Final, false));
    }
    let says = |said: bool| {
        move |config: &mut Value, _: &mut Vec<Weight>| {
            config["eagle_config"] = json!({"use_aux_hidden_state": said});
        }
    };
    lie(&head, says(true), &["fc.weight is missing"]);
    lie(
        &e3(),
        says(false),
        &["use_aux_hidden_state is false", "fc.weight"],
    );
}

#[test]
fn windows_are_by_layer() {
    let two = Head { layers: 2, ..e3() };
    let opened = config(&two, |config, _| {
        config["sliding_window"] = json!(16);
        config["layer_types"] = json!(["sliding_attention", "full_attention"]);
    });
    assert_eq!(opened.sliding_window, [Some(16), None]);
    lie(
        &two,
        |config, _| config["layer_types"] = json!(["sliding_attention", "full_attention"]),
        &["sliding_window is missing"],
    );
    let unsaid = config(&e3(), |config, _| config["sliding_window"] = json!(16));
    assert_eq!(unsaid.sliding_window, [None]);
    assert!(unsaid.warnings[0].contains("ignored"));
}

#[test]
fn optional_norms_of_eagle1() {
    let dir = dir(&e1(), |_, tensors| {
        for name in ["embed_layernorm", "hidden_layernorm", "lm_head_layernorm"] {
            tensors.push(e1().weight(&format!("{name}.weight"), &[64]));
        }
    });
    let opened = open(dir.path());
    let config = opened.config();
    assert!(config.embed_norm && config.input_norm && config.norm_before_head);
    for name in [
        "embed_norm.weight",
        "layers.0.input_layernorm.weight",
        "norm.weight",
    ] {
        assert_eq!(opened.stored(name).unwrap().shape, [64]);
    }
}
