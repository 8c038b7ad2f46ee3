//! Lies of directories: paths, tensors, safetensors headers and the index.

use super::*;

#[test]
fn lies_what_is_no_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    refused(&dir.path().join("absent"), &["absent", "cannot open it"]);
    refused(dir.path(), &["no config.json", "a GGUF file"]);
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
    refused(
        dir.path(),
        &[SINGLE, INDEX, "does not name it", "one of the two"],
    );

    let dir = written(&td());
    let names = td()
        .tensors()
        .into_iter()
        .map(|weight| (weight.name, json!(SINGLE)));
    let index = json!({"weight_map": names.collect::<serde_json::Map<_, _>>()});
    fs::write(dir.path().join(INDEX), index.to_string()).unwrap();
    assert_eq!(all(&open(dir.path())), all(&open(written(&td()).path())));
}

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
        set("I16").path(),
        &[SINGLE, norm, "type I16", "F32, F16, BF16"],
    );
    refused(set("Q9").path(), &[SINGLE, norm, "Q9"]);
}

#[test]
fn lies_safetensors_header() {
    let dir = written(&td());
    let path = dir.path().join(SINGLE);
    let good = fs::read(&path).unwrap();
    let check = |bytes: &[u8], parts: &[&str]| {
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
