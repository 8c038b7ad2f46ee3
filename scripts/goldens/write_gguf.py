"""head.gguf in the layout of llama.cpp's `eagle3` architecture, by the `gguf` package.

Q and K rows are reordered for the interleaved rotation, the draft vocabulary is a list of absolute
I64 ids, the vectors stay float32, the tokenizer is the target's.
"""

import os

import gguf
import torch

import rope
from options import VOCAB
from weights import ids, stored

NAMES = {
    "embed_tokens": "token_embd",
    "input_norm": "enc.output_norm",
    "norm": "output_norm",
    "lm_head": "output",
    "fc": "fc",
    "layers.0.input_layernorm": "blk.0.attn_norm",
    "layers.0.hidden_norm": "blk.0.attn_norm_2",
    "layers.0.post_attention_layernorm": "blk.0.ffn_norm",
    "layers.0.self_attn.q_proj": "blk.0.attn_q",
    "layers.0.self_attn.k_proj": "blk.0.attn_k",
    "layers.0.self_attn.v_proj": "blk.0.attn_v",
    "layers.0.self_attn.o_proj": "blk.0.attn_output",
    "layers.0.mlp.gate_proj": "blk.0.ffn_gate",
    "layers.0.mlp.up_proj": "blk.0.ffn_up",
    "layers.0.mlp.down_proj": "blk.0.ffn_down",
}


def interleaved(weight, heads):
    """Row order 0, hd/2, 1, hd/2 + 1, ... within each head."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def keys(out, o, target_layers):
    def key(name):
        return f"eagle3.{name}"

    out.add_name("tiny eagle3")
    out.add_uint32(key("block_count"), 1)
    out.add_uint32(key("context_length"), 2048)
    out.add_uint32(key("embedding_length"), o.hidden)
    out.add_uint32(key("feed_forward_length"), o.intermediate)
    out.add_uint32(key("attention.head_count"), o.heads)
    out.add_uint32(key("attention.head_count_kv"), o.kv_heads)
    out.add_float32(key("attention.layer_norm_rms_epsilon"), o.eps)
    out.add_uint32(key("attention.key_length"), o.head_dim)
    out.add_uint32(key("attention.value_length"), o.head_dim)
    out.add_uint32(key("rope.dimension_count"), o.head_dim)
    out.add_float32(key("rope.freq_base"), o.theta)
    out.add_uint32(key("vocab_size"), VOCAB)
    out.add_array(key(target_layers), list(o.taps))
    out.add_uint32(key("target_hidden_size"), o.target_hidden)
    if o.norm_before_residual:
        out.add_bool(key("norm_before_residual"), True)
    if o.joint_norm:
        out.add_bool(key("norm_before_fc"), True)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list([f"t{i}" for i in range(VOCAB)])
    out.add_token_types([1] * VOCAB)
    out.add_token_merges(["t 1"])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)


def write(folder, case, weights):
    o = case.options
    kept = stored(weights, torch.float16 if case.dtype == "float16" else torch.float32, torch.float32)
    out = gguf.GGUFWriter(os.path.join(folder, "head.gguf"), "eagle3")
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if case.dtype == "float16" else gguf.LlamaFileType.ALL_F32)
    keys(out, o, case.config.get("target_layers", "target_layers"))
    for name, tensor in kept.items():
        part = name.removesuffix(".weight")
        if part.endswith(("q_proj", "k_proj")):
            tensor = interleaved(tensor, o.heads if part.endswith("q_proj") else o.kv_heads)
        new = case.config.get(part, NAMES[part])
        out.add_tensor(f"{new}.weight", tensor.contiguous().numpy())
    if o.reduced:
        out.add_tensor("d2t", ids(o).numpy())
    if o.rope:
        plain, _ = rope.frequencies(o.head_dim, o.theta, None)
        scaled, _ = rope.frequencies(o.head_dim, o.theta, o.rope)
        out.add_tensor("rope_freqs.weight", (plain / scaled).float().numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return kept
