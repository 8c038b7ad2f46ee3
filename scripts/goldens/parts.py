"""A second forward, from the layers of `transformers` and of `speculators` 0.9, for every option.

Only the few lines around the layers are its own; attention, rotation, norms, MLP and the cache are
the packages'.
"""

import copy

import torch
from speculators.models.eagle3.model_definitions import model_classes
from torch import nn
from transformers import DynamicCache

from options import VOCAB
from speculators3 import layer_config


class Parts(nn.Module):
    def __init__(self, o, weights, target):
        super().__init__()
        self.o = o
        config = layer_config(o.but(window=None))
        config._attn_implementation = "eager"
        kinds = model_classes[config.model_type]
        normed = kinds.norm_class
        self.layers = nn.ModuleList(self.layer(kinds, config, i) for i in range(o.layers))
        self.rotary = kinds.rotary_emb_class(copy.deepcopy(config))
        self.embed_tokens = nn.Embedding(VOCAB, o.hidden)
        self.lm_head = nn.Linear(o.hidden, o.draft_vocab if o.version == 3 else VOCAB, bias=False)
        if "fc.weight" in weights:
            self.fc = nn.Linear(weights["fc.weight"].shape[1], o.hidden, bias=o.fc_bias)
        for name in ("norm", "input_norm", "embedding_layernorm", "pre_lm_head_layernorm"):
            there = f"{name}.weight" in weights
            setattr(self, name, normed(len(weights[f"{name}.weight"]), eps=o.eps) if there else nn.Identity())
        if o.tap_norms:
            self.fc_norm = nn.ModuleList(normed(o.target_hidden, eps=o.eps) for _ in o.taps)
        self.fill(weights, target)
        self.cache = DynamicCache()

    def layer(self, kinds, config, i):
        if i == 0 and self.o.version == 3:
            return kinds.first_layer_class(config, layer_idx=0, norm_before_residual=self.o.norm_before_residual)
        layer = kinds.decoder_layer_class(config, i)
        if i == 0 and not self.o.extra_norms:
            layer.input_layernorm = nn.Identity()
        return layer

    def fill(self, weights, target):
        tensors = {name: t.float() for name, t in weights.items() if not name.endswith(("d2t", "t2d"))}
        tensors.setdefault("embed_tokens.weight", target["model.embed_tokens.weight"])
        tensors.setdefault("lm_head.weight", target["lm_head.weight"])
        found = self.load_state_dict(tensors, strict=False)
        assert not found.unexpected_keys, found
        # A Llama layer with biases has one on its output too, which a head may lack.
        assert all(key.endswith("o_proj.bias") for key in found.missing_keys), found
        for key in found.missing_keys:
            nn.init.zeros_(self.get_parameter(key))
        self.float().eval()

    def keep(self, rows):
        self.cache.crop(rows - self.cache.get_seq_length())

    def fuse(self, states):
        states = states.float()
        if self.o.version == 1 or self.o.final:
            return states
        states = self.input_norm(states)
        if self.o.tap_norms:
            chunks = states.chunk(len(self.o.taps), -1)
            states = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], -1)
        return self.fc(states)

    @torch.no_grad()
    def rows(self, tokens, hidden):
        x = torch.cat([self.embedding_layernorm(self.embed_tokens(tokens)), hidden], -1)[None]
        if self.o.version == 1:
            x = self.fc(x)
        before = self.cache.get_seq_length()
        positions = torch.arange(before, before + len(tokens))
        away = positions[:, None] - torch.arange(before + len(tokens))
        unseen = (away < 0) | (away >= (self.o.window or before + len(tokens)))
        mask = torch.zeros(unseen.shape).masked_fill(unseen, float("-inf"))[None, None]
        for layer in self.layers:
            x = layer(
                x,
                attention_mask=mask,
                position_ids=positions[None],
                past_key_values=self.cache,
                use_cache=True,
                position_embeddings=self.rotary(x, positions[None]),
            )
        out = self.norm(self.pre_lm_head_layernorm(x))
        logits = self.lm_head(out if self.o.head_norm else x)
        return logits[0], (out if self.o.norm_output else x)[0]
