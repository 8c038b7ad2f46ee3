#!/usr/bin/env python3
"""What torch computes with an EAGLE-3 head in the form of the paper's code, for tests/it/heads/torch.rs.

    python3 -m venv A && A/bin/pip install -r scripts/goldens/requirements.txt
    A/bin/python scripts/goldens/torch_head.py --make tests/data/torch/small-head tests/data/torch/small-head.safetensors
    A/bin/python scripts/goldens/torch_head.py assets/smollm2-135m-eagle3 tests/data/torch/smollm2-135m-eagle3.safetensors

The first makes a small head of random tensors before. Run it in the root of the repository: the head's path, as
given, goes into the file. The head is loaded into torch
modules by the names of its tensors, each of which must have its place, and fed nine true rows and four drafted
ones. Embeddings and taps are random: a target is not needed.
"""

import argparse
import json
import os

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

ROWS, STEPS = 9, 4
COLUMNS = 512  # of the logits are kept, at most


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["hidden_size"] // c["num_attention_heads"]
        self.heads, self.kv_heads, self.width = c["num_attention_heads"], c["num_key_value_heads"], width
        pairs = torch.arange(width // 2, dtype=torch.float64)
        self.speeds = c.get("rope_theta", 10000.0) ** (-2 * pairs / width)
        wide = 2 * c["hidden_size"]
        self.q_proj = nn.Linear(wide, self.heads * width, bias=False)
        self.k_proj = nn.Linear(wide, self.kv_heads * width, bias=False)
        self.v_proj = nn.Linear(wide, self.kv_heads * width, bias=False)
        self.o_proj = nn.Linear(self.heads * width, c["hidden_size"], bias=False)
        self.keys, self.values = [], []

    def turn(self, x, positions):
        angles = positions[:, None] * self.speeds
        a, b = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x):
        def heads(y):
            return y.unflatten(-1, (-1, self.width)).transpose(0, 1)

        before = sum(k.shape[1] for k in self.keys)
        positions = torch.arange(before, before + len(x))
        q = self.turn(heads(self.q_proj(x)), positions)
        self.keys.append(self.turn(heads(self.k_proj(x)), positions))
        self.values.append(heads(self.v_proj(x)))
        k, v = torch.cat(self.keys, 1), torch.cat(self.values, 1)
        seen = torch.arange(k.shape[1]) <= positions[:, None]
        out = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=seen, enable_gqa=True)[0]
        return self.o_proj(out.transpose(0, 1).flatten(1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()

        def norm():
            return nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])

        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = norm(), norm(), norm()
        self.self_attn, self.mlp = Attention(c), Mlp(c)

    def forward(self, embedded, h):
        r = h + self.self_attn(torch.cat([self.input_layernorm(embedded), self.hidden_norm(h)], -1))
        return r + self.mlp(self.post_attention_layernorm(r))


class Head(nn.Module):
    def __init__(self, c, taps):
        super().__init__()
        self.fc = nn.Linear(taps * c["hidden_size"], c["hidden_size"], bias=False)
        self.midlayer = Layer(c)
        self.norm = nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], c["draft_vocab_size"], bias=False)
        if c["draft_vocab_size"] < c["vocab_size"]:
            self.register_buffer("d2t", torch.zeros(c["draft_vocab_size"], dtype=torch.int64))
            self.register_buffer("t2d", torch.zeros(c["vocab_size"], dtype=torch.bool))

    def forward(self, embedded, h):
        """Logits, and what the next row is fed."""
        o = self.midlayer(embedded, h)
        return self.lm_head(self.norm(o)), o

    def target_ids(self):
        rows = torch.arange(self.lm_head.out_features)
        return rows + self.d2t if hasattr(self, "d2t") else rows


def embedding(token, width):
    """A random embedding, a function of the token."""
    return torch.randn(width, generator=torch.Generator().manual_seed(7 + int(token)))


def make(folder):
    """A small head of random tensors."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 64,
        "draft_vocab_size": 40,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }
    head, generator = Head(config, 3), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in head.parameters():
            width = tensor.shape[-1]
            tensor.normal_(1, 0.2, generator=generator) if tensor.dim() == 1 else tensor.normal_(0, 1.5 / width**0.5, generator=generator)
    ids = torch.randperm(64, generator=generator)[:40].sort().values
    head.d2t.copy_(ids - torch.arange(40))
    head.t2d[ids] = True
    os.makedirs(folder, exist_ok=True)
    halves = {name: t.half() if t.is_floating_point() else t for name, t in head.state_dict().items()}
    save_file(halves, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as file:
        file.write(json.dumps(config, indent=2) + "\n")


def load(folder):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    head = Head(config, tensors["fc.weight"].shape[1] // config["hidden_size"])
    head.load_state_dict(tensors, strict=True)
    if hasattr(head, "t2d"):
        marked = head.t2d.nonzero().flatten()
        assert torch.equal(marked, head.target_ids().sort().values), "d2t and t2d say different tokens"
    return head.double().eval(), config


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--make", action="store_true", help="the head is made first, a small one")
    arguments.add_argument("head", help="folder of the head")
    arguments.add_argument("out", help="file of what it computes")
    arguments = arguments.parse_args()
    if arguments.make:
        make(arguments.head)
    head, config = load(arguments.head)
    width, ids = config["hidden_size"], head.target_ids()
    generator = torch.Generator().manual_seed(1)
    taps = torch.randn(ROWS, head.fc.in_features, generator=generator)
    tokens = torch.randint(config["vocab_size"], (ROWS,), generator=generator)

    def embed(tokens):
        return torch.stack([embedding(token, width) for token in tokens]).double()

    with torch.no_grad():
        logits, hidden = head(embed(tokens), head.fc(taps.double()))
        fed, steps = [], []
        row = logits[-1]
        for _ in range(STEPS):
            fed.append(ids[row.argmax()])
            (row,), hidden = head(embed(fed[-1:]), hidden[-1:])
            steps.append(row)
    fed, steps = torch.stack(fed), torch.stack(steps)
    columns = torch.arange(0, len(ids), -(-len(ids) // COLUMNS))
    used = torch.cat([tokens, fed]).unique()
    values = {
        "taps": taps,
        "tokens": tokens,
        "columns": columns,
        "columns.tokens": ids[columns],
        "extend.logits": logits[:, columns].float(),
        "extend.best": ids[logits.argmax(1)],
        "steps.tokens": fed,
        "steps.logits": steps[:, columns].float(),
        "embedding.tokens": used,
        "embedding.rows": torch.stack([embedding(token, width) for token in used]),
    }
    about = {"head": arguments.head.rstrip("/"), "torch": torch.__version__}
    os.makedirs(os.path.dirname(arguments.out) or ".", exist_ok=True)
    save_file({name: value.contiguous() for name, value in values.items()}, arguments.out, about)
    with safe_open(arguments.out, "pt") as written:
        kept = list(written.keys())
    best = logits.topk(2).values
    print(f"{len(kept)} tensors; logits up to {float(logits.abs().max()):.2f}, least lead {float((best[:, 0] - best[:, 1]).min()):.4f}")


if __name__ == "__main__":
    main()
