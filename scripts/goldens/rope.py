"""Rotary frequencies of every scaling that a head's config may name, in float64."""

import math

import torch


def frequencies(head_dim, theta, scaling):
    """([head_dim / 2] radians a position, factor of cosine and sine)."""
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    plain = theta ** (-2.0 * pairs / head_dim)
    kind = (scaling or {}).get("rope_type", "default")
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "llama3":
        return llama3(plain, scaling), 1.0
    if kind == "yarn":
        return yarn(plain, pairs, head_dim, theta, scaling)
    raise ValueError(kind)


def llama3(plain, s):
    turns = s["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (keep + (1 - keep) / s["factor"])


def yarn(plain, pairs, head_dim, theta, s):
    def pair_that_turns(times):
        """Pair that makes so many turns over the original context."""
        return head_dim * math.log(s["original_max_position_embeddings"] / (times * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(pair_that_turns(s.get("beta_fast", 32))), 0)
    last = min(math.ceil(pair_that_turns(s.get("beta_slow", 1))), head_dim - 1)
    stretched = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
    return plain * (1 - stretched) + plain / s["factor"] * stretched, 0.1 * math.log(s["factor"]) + 1
