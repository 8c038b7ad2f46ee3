//! `config.json` of the formats that have one.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    super::config::{Feature, HeadConfig, Version},
    Conversion, Format,
    error::SaveError,
};
use crate::model::{config::RopeScaling, load::StoredType};

const FILE: &str = "config.json";

/// Writes the configuration to `folder`.
pub(super) fn write(from: &Conversion<'_>, format: Format, folder: &Path) -> Result<(), SaveError> {
    let config = match format {
        Format::Speculators => speculators(from),
        Format::SafeAiLab | Format::Gguf => flat(from),
    };
    let path = folder.join(FILE);
    let text = format!("{config:#}\n");
    fs::write(&path, text).map_err(SaveError::io(&path, "write it"))
}

/// What a decoder layer's configuration has in every format.
fn layer(from: &Conversion<'_>) -> Value {
    let c = from.head.config();
    json!({
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": c.hidden,
        "intermediate_size": c.intermediate,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "num_hidden_layers": c.layers,
        "vocab_size": c.vocab,
        "rms_norm_eps": c.eps,
        "max_position_embeddings": c.max_position,
        "rope_theta": c.rope.theta,
        "tie_word_embeddings": false,
    })
}

fn flat(from: &Conversion<'_>) -> Value {
    let c = from.head.config();
    let mut config = layer(from);
    config["architectures"] = json!(["LlamaForCausalLM"]);
    config["torch_dtype"] = json!(torch(from));
    if let RopeScaling::Linear { factor } = c.rope.scaling {
        // The reference accepts these two keys and no others.
        config["rope_scaling"] = json!({"type": "linear", "factor": factor});
    }
    if c.version == Version::Eagle1 {
        config["bias"] = json!(c.fc_bias);
        if c.attention_bias {
            // The reference asks whether the key is there.
            config["qkv_bias"] = json!(true);
        }
        return config;
    }
    config["draft_vocab_size"] = json!(c.draft_vocab);
    if c.hidden != c.target_hidden {
        config["target_hidden_size"] = json!(c.target_hidden);
    }
    config
}

fn speculators(from: &Conversion<'_>) -> Value {
    let c = from.head.config();
    let eagle3 = c.version == Version::Eagle3;
    let (algorithm, version, class) = if eagle3 {
        ("eagle3", "0.9.0", "Eagle3DraftModel")
    } else {
        ("eagle", "0.2.0", "EagleSpeculator")
    };
    let mut layer = layer(from);
    layer["head_dim"] = json!(c.head_dim);
    layer["attention_bias"] = json!(c.attention_bias);
    layer["mlp_bias"] = json!(false);
    if c.qk_norm {
        layer["model_type"] = json!("qwen3");
    }
    if let Some(width) = c.sliding_window.iter().flatten().next() {
        layer["sliding_window"] = json!(width);
        let kinds = c.sliding_window.iter().map(|window| match window {
            Some(_) => "sliding_attention",
            None => "full_attention",
        });
        layer["layer_types"] = kinds.collect();
    }
    let mut rope = scaling(c);
    if eagle3 {
        rope["rope_theta"] = json!(c.rope.theta);
        layer["rope_parameters"] = rope;
    } else if c.rope.scaling != RopeScaling::None {
        layer["rope_scaling"] = rope;
    }
    let mut config = json!({
        "architectures": [class],
        "speculators_model_type": algorithm,
        "speculators_version": version,
        "speculators_config": {
            "algorithm": algorithm,
            "default_proposal_method": "greedy",
            "proposal_methods": [{
                "proposal_type": "greedy",
                "speculative_tokens": 5,
                "verifier_accept_k": 1,
                "accept_tolerance": 0.0,
            }],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": null},
        },
        "torch_dtype": torch(from),
        "tie_word_embeddings": false,
        "transformer_layer_config": layer,
    });
    if !eagle3 {
        config["transformer_layer_architecture"] = json!("LlamaDecoderLayer");
        config["layernorms"] = json!(c.embed_norm);
        config["fusion_bias"] = json!(c.fc_bias);
        return config;
    }
    config["draft_vocab_size"] = json!(c.draft_vocab);
    config["target_hidden_size"] = if c.hidden == c.target_hidden {
        Value::Null
    } else {
        json!(c.target_hidden)
    };
    config["eagle_aux_hidden_state_layer_ids"] = match &c.feature {
        Feature::Taps(taps) if !from.usual_taps() => json!(taps),
        _ => Value::Null,
    };
    config["norm_before_fc"] = json!(c.norm_before_fc);
    config["fc_norm"] = json!(c.fc_norm);
    config["norm_before_residual"] = json!(c.norm_before_residual);
    config["norm_output"] = json!(c.norm_output);
    config["embed_requires_grad"] = json!(false);
    config
}

/// The rotary scaling, as Hugging Face names its parts.
fn scaling(c: &HeadConfig) -> Value {
    let name = c.rope.scaling.name();
    match &c.rope.scaling {
        RopeScaling::None | RopeScaling::Factors(_) => json!({"rope_type": name}),
        RopeScaling::Linear { factor } => json!({"rope_type": name, "factor": factor}),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position,
        } => json!({
            "rope_type": name,
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_max_position,
        }),
        RopeScaling::Yarn {
            factor,
            original_max_position,
            beta_fast,
            beta_slow,
            attention_factor,
            truncate,
        } => json!({
            "rope_type": name,
            "factor": factor,
            "original_max_position_embeddings": original_max_position,
            "beta_fast": beta_fast,
            "beta_slow": beta_slow,
            "attention_factor": attention_factor,
            "truncate": truncate,
        }),
    }
}

/// PyTorch's name for the type of the matrices.
fn torch(from: &Conversion<'_>) -> &'static str {
    let fc = from.head.types().find(|(name, _)| *name == "fc.weight");
    match fc.map(|(_, dtype)| dtype) {
        Some(StoredType::F16) => "float16",
        Some(StoredType::BF16) => "bfloat16",
        _ => "float32",
    }
}
