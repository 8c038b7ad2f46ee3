//! GGUF's names and row order, and the canonical ones (Hugging Face's).

use super::stored::Stored;

const TOP: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

const LAYER: [(&str, &str); 9] = [
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("ffn_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
];

/// The canonical name of the GGUF tensor `name`.
#[must_use]
pub fn canonical(name: &str) -> Option<String> {
    if let Some((_, canonical)) = TOP.iter().find(|(gguf, _)| *gguf == name) {
        return Some((*canonical).to_owned());
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let number: u32 = layer
        .parse()
        .ok()
        .filter(|n: &u32| n.to_string() == layer)?;
    let (_, canonical) = LAYER.iter().find(|(gguf, _)| *gguf == rest)?;
    Some(format!("model.layers.{number}.{canonical}"))
}

/// The GGUF name of the tensor with the canonical name `name`.
#[must_use]
pub fn gguf(name: &str) -> Option<String> {
    if let Some((gguf, _)) = TOP.iter().find(|(_, canonical)| *canonical == name) {
        return Some((*gguf).to_owned());
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (gguf, _) = LAYER.iter().find(|(_, canonical)| *canonical == rest)?;
    Some(format!("blk.{layer}.{gguf}"))
}

/// Puts the rows of a GGUF query or key matrix of `heads` heads, whose rotated pairs are rows 2i
/// and 2i + 1 of a head, in the canonical order, where they are rows i and i + half. A row is
/// whole blocks, so this holds for every stored type.
///
/// The caller has checked that the rows are whole heads of even size.
pub(super) fn half_split(stored: &mut Stored, heads: usize) {
    let head = stored.rows() / heads;
    let half = head / 2;
    let mut bytes = Vec::with_capacity(stored.bytes.len());
    for base in (0..heads).map(|h| h * head) {
        for part in 0..2 {
            for i in 0..half {
                bytes.extend_from_slice(stored.row(base + 2 * i + part));
            }
        }
    }
    stored.bytes = bytes;
}

#[cfg(test)]
mod tests {
    use super::{super::stored::StoredType, *};

    #[test]
    fn names_map_both_ways_and_odd_numbers_do_not_map() {
        for name in ["model.layers.12.mlp.up_proj.weight", "lm_head.weight"] {
            assert_eq!(canonical(&gguf(name).unwrap()).unwrap(), name);
        }
        assert_eq!(canonical("blk.007.attn_q.weight"), None);
        assert_eq!(canonical("blk.+1.attn_q.weight"), None);
        assert_eq!(canonical("blk.1.attn_q.bias"), None);
    }

    #[test]
    fn pairs_of_neighbours_become_pairs_of_halves() {
        let mut stored = Stored {
            name: "q".to_owned(),
            dtype: StoredType::F32,
            shape: vec![8, 1],
            bytes: (0..8_u8).flat_map(|i| f32::from(i).to_le_bytes()).collect(),
        };
        half_split(&mut stored, 2);
        assert_eq!(
            stored.floats().unwrap(),
            [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
        );
    }
}
