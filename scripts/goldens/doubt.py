"""What a wrong reading of a head would change: if nothing, its right values would prove nothing."""

import golden
from model import Plain
from weights import ids


def swapped(o, weights):
    names = ["fc.weight"] if o.version == 1 else [f"layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    return weights | {n: weights[n].roll(o.hidden, 1) for n in names}


def interleaved(o, weights):
    """Q and K with the row order of the other kind of rotation."""
    rows = {"q": o.heads, "k": o.kv_heads}
    names = {f"layers.0.self_attn.{part}_proj.weight": heads for part, heads in rows.items()}
    return weights | {n: weights[n].unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2) for n, heads in names.items()}


def doubts(o, weights, target, right):
    """Largest change of a logit under each error, on the run of the right tokens."""
    found = {}

    def error(name, wrong=o, tensors=weights):
        values = golden.run(Forced(wrong, tensors, target, right), wrong, ids(o), target)
        found[name] = golden.difference(values, right, [n for n in right if n.endswith("logits")])

    error("embedding and hidden swapped", tensors=swapped(o, weights))
    error("rotation of the other kind", tensors=interleaved(o, weights))
    error("eps ten times as large", o.but(eps=10 * o.eps))
    error("theta", o.but(theta=5e5 if o.theta == 1e4 else 1e4))
    if o.rope:
        error("rope scaling ignored", o.but(rope=None))
    if o.window:
        error("window ignored", o.but(window=None))
        error("window one wider", o.but(window=o.window + 1))
    if len(o.taps) > 1 and o.version == 3:
        error("taps reversed", o.but(taps=o.taps[::-1]))
    if o.taps and o.version == 3:
        error("taps one layer off", o.but(taps=tuple(tap - 1 if max(o.taps) == 8 else tap + 1 for tap in o.taps)))
    if o.version == 3:
        error("norm_before_residual", o.but(norm_before_residual=not o.norm_before_residual))
        error("norm_output", o.but(norm_output=not o.norm_output))
        error("norm before the head", o.but(head_norm=not o.head_norm))
    if o.qk_norm:
        error("q and k norms ignored", o.but(qk_norm=False))
    if o.extra_norms:
        error("extra norms ignored", o.but(extra_norms=False))
    optional = ("bias", "input_norm.weight", "fc_norm.0.weight", "embed_tokens.weight")
    for name in weights:
        if name.endswith(optional) and o.target_hidden == o.hidden:
            error(f"{name} ignored", tensors={n: t for n, t in weights.items() if n != name})
    return found


class Forced(Plain):
    """Feeds the right run's tokens, whatever the head would choose."""

    def __init__(self, options, weights, target, right):
        super().__init__(options, weights, target)
        queue = [right["steps.tokens"], right["again.tokens"], right["again.steps.tokens"]]
        singles = [*queue[0].split(1), queue[1], *queue[2].split(1)]
        self.queue = iter([target["tokens"][1:], *singles])

    def rows(self, tokens, hidden):
        return super().rows(next(self.queue), hidden)
