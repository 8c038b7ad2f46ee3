//! Names and shapes of a head's tensors, and its vocabulary map: no input panics; what is accepted
//! has every tensor of the network in its shape, and a map of ascending tokens of the target.

#![no_main]

use arbitrary::Arbitrary;
use eyrie::draft::eagle::{
    HeadOptions, TargetFacts, VocabMap,
    load::{Declared, Maps, Shapes},
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    eagle3: bool,
    taps: u8,
    width: u8,
    reduced: bool,
    d2t: Option<Vec<i64>>,
    t2d: Option<Vec<bool>>,
    absolute: bool,
    vocab: u8,
    /// Which tensor, and the shape or nothing to put in its place.
    edits: Vec<(u8, Option<Vec<u16>>)>,
}

const CONFIG: &str = r#"{"model_type":"llama","hidden_size":4,"intermediate_size":6,"num_attention_heads":2,
    "num_key_value_heads":1,"num_hidden_layers":1,"rms_norm_eps":1e-5,"rope_theta":1e4,
    "max_position_embeddings":64,"vocab_size":8}"#;

const NAMES: [&str; 18] = [
    "fc.weight",
    "fc.bias",
    "input_norm.weight",
    "fc_norm.0.weight",
    "embed_tokens.weight",
    "embed_norm.weight",
    "norm.weight",
    "lm_head.weight",
    "layers.0.input_layernorm.weight",
    "layers.0.hidden_norm.weight",
    "layers.0.post_attention_layernorm.weight",
    "layers.0.self_attn.q_proj.weight",
    "layers.0.self_attn.k_proj.weight",
    "layers.0.self_attn.v_proj.weight",
    "layers.0.self_attn.o_proj.weight",
    "layers.0.mlp.gate_proj.weight",
    "layers.0.mlp.up_proj.weight",
    "layers.0.mlp.down_proj.weight",
];

fn shapes(input: &Input, rows: usize) -> Shapes {
    let wide = if input.eagle3 { 8 } else { 4 };
    let taps = usize::from(input.taps % 5) * usize::from(input.width);
    let shape = |name: &str| match name {
        "fc.weight" => Some(vec![4, if input.eagle3 { taps } else { 8 }]),
        "layers.0.self_attn.q_proj.weight" => Some(vec![4, wide]),
        "layers.0.self_attn.k_proj.weight" | "layers.0.self_attn.v_proj.weight" => {
            Some(vec![2, wide])
        }
        "layers.0.self_attn.o_proj.weight" => Some(vec![4, 4]),
        "layers.0.mlp.gate_proj.weight" | "layers.0.mlp.up_proj.weight" => Some(vec![6, 4]),
        "layers.0.mlp.down_proj.weight" => Some(vec![4, 6]),
        "layers.0.post_attention_layernorm.weight" => Some(vec![4]),
        "layers.0.input_layernorm.weight" | "layers.0.hidden_norm.weight" | "norm.weight" => {
            input.eagle3.then(|| vec![4])
        }
        "lm_head.weight" => input.reduced.then(|| vec![rows, 4]),
        _ => None,
    };
    let named = NAMES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), shape(name)?)));
    let mut shapes: Shapes = named.collect();
    for (which, edit) in &input.edits {
        let name = NAMES[usize::from(*which) % NAMES.len()].to_owned();
        match edit {
            None => drop(shapes.remove(&name)),
            Some(shape) => {
                drop(shapes.insert(name, shape.iter().map(|dim| usize::from(*dim)).collect()))
            }
        }
    }
    shapes
}

fuzz_target!(|input: Input| {
    let declared = Declared::from_json(CONFIG).expect("the configuration is fine");
    let rows = input.d2t.as_ref().map_or(8, Vec::len);
    let shapes = shapes(&input, rows);
    let vocab = usize::from(input.vocab).max(1);
    let target = TargetFacts {
        hidden: 4,
        layers: 9,
        vocab,
        tied: false,
    };
    let maps = Maps {
        d2t: input.d2t,
        t2d: input.t2d,
        absolute: input.absolute,
    };
    let Ok(resolved) = declared.resolve(&shapes, &maps, &target, &HeadOptions::default()) else {
        return;
    };
    if resolved.check(&shapes).is_err() {
        return;
    }
    let config = &resolved.config;
    assert!(config.draft_vocab >= 1 && config.draft_vocab <= vocab);
    if let VocabMap::Reduced(ids) = &config.vocab_map {
        assert_eq!(ids.len(), config.draft_vocab);
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| (*id as usize) < vocab));
    }
    if let Some(order) = &resolved.order {
        let rows = shapes
            .get("lm_head.weight")
            .or(shapes.get("embed_tokens.weight"))
            .map_or(0, |shape| shape[0]);
        assert!(order.len() == config.draft_vocab && order.iter().all(|row| *row < rows));
    }
});
