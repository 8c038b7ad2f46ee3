"""The forward of EAGLE-1 and EAGLE-3 heads, written out plainly in float64.

EAGLE-1: x = fc([embed(t_{i+1}); f_i]), then decoder layers, the first without a norm before its
attention; the target's head reads the output as it is, and the output is the next feature.

EAGLE-3: h = fc(taps_i); x = [input_layernorm(embed(t_{i+1})); hidden_norm(h)]; attention and MLP with
the residual from h; the head reads norm(o), and o is the next h.
"""

import torch
from torch.nn.functional import linear, silu

import rope

TARGET_EPS = 1e-5


def rms_norm(x, weight, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def final_norm(target, x):
    """The target's own norm of its last residual stream."""
    return rms_norm(x.double(), target["model.norm.weight"].double(), TARGET_EPS)


class Plain:
    """A head with its rows so far."""

    def __init__(self, options, weights, target):
        self.o = options
        self.w = {name: tensor.double() for name, tensor in weights.items()}
        self.embedding = self.w.get("embed_tokens.weight", target["model.embed_tokens.weight"].double())
        self.head = self.w.get("lm_head.weight", target["lm_head.weight"].double())
        self.cache = [(torch.zeros(options.kv_heads, 0, options.head_dim, dtype=torch.float64),) * 2] * options.layers

    def keep(self, rows):
        self.cache = [(k[:, :rows], v[:, :rows]) for k, v in self.cache]

    def fuse(self, states):
        """[rows, taps * target hidden] of the target -> what a row takes: [rows, hidden]."""
        states = states.double()
        if self.o.version == 1 or self.o.final:
            return states
        if "input_norm.weight" in self.w:
            states = rms_norm(states, self.w["input_norm.weight"], self.o.eps)
        if "fc_norm.0.weight" in self.w:
            chunks = states.chunk(len(self.o.taps), -1)
            states = torch.cat([rms_norm(c, self.w[f"fc_norm.{j}.weight"], self.o.eps) for j, c in enumerate(chunks)], -1)
        return linear(states, self.w["fc.weight"])

    def rows(self, tokens, hidden):
        """Feeds rows (tokens [rows], hidden [rows, hidden]); gives (logits, what the next row takes)."""
        embedded = self.embedding[tokens]
        return self.one(embedded, hidden) if self.o.version == 1 else self.three(embedded, hidden)

    def one(self, embedded, hidden):
        if self.o.extra_norms:
            embedded = self.norm("embedding_layernorm", embedded)
        x = linear(torch.cat([embedded, hidden], -1), self.w["fc.weight"], self.w.get("fc.bias"))
        for i in range(self.o.layers):
            first = f"layers.{i}.input_layernorm"
            x = self.finish(i, x, self.norm(first, x) if f"{first}.weight" in self.w else x)
        normed = self.norm("pre_lm_head_layernorm", x) if self.o.extra_norms else x
        return linear(normed, self.head), x

    def three(self, embedded, hidden):
        normed = self.norm("layers.0.hidden_norm", hidden)
        wide = torch.cat([self.norm("layers.0.input_layernorm", embedded), normed], -1)
        x = self.finish(0, normed if self.o.norm_before_residual else hidden, wide)
        for i in range(1, self.o.layers):
            x = self.finish(i, x, self.norm(f"layers.{i}.input_layernorm", x))
        out = self.norm("norm", x)
        return linear(out if self.o.head_norm else x, self.head), out if self.o.norm_output else x

    def norm(self, name, x):
        return rms_norm(x, self.w[f"{name}.weight"], self.o.eps)

    def finish(self, i, residual, x):
        """Attention over x and the MLP, both added to the residual."""
        x = residual + self.attention(i, x)
        h = self.norm(f"layers.{i}.post_attention_layernorm", x)
        mlp = f"layers.{i}.mlp."
        gate, up = linear(h, self.w[mlp + "gate_proj.weight"]), linear(h, self.w[mlp + "up_proj.weight"])
        return x + linear(silu(gate) * up, self.w[mlp + "down_proj.weight"])

    def attention(self, i, x):
        o, at = self.o, f"layers.{i}.self_attn."

        def project(part, x):
            return linear(x, self.w[f"{at}{part}_proj.weight"], self.w.get(f"{at}{part}_proj.bias"))

        q, k, v = (project(part, x).unflatten(-1, (-1, o.head_dim)).transpose(0, 1) for part in "qkv")
        if o.qk_norm:
            q, k = self.norm(at + "q_norm", q), self.norm(at + "k_norm", k)
        before = self.cache[i][0].shape[1]
        positions = torch.arange(before, before + len(x))
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        k, v = torch.cat([self.cache[i][0], k], 1), torch.cat([self.cache[i][1], v], 1)
        self.cache[i] = (k, v)
        group = o.heads // o.kv_heads
        scores = q @ k.repeat_interleave(group, 0).transpose(1, 2) / o.head_dim**0.5
        away = positions[:, None] - torch.arange(k.shape[1])
        hidden = (away < 0) | (away >= (o.window or before + len(x)))
        law = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return project("o", (law @ v.repeat_interleave(group, 0)).transpose(0, 1).flatten(1))

    def rotate(self, x, positions):
        speeds, factor = rope.frequencies(self.o.head_dim, self.o.theta, self.o.rope)
        angles = positions[:, None].double() * speeds
        cos, sin = torch.cos(angles) * factor, torch.sin(angles) * factor
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
