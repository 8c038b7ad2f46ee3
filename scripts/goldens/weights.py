"""Random tensors. A tensor depends on its name and shape only, so heads of equal shapes are equal."""

import hashlib

import torch

from options import TARGET_LAYERS, VOCAB, ROWS, ROWS_AGAIN

SEED = "eyrie 357"


def normal(name, *shape):
    key = hashlib.sha256(f"{SEED} {name} {shape}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def linear(name, outs, ins, gain=1.0):
    return normal(name, outs, ins) * gain / ins**0.5


def norm(name, width):
    return 1 + 0.3 * normal(name, width)


def layer(o, i):
    """Layer 0 of EAGLE-1 has no input norm unless `extra_norms`; that of EAGLE-3 norms the embedding."""
    at, ins, w = f"layers.{i}.", o.first_input if i == 0 else o.hidden, {}
    for part, heads in (("q", o.heads), ("k", o.kv_heads), ("v", o.kv_heads)):
        name = f"{at}self_attn.{part}_proj"
        w[f"{name}.weight"] = linear(f"{name}.weight", heads * o.head_dim, ins, 1.25 if part != "v" else 1.0)
        if o.qkv_bias:
            w[f"{name}.bias"] = 0.3 * normal(f"{name}.bias", heads * o.head_dim)
    w[f"{at}self_attn.o_proj.weight"] = linear(f"{at}o", o.hidden, o.heads * o.head_dim)
    if o.o_bias:
        w[f"{at}self_attn.o_proj.bias"] = 0.3 * normal(f"{at}o.bias", o.hidden)
    if o.qk_norm:
        for part in "qk":
            w[f"{at}self_attn.{part}_norm.weight"] = norm(f"{at}{part}_norm", o.head_dim)
    w[f"{at}mlp.gate_proj.weight"] = linear(f"{at}gate", o.intermediate, o.hidden)
    w[f"{at}mlp.up_proj.weight"] = linear(f"{at}up", o.intermediate, o.hidden)
    w[f"{at}mlp.down_proj.weight"] = linear(f"{at}down", o.hidden, o.intermediate)
    w[f"{at}post_attention_layernorm.weight"] = norm(f"{at}post", o.hidden)
    if i > 0 or o.version == 3 or o.extra_norms:
        w[f"{at}input_layernorm.weight"] = norm(f"{at}input", o.hidden)
    if i == 0 and o.version == 3:
        w[f"{at}hidden_norm.weight"] = norm(f"{at}hidden", o.hidden)
    return w


def head(o):
    """All tensors of a head, in float64 and under their plain names (`layers.0.`)."""
    w = {}
    if o.own_embed:
        w["embed_tokens.weight"] = normal("head embedding", VOCAB, o.hidden)
    if o.version == 1:
        w["fc.weight"] = linear("fc1", o.hidden, 2 * o.hidden)
    elif not o.final:
        w["fc.weight"] = linear("fc3", o.hidden, len(o.taps) * o.target_hidden)
    if o.fc_bias:
        w["fc.bias"] = 0.3 * normal("fc.bias", o.hidden)
    if o.joint_norm:
        w["input_norm.weight"] = norm("joint norm", len(o.taps) * o.target_hidden)
    if o.tap_norms:
        w |= {f"fc_norm.{j}.weight": norm(f"tap norm {j}", o.target_hidden) for j in range(len(o.taps))}
    if o.extra_norms:
        w["embedding_layernorm.weight"] = norm("embedding norm", o.hidden)
        w["pre_lm_head_layernorm.weight"] = norm("head norm", o.hidden)
    for i in range(o.layers):
        w |= layer(o, i)
    if o.version == 3:
        w["norm.weight"] = norm("norm", o.hidden)
        if o.own_head:
            w["lm_head.weight"] = linear("lm_head", o.draft_vocab, o.hidden)
    return w


def stored(weights, dtype, vectors=None):
    """The tensors as a file of this type holds them; one-dimensional ones as `vectors`, if given."""
    return {name: t.to(vectors if vectors and t.dim() == 1 else dtype) for name, t in weights.items()}


def ids(o):
    """Target ids of the draft vocabulary, ascending."""
    if not o.reduced or o.d2t == "first":
        return torch.arange(o.draft_vocab)
    return normal("ids", VOCAB).argsort()[: o.draft_vocab].sort().values


def target(width):
    """Embedding, final norm and head of a target of this width, and what it saw and computed."""
    at = f"target {width} "
    scale = torch.linspace(0.5, 1.5, TARGET_LAYERS + 1, dtype=torch.float64)[None, :, None]
    return {
        "model.embed_tokens.weight": normal(at + "embedding", VOCAB, width).float(),
        "model.norm.weight": norm(at + "norm", width).float(),
        "lm_head.weight": linear(at + "lm_head", VOCAB, width).float(),
        "streams": (normal(at + "streams", ROWS + ROWS_AGAIN, TARGET_LAYERS + 1, width) * scale).float(),
        "tokens": normal("tokens", ROWS + 1, VOCAB).argmax(1),
    }
