//! Cases 39 to 46 for heads: every file that a head comes in.

use std::fs;

use eyrie::{
    draft::eagle::{MapForm, VocabMap},
    kernels::Format,
    model::{Dtype as Loaded, config::RopeScaling, load::Checkpoint},
};
use eyrie_fixtures::{
    Dtype, Fixture, Quant, Weight,
    gguf::Tensor,
    head::{Head, tt_e1, tt_e3},
    tt,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::eagle_files::{Read, far};
use crate::{
    heads::{dir, goldens::Golden, nested, parity::difference},
    support::to,
};

/// Case 39: one head as `.bin` in every type and as safetensors; what is no tensor and torch's old format are
/// refused, and nothing is executed.
#[test]
fn c39_heads_in_bin_files() {
    let read = Read::tt();
    let exact = read.logits(&read.head(dir(&tt_e1(), |_, _| ()).path()));
    for (dtype, most) in [(Dtype::F32, 0.0), (Dtype::F16, 0.05), (Dtype::BF16, 0.4)] {
        let head = Head { dtype, ..tt_e1() };
        let bin = TempDir::new().expect("a temporary folder");
        head.write_bin(bin.path()).expect("a head");
        let logits = read.logits(&read.head(bin.path()));
        let safetensors = read.head(dir(&head, |_, _| ()).path());
        assert_eq!(logits, read.logits(&safetensors), "{dtype:?}");
        let far = far(&logits, &exact);
        assert!(
            far <= most && (far > 0.0) == (most > 0.0),
            "{dtype:?}: {far}"
        );
        read.runs(read.head(bin.path()));

        let file = bin.path().join("pytorch_model.bin");
        let mut pickle = head.pickle();
        let table = pickle.table();
        let begin = table.iter().position(|byte| *byte == b'(').expect("a mark") + 1;
        let entry = b"X\x05\0\0\0epochK\x03";
        pickle.pickle = Some([&table[..begin], entry, &table[begin..]].concat());
        fs::write(&file, pickle.bytes()).expect("a file");
        read.refuses(bin.path(), &["pytorch_model.bin", "\"epoch\""]);
        let call = b"X\x05\0\0\0epochcposix\nsystem\nX\x02\0\0\0id\x85R";
        pickle.pickle = Some([&table[..begin], call, &table[begin..]].concat());
        fs::write(&file, pickle.bytes()).expect("a file");
        read.refuses(bin.path(), &["posix.system"]);
        fs::write(&file, table).expect("a file");
        read.refuses(bin.path(), &["a bare pickle, torch's format before 1.6"]);
    }
}

/// Case 40: embedding and head are borrowed from a target in one file and in shards.
#[test]
fn c40_borrowed_from_one_file_or_shards() {
    for head in [tt_e1(), tt_e3()] {
        let files = dir(&head, |_, _| ());
        let logits = [1, 3].map(|shards| {
            let read = Read::new(&Fixture { shards, ..tt() });
            let head = read.head(files.path());
            assert!(!head.config().own_embedding);
            read.logits(&head)
        });
        assert_eq!(logits[0], logits[1]);
    }
}

fn layer(config: &mut Value) -> &mut serde_json::Map<String, Value> {
    let layer = config["transformer_layer_config"].as_object_mut();
    layer.expect("an object")
}

/// Case 41: every field of a nested configuration arrives, or an error says which does not.
#[test]
fn c41_nested_configurations_arrive_whole() {
    let read = Read::tt();
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    type Edit<'a> = &'a dyn Fn(&mut Value);
    type Check = fn(&eyrie::draft::eagle::HeadConfig) -> bool;
    let flat: Edit<'_> = &|c| drop(layer(c).insert("rope_theta".into(), json!(5e5)));
    let inner: Edit<'_> = &|c| {
        layer(c).remove("rope_theta");
        layer(c).insert("rope_parameters".into(), json!({"rope_theta": 5e5}));
    };
    let scaled: Edit<'_> = &|c| drop(layer(c).insert("rope_scaling".into(), llama3.clone()));
    let missing: Edit<'_> = &|c| drop(layer(c).remove("num_key_value_heads"));
    let wide = Head {
        head_dim: 16,
        ..tt_e3()
    };
    let every = Head {
        kv_heads: 4,
        ..tt_e3()
    };
    let two = Head {
        layers: 2,
        ..tt_e3()
    };
    let cases: [(&Head, Edit<'_>, Check); 7] = [
        (&tt_e3(), flat, |c| c.rope.theta == 5e5),
        (&tt_e3(), inner, |c| c.rope.theta == 5e5),
        (
            &tt_e3(),
            scaled,
            |c| matches!(c.rope.scaling, RopeScaling::Llama3 { factor, .. } if factor == 8.0),
        ),
        // The class's own default: as many as there are heads.
        (&every, missing, |c| c.kv_heads == 4),
        (&wide, &|_| (), |c| c.head_dim == 16 && c.hidden == 32),
        (&two, &|_| (), |c| c.layers == 2),
        (&tt_e3(), &|_| (), |c| c.feature.taps() == [2, 3, 4]),
    ];
    for (head, edit, check) in cases {
        let files = nested(head, |config, _| edit(config));
        let head = read.head(files.path());
        assert!(check(head.config()), "{:?}", head.config());
        read.runs(head);
    }
    let plain = read.logits(&read.head(nested(&tt_e3(), |_, _| ()).path()));
    let theta = read.logits(&read.head(nested(&tt_e3(), |c, _| flat(c)).path()));
    assert!(plain != theta);
    let fewer = nested(&tt_e3(), |config, _| missing(config));
    read.refuses(
        fewer.path(),
        &["k_proj.weight has shape [16, 64]", "[32, 64]"],
    );
    for name in [
        "speculators-diff-config",
        "speculators-two-layers",
        "speculators-bias-rope",
    ] {
        let golden = Golden::read(name);
        assert!(difference(&golden, &golden.head()) < 1e-4, "{name}");
    }
}

/// `theta^(-2i / 8)`.
fn formula(theta: f64) -> Vec<f64> {
    (0..4).map(|i| theta.powf(-f64::from(i) / 4.0)).collect()
}

fn near(got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    let near = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs() < 1e-6 * want;
    assert!(got.iter().zip(want).all(near), "{got:?} {want:?}");
}

/// Case 42: theta is found in each of its places, and never the target's.
#[test]
fn c42_theta_is_the_heads_own() {
    let read = Read::new(&Fixture {
        theta: 77.0,
        ..tt()
    });
    let moved = |value: Value| {
        move |config: &mut Value, _: &mut Vec<Weight>| {
            let keys = config.as_object_mut().expect("an object");
            keys.remove("rope_theta");
            keys.extend(value.as_object().expect("an object").clone());
        }
    };
    let frequencies = |value: Value| {
        let files = dir(&tt_e3(), moved(value));
        read.open(files.path()).config().rope.frequencies(8)
    };
    let by_type = json!({"full_attention": {"rope_theta": 5e5, "rope_type": "default"}});
    for place in [
        json!({"rope_theta": 500_000}),
        json!({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}),
        json!({"rope_parameters": by_type}),
        json!({"rope_scaling": {"rope_theta": 5e5, "rope_type": "default"}}),
    ] {
        near(&frequencies(place), &formula(5e5));
    }
    near(&frequencies(json!({})), &formula(1e4));
    let said = read.open(dir(&tt_e3(), moved(json!({}))).path());
    let warnings = &said.config().warnings;
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("10000 is the default"))
    );
}

