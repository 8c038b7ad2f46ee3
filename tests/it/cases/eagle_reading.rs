//! Cases 26 to 32 for heads in files: what is normed, what is tapped.

use eyrie::draft::eagle::{HeadOptions, TapsConvention, VocabMap};
use eyrie_fixtures::{
    Fixture, Weight,
    head::{Head, tt_e3},
    tt,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::eagle_files::{Read, far};
use crate::{
    eagle::{
        heads::{e3, random},
        network::worst,
    },
    heads::{dir, goldens::Golden, parity::difference},
};

/// Case 26: which rows are normed and which are not shows by the third drafted step; golden logits of
/// both versions with each norm that files may bring.
#[test]
fn c26_no_norm_is_missing_and_none_is_added() {
    for name in [
        "eagle1-plain",
        "eagle1-norms",
        "speculators-eagle1-norms",
        "eagle3-plain",
        "eagle3-norm-before-fc",
        "eagle3-fc-norm",
        "eagle3-norm-before-residual",
        "eagle3-norm-output",
        "eagle3-qk-norm",
        "eagle3-specforge-no-head-norm",
    ] {
        let golden = Golden::read(name);
        assert!(difference(&golden, &golden.head()) < 1e-4, "{name}");
    }
    // The other choice of what goes forward, or of where the residual begins, is seen.
    let golden = Golden::read("eagle3-plain");
    let fed_back = golden.changed(|config| config.norm_output = true);
    assert!(difference(&golden, &fed_back) > 1e-2);
    let residual = golden.changed(|config| config.norm_before_residual = true);
    assert!(difference(&golden, &residual) > 1e-2);
    let golden = Golden::read("eagle3-norm-output");
    let raw = golden.changed(|config| config.norm_output = false);
    assert!(difference(&golden, &raw) > 1e-2);
}

fn ids(ids: &[usize], nested: bool) -> impl FnOnce(&mut Value, &mut Vec<Weight>) {
    let list = json!({ "eagle_aux_hidden_state_layer_ids": ids });
    move |config: &mut Value, _: &mut Vec<Weight>| {
        let keys = if nested {
            json!({ "eagle_config": list })
        } else {
            list
        };
        let keys = keys.as_object().expect("an object").clone();
        config.as_object_mut().expect("an object").extend(keys);
    }
}

/// Case 29: ids of outputs, ids of inputs and no ids tap the same streams, to the bit; the report says how they
/// were read, and where that cannot be known a flag is asked for.
#[test]
fn c29_both_numberings_tap_the_same_streams() {
    let read = Read::tt();
    let asked = |convention| HeadOptions {
        taps_convention: Some(convention),
        ..HeadOptions::default()
    };
    let files = [
        (dir(&tt_e3(), ids(&[1, 2, 3], true)), None, "output"),
        (dir(&tt_e3(), ids(&[2, 3, 4], true)), None, "input"),
        (dir(&tt_e3(), ids(&[2, 3, 4], false)), None, "input"),
        (dir(&tt_e3(), |_, _| ()), None, "default"),
        (
            dir(&tt_e3(), ids(&[1, 2, 3], false)),
            Some(TapsConvention::Output),
            "output",
        ),
    ];
    let all = files.map(|(file, convention, name)| {
        let options = convention.map_or_else(HeadOptions::default, asked);
        let checkpoint = read.open_with(file.path(), &options);
        let report = checkpoint.inspect();
        assert_eq!(report.taps, [2, 3, 4]);
        assert_eq!(report.taps_convention.as_deref(), Some(name));
        let said = format!("by their {name}s");
        let warned = report.warnings.iter().any(|text| text.contains(&said));
        assert_eq!(warned, name != "default", "{:?}", report.warnings);
        read.logits(&read.load(&checkpoint))
    });
    assert!(all.iter().all(|logits| *logits == all[0]));
    let unclear = dir(&tt_e3(), ids(&[3, 4, 5], true));
    let flag = "--taps-convention input";
    read.refuses(unclear.path(), &["[3, 4, 5]", flag, "output"]);
    let logits = [TapsConvention::Input, TapsConvention::Output].map(|convention| {
        let checkpoint = read.open_with(unclear.path(), &asked(convention));
        read.logits(&read.load(&checkpoint))
    });
    assert!(logits[0] != logits[1] && logits[0] != all[0]);
}

/// Case 31: targets of one to eight layers; by default only those whose taps are three work.
#[test]
fn c31_small_targets_ask_for_explicit_taps() {
    for layers in 1..=8 {
        let read = Read::new(&Fixture { layers, ..tt() });
        let plain = dir(&tt_e3(), |_, _| ());
        let expected = match layers {
            3 => [0, 1, 2],
            7 => [2, 3, 4],
            8 => [2, 4, 5],
            _ => {
                let words = format!("{layers} layers");
                let key = "eagle_aux_hidden_state_layer_ids is missing";
                read.refuses(plain.path(), &[key, &words]);
                if layers > 1 {
                    let explicit = dir(&tt_e3(), ids(&[0, 1, 2], false));
                    read.runs(read.head(explicit.path()));
                }
                continue;
            }
        };
        let head = read.head(plain.path());
        assert_eq!(head.taps(), expected);
        read.runs(head);
    }
}

/// Case 32: all sixteen combinations of the four flags give the logits of the equations; a flag without its
/// tensor and a tensor without its flag are errors.
#[test]
fn c32_norm_flags_are_followed() {
    let read = Read::tt();
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for bits in 0..16 {
        let on = |bit: usize| bits >> bit & 1 == 1;
        let mut config = e3();
        (config.norm_before_fc, config.fc_norm) = (on(0), on(1));
        (config.norm_before_residual, config.norm_output) = (on(2), on(3));
        let made = random(config, 32);
        let files = TempDir::new().expect("a temporary folder");
        let keys = json!({"norm_before_fc": on(0), "fc_norm": on(1), "norm_before_residual": on(2), "norm_output": on(3)});
        made.write_dir(files.path(), &keys);
        if on(0) && on(1) {
            read.refuses(files.path(), &["norm_before_fc is true", "fc_norm is true"]);
            continue;
        }
        let head = read.head(files.path());
        assert_eq!(read.logits(&head), read.logits(&made.head(&read.target)));
        let (far, size) = worst(&made, &read.target);
        assert!(far < 1e-4 && size > 0.5, "flags {bits:04b}: {far} off");
        seen.push(read.logits(&head));
    }
    assert_eq!(seen.len(), 12);
    for (i, one) in seen.iter().enumerate() {
        assert!(seen[..i].iter().all(|other| far(one, other) > 1e-3), "{i}");
    }
    for (key, tensor, shape) in [
        ("norm_before_fc", "input_norm.weight", [96]),
        ("fc_norm", "fc_norm.0.weight", [32]),
    ] {
        let flag = dir(&tt_e3(), |config, _| config[key] = json!(true));
        read.refuses(flag.path(), &[&format!("{key} is true"), tensor, "missing"]);
        let weight = dir(&tt_e3(), |config, tensors| {
            config[key] = json!(false);
            tensors.push(tt_e3().weight(tensor, &shape));
        });
        read.refuses(weight.path(), &[&format!("{key} is false"), tensor]);
    }
    let no_norm = dir(&tt_e3(), |_, tensors| {
        tensors.retain(|t| t.name != "norm.weight")
    });
    read.refuses(no_norm.path(), &["norm.weight"]);
}

/// Case 30, in files: four, one and the last boundary, and the one beyond.
#[test]
fn c30_taps_in_files() {
    let read = Read::tt();
    for list in [&[1, 3, 5, 7][..], &[4], &[7]] {
        let head = Head {
            taps: list.len(),
            ..tt_e3()
        };
        let files = dir(&head, ids(list, false));
        let head = read.head(files.path());
        assert_eq!(head.taps(), list);
        assert!(matches!(head.config().vocab_map, VocabMap::Reduced(_)));
        read.runs(head);
    }
    let beyond = dir(&tt_e3(), ids(&[2, 3, 8], false));
    read.refuses(beyond.path(), &["[2, 3, 8]", "layers up to 7"]);
}
