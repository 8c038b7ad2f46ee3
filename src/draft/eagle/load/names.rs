//! What the formats call the tensors of a head.

/// What a file's tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A tensor of the network, by its canonical name.
    Weight(String),
    /// Draft id to target id.
    DraftToTarget,
    /// Which target ids have a draft id.
    TargetToDraft,
    /// Follows from the configuration.
    Buffer,
    /// Of a method that is not EAGLE; which.
    Foreign(&'static str),
    /// Nothing we know.
    Unknown,
}

const PREFIXES: [(&str, &str); 3] = [
    ("midlayer.", "layers.0."),
    ("transformer.", "layers.0."),
    ("fusion_fc.", "fc."),
];

/// Other releases' names of EAGLE-1 norms, and SGLang's of the norms before `fc`.
const ALIASES: [(&str, &str); 8] = [
    ("embedding_layernorm.weight", "embed_norm.weight"),
    ("embed_layernorm.weight", "embed_norm.weight"),
    ("hidden_layernorm.weight", "layers.0.input_layernorm.weight"),
    ("pre_lm_head_layernorm.weight", "norm.weight"),
    ("lm_head_layernorm.weight", "norm.weight"),
    ("aux_norm_low.weight", "fc_norm.0.weight"),
    ("aux_norm_mid.weight", "fc_norm.1.weight"),
    ("aux_norm_high.weight", "fc_norm.2.weight"),
];

const FOREIGN: [(&str, &str); 7] = [
    ("mask_hidden", "P-EAGLE (parallel drafting)"),
    (
        "token_map",
        "vLLM v0's EAGLE-1, whose rows are paired in another way",
    ),
    ("enorm.weight", "vLLM v0's EAGLE-1 with added norms"),
    ("hnorm.weight", "vLLM v0's EAGLE-1 with added norms"),
    ("eh_proj.weight", "multi-token prediction"),
    ("markov", "DSpark"),
    ("confidence", "a head with confidences"),
];

const TOP: [&str; 7] = [
    "fc.weight",
    "fc.bias",
    "input_norm.weight",
    "embed_tokens.weight",
    "embed_norm.weight",
    "norm.weight",
    "lm_head.weight",
];

const LAYER: [&str; 16] = [
    "input_layernorm.weight",
    "hidden_norm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.bias",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
];

const GGUF: [(&str, &str); 16] = [
    ("fc.weight", "fc.weight"),
    ("enc.output_norm.weight", "input_norm.weight"),
    ("token_embd.weight", "embed_tokens.weight"),
    ("output_norm.weight", "norm.weight"),
    ("output.weight", "lm_head.weight"),
    ("blk.0.attn_norm.weight", "layers.0.input_layernorm.weight"),
    ("blk.0.attn_norm_2.weight", "layers.0.hidden_norm.weight"),
    ("blk.0.hidden_norm.weight", "layers.0.hidden_norm.weight"),
    ("blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight"),
    ("blk.0.attn_k.weight", "layers.0.self_attn.k_proj.weight"),
    ("blk.0.attn_v.weight", "layers.0.self_attn.v_proj.weight"),
    (
        "blk.0.attn_output.weight",
        "layers.0.self_attn.o_proj.weight",
    ),
    (
        "blk.0.ffn_norm.weight",
        "layers.0.post_attention_layernorm.weight",
    ),
    ("blk.0.ffn_gate.weight", "layers.0.mlp.gate_proj.weight"),
    ("blk.0.ffn_up.weight", "layers.0.mlp.up_proj.weight"),
    ("blk.0.ffn_down.weight", "layers.0.mlp.down_proj.weight"),
];

/// The role of a tensor of a safetensors or `.bin` file.
pub(super) fn role(name: &str) -> Role {
    let name = name.strip_prefix("model.").unwrap_or(name);
    match name {
        "d2t" | "draft_id_to_target_id" => return Role::DraftToTarget,
        "t2d" => return Role::TargetToDraft,
        _ => {}
    }
    if let Some((_, method)) = FOREIGN.iter().find(|(word, _)| name.starts_with(word)) {
        return Role::Foreign(method);
    }
    if let Some((_, canonical)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Role::Weight((*canonical).to_owned());
    }
    let prefix = PREFIXES.iter().find_map(|(theirs, ours)| {
        let rest = name.strip_prefix(theirs)?;
        Some(format!("{ours}{rest}"))
    });
    let name = prefix.unwrap_or_else(|| name.to_owned());
    if name.ends_with("rotary_emb.inv_freq") {
        return Role::Buffer;
    }
    let numbered = |prefix: &str| {
        let (number, rest) = name.strip_prefix(prefix)?.split_once('.')?;
        let plain: u32 = number.parse().ok()?;
        (plain.to_string() == number).then_some(rest)
    };
    let known = TOP.contains(&name.as_str())
        || numbered("fc_norm.") == Some("weight")
        || numbered("layers.").is_some_and(|rest| LAYER.contains(&rest));
    if known {
        Role::Weight(name)
    } else {
        Role::Unknown
    }
}

/// The role of a tensor of a GGUF file.
pub(super) fn gguf_role(name: &str) -> Role {
    if name == "d2t" {
        return Role::DraftToTarget;
    }
    match GGUF.iter().find(|(gguf, _)| *gguf == name) {
        Some((_, canonical)) => Role::Weight((*canonical).to_owned()),
        None => Role::Unknown,
    }
}

/// What a GGUF file calls the tensor with this canonical name.
pub(in crate::draft::eagle) fn gguf_name(canonical: &str) -> Option<&'static str> {
    let known = GGUF.iter().find(|(_, ours)| *ours == canonical);
    known.map(|(gguf, _)| *gguf)
}

/// Whether a checkpoint with a tensor of this name is a head: a decoder has none of these.
pub(super) fn only_in_heads(name: &str) -> bool {
    let role = match gguf_role(name) {
        Role::Unknown => role(name),
        known => known,
    };
    match role {
        Role::DraftToTarget | Role::TargetToDraft => true,
        Role::Weight(name) => name == "fc.weight" || name.ends_with(".hidden_norm.weight"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_has_its_place() {
        for (theirs, ours) in [
            ("midlayer.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"),
            (
                "model.layers.3.input_layernorm.weight",
                "layers.3.input_layernorm.weight",
            ),
            ("fusion_fc.bias", "fc.bias"),
            (
                "transformer.input_layernorm.weight",
                "layers.0.input_layernorm.weight",
            ),
            ("aux_norm_mid.weight", "fc_norm.1.weight"),
        ] {
            assert_eq!(role(theirs), Role::Weight(ours.to_owned()));
        }
        for odd in [
            "layers.01.mlp.up_proj.weight",
            "layers.+1.mlp.up_proj.weight",
            "mlp.up_proj.weight",
            "fc",
        ] {
            assert_eq!(role(odd), Role::Unknown, "{odd}");
        }
        assert!(
            only_in_heads("blk.0.attn_norm_2.weight") && !only_in_heads("blk.0.attn_norm.weight")
        );
        assert!(
            only_in_heads("model.fc.weight") && !only_in_heads("model.layers.0.mlp.up_proj.weight")
        );
    }
}