/// Case 43: scalings that are known have the tables of the reference; others are refused by name.
#[test]
fn c43_rope_types_are_known_or_named() {
    let read = Read::tt();
    let plain = formula(1e4);
    let scaled = |value: &Value| {
        let files = dir(&tt_e3(), |config, _| config["rope_scaling"] = value.clone());
        read.open(files.path()).config().rope.frequencies(8)
    };
    for none in [json!(null), json!({}), json!({"rope_type": "default"})] {
        near(&scaled(&none), &plain);
    }
    let linear = json!({"type": "linear", "factor": 4.0});
    let quarter: Vec<f64> = plain.iter().map(|f| f / 4.0).collect();
    near(&scaled(&linear), &quarter);
    // Turns over 64 positions: 10.2, 1.02, 0.10 and 0.01; between 1 and 4 a ramp.
    let llama3 = json!({"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64});
    let keep = (64.0 * 0.1 / std::f64::consts::TAU - 1.0) / 3.0;
    let ramp = 0.1 * (keep + (1.0 - keep) / 8.0);
    near(&scaled(&llama3), &[1.0, ramp, 0.01 / 8.0, 0.001 / 8.0]);
    // The pair that turns once is 1.008, rounded up to 2; one that turns 32 times there is not.
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
    let half = 0.1 * 0.5 + 0.1 / 4.0 * 0.5;
    near(&scaled(&yarn), &[1.0, half, 0.01 / 4.0, 0.001 / 4.0]);
    for kind in ["longrope", "dynamic", "mystery"] {
        for key in ["type", "rope_type"] {
            let value = json!({key: kind, "factor": 2.0});
            let files = dir(&tt_e3(), |config, _| config["rope_scaling"] = value);
            let named = format!("rope_scaling.{key} is \"{kind}\"");
            read.refuses(files.path(), &[&named, "\"yarn\""]);
        }
    }
    for name in [
        "eagle3-rope-linear",
        "eagle3-rope-llama3",
        "eagle3-rope-yarn",
        "eagle3-rope-parameters-nested",
    ] {
        let golden = Golden::read(name);
        assert!(difference(&golden, &golden.head()) < 1e-4, "{name}");
    }
}

/// Case 44: a head keeps its own types over a target in others, and drafts as well.
#[test]
fn c44_a_head_does_not_inherit_the_targets_types() {
    let scratch = TempDir::new().expect("a temporary folder");
    let head = dir(&tt_e1(), |_, _| ());
    let half = Head {
        dtype: Dtype::F16,
        ..tt_e1()
    };
    let half = dir(&half, |_, _| ());
    let share = |read: &Read| read.runs(read.head(head.path()));
    let base = share(&Read::tt());
    for quant in [Quant::Q8_0, Quant::Q4_0] {
        let path = scratch.path().join("tt.gguf");
        tt().write_gguf(&path, quant).expect("a target");
        let read = Read::at(&path, Loaded::AsStored);
        let opened = read.open(head.path());
        assert_eq!(opened.inspect().dtype, "f32");
        let got = share(&read);
        let near = (got - base).abs() < 0.05;
        assert!(
            near || quant == Quant::Q4_0,
            "{quant:?}: {got}, {base} with f32"
        );
    }
    let target = TempDir::new().expect("a temporary folder");
    tt().write_dir(target.path()).expect("a target");
    let read = Read::at(target.path(), to(Format::BF16));
    let opened = read.open(half.path());
    assert_eq!(opened.inspect().dtype, "f16");
    read.runs(read.load(&opened));
}

/// Case 45: the map of a GGUF head survives as integers of either width; a target of an architecture that
/// cannot be tapped is refused when it is opened, with those that can.
#[test]
fn c45_heads_as_gguf() {
    let read = Read::tt();
    let scratch = TempDir::new().expect("a temporary folder");
    let path = scratch.path().join("head.gguf");
    let expected = read.logits(&read.head(dir(&tt_e3(), |_, _| ()).path()));
    let tokens = tt_e3().tokens.expect("half of them");
    let narrow = |tensor: &mut Tensor| {
        tensor.kind = 26;
        let ids = tokens.iter().flat_map(|id| id.to_le_bytes());
        tensor.bytes = ids.collect();
    };
    for width in [8, 4] {
        let mut file = tt_e3().gguf();
        let map = file.tensors.iter_mut().find(|tensor| tensor.name == "d2t");
        let map = map.expect("a map");
        if width == 4 {
            narrow(map);
        }
        fs::write(&path, file.bytes()).expect("a file");
        let opened = read.open(&path);
        assert_eq!(opened.config().map_form, MapForm::Absolute);
        assert_eq!(
            opened.config().vocab_map,
            VocabMap::Reduced(tokens.clone().into())
        );
        let head = read.load(&opened);
        assert!(far(&read.logits(&head), &expected) < 1e-5);
        read.runs(head);
    }
    let mut config = tt().config_json();
    tt().write_dir(scratch.path()).expect("a target");
    config["model_type"] = json!("phi3");
    fs::write(scratch.path().join("config.json"), config.to_string()).expect("a file");
    let error = Checkpoint::open(scratch.path()).expect_err("no such target");
    let error = error.to_string();
    let parts = ["model_type is \"phi3\"", "\"llama\"", "\"mistral\""];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let gguf = scratch.path().join("tt.gguf");
    let mut file = tt().gguf(Quant::F32).expect("a target");
    file.set("general.architecture", "mamba".into());
    fs::write(&gguf, file.bytes()).expect("a file");
    let error = Checkpoint::open(&gguf)
        .expect_err("no such target")
        .to_string();
    assert!(
        error.contains("mamba") && error.contains("llama"),
        "{error}"
    );
}

/// Case 46: biases are where tensors are, whatever keys say; one without a place is an error.
#[test]
fn c46_biases_are_where_tensors_are() {
    let read = Read::tt();
    let bias = |name: &str, rows| tt_e1().weight(&format!("{name}.bias"), &[rows]);
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for (fused, attention) in [(false, false), (false, true), (true, false), (true, true)] {
        let files = |said: Option<bool>| {
            dir(&tt_e1(), |config, tensors| {
                if let Some(said) = said {
                    config["bias"] = json!(said);
                }
                if fused {
                    tensors.push(bias("fc", 32));
                }
                for (name, rows) in [("q", 32), ("k", 16), ("v", 16)] {
                    if attention {
                        tensors.push(bias(&format!("layers.0.self_attn.{name}_proj"), rows));
                    }
                }
            })
        };
        let heads = [None, Some(true), Some(false)].map(|said| read.head(files(said).path()));
        let config = heads[0].config();
        assert_eq!((config.fc_bias, config.attention_bias), (fused, attention));
        let logits = heads.each_ref().map(|head| read.logits(head));
        assert!(logits.iter().all(|one| *one == logits[0]));
        assert!(seen.iter().all(|other| *other != logits[0]));
        let [_, _, logits] = logits;
        seen.push(logits);
        let [head, ..] = heads;
        read.runs(head);
    }
    for name in ["layers.0.mlp.gate_proj", "lm_head"] {
        let stray = dir(&tt_e1(), |_, tensors| tensors.push(bias(name, 48)));
        read.refuses(stray.path(), &[&format!("{name}.bias")]);
    }
    let partly = dir(&tt_e1(), |_, tensors| {
        tensors.push(bias("layers.0.self_attn.k_proj", 16));
    });
    read.refuses(partly.path(), &["k_proj.bias"]);
}
