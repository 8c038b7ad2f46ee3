"""What a head computes. Shapes are those of the files: a linear layer's weight is [out, in]."""

from dataclasses import dataclass, replace

ROWS = 9  # fed by the first extend
STEPS = 4  # recurrent steps after it
ROWS_AGAIN = 3  # fed after the rollback
STEPS_AGAIN = 2
TARGET_LAYERS = 8
VOCAB = 97


@dataclass(frozen=True)
class Options:
    version: int
    hidden: int = 64
    target_hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    intermediate: int = 16
    draft_vocab: int = 31
    layers: int = 1
    eps: float = 1e-3
    theta: float = 10000.0
    rope: dict | None = None  # as in a config: rope_type, factor, ...
    window: int | None = None  # a row sees itself and window - 1 rows before it
    taps: tuple = (2, 4, 5)  # canonical: the residual stream entering layer k
    final: bool = False  # fed the target's final norm of tap n; no fc in EAGLE-3
    d2t: str = "sorted"  # or "first": the first ids of the vocabulary

    # Tensors that may be there.
    own_embed: bool = False
    own_head: bool = True
    fc_bias: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    joint_norm: bool = False  # one norm over all taps before fc
    tap_norms: bool = False  # one norm for each tap before fc
    extra_norms: bool = False  # EAGLE-1: on the embedding, before layer 0, before the head

    # EAGLE-3 switches without a tensor.
    norm_before_residual: bool = False
    norm_output: bool = False  # the normed output is fed back
    head_norm: bool = True  # norm before the head

    def but(self, **changes):
        return replace(self, **changes)

    @property
    def first_input(self):
        """Width that the first layer's q, k and v read."""
        return self.hidden * (2 if self.version == 3 else 1)

    @property
    def reduced(self):
        return self.draft_vocab != VOCAB
