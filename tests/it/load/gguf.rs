//! Lies of GGUF.

use super::*;

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
    let header = Header::read(&mut &good[..], good.len() as u64).unwrap();
    for cut in 0..header.data {
        let mut short = &good[..usize::try_from(cut).unwrap()];
        let cut_error = Header::read(&mut short, cut).unwrap_err().to_string();
        assert!(
            !cut_error.is_empty() && !cut_error.contains("cannot"),
            "{cut}: {cut_error}"
        );
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
