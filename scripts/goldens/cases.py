"""The heads: what each computes, and how its files spell it."""

from dataclasses import dataclass, field

from options import VOCAB, Options

MIDLAYER = (("layers.0.", "midlayer."),)
ONE, THREE = Options(version=1, draft_vocab=VOCAB), Options(version=3)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@dataclass(frozen=True)
class Case:
    name: str
    note: str
    options: Options
    source: str = "safeailab"  # safeailab, specforge, speculators, gguf
    file: str = "safetensors"  # or bin
    dtype: str = "bfloat16"
    d2t: str = "offsets"  # absolute, absent
    renames: tuple = ()
    config: dict = field(default_factory=dict)


def eagle1(name, note, options, **more):
    return Case(f"eagle1-{name}", note, options, **more)


def eagle3(name, note, options=THREE, **more):
    return Case(f"eagle3-{name}", note, options, **({"renames": MIDLAYER} | more))


def specforge(name, note, options=THREE, config=None, **more):
    keys = {"architectures": ["LlamaForCausalLMEagle3"]} | (config or {})
    return eagle3(name, note, options, source="specforge", config=keys, **more)


def gguf(name, note, options=THREE, **more):
    return Case(f"eagle3-gguf{name}", note, options, **({"source": "gguf", "file": "gguf", "dtype": "float16"} | more))


def package(name, note, options, **more):
    return Case(f"speculators-{name}", note, options, source="speculators", **more)


def in_eagle_config(ids, **more):
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids} | more}


OLD_ROPE = {"rope_theta": 500000.0}
HASS = (
    ("embedding_layernorm.", "embed_layernorm."),
    ("layers.0.input_layernorm.", "hidden_layernorm."),
    ("pre_lm_head_layernorm.", "lm_head_layernorm."),
)

EAGLE1 = [
    eagle1("plain", "no fc bias; LLaMA-3 style config", ONE.but(theta=500000.0), config={"bias": False} | OLD_ROPE),
    eagle1("fc-bias", "fc bias, no `bias` key: LLaMA-2 style config", ONE.but(fc_bias=True), dtype="float16"),
    eagle1("wrong-bias-key", "`bias: false` though fc.bias is in the file", ONE.but(fc_bias=True), dtype="float16", config={"bias": False}),
    eagle1("two-layers", "the second with an input norm", ONE.but(layers=2), config={"bias": False}),
    eagle1("norms", "norms on the embedding, on the fused row, before the head", ONE.but(extra_norms=True, fc_bias=True), renames=HASS),
    eagle1("qkv-bias", "Qwen2 style", ONE.but(qkv_bias=True, fc_bias=True), config={"qkv_bias": True}),
    eagle1("own-embedding", "zip pickle; a copy in the file wins over the target's", ONE.but(own_embed=True), file="bin", dtype="float16", config={"bias": False}),
]

FORMATS = [
    eagle3("plain", "bf16 safetensors"),
    eagle3("safeailab-f32", "f32 safetensors, MLP 128 wide", THREE.but(intermediate=128), dtype="float32"),
    eagle3("safeailab-bin-f16", "zip pickle", file="bin", dtype="float16"),
    eagle3("safeailab-bin-bf16", "zip pickle", file="bin"),
    eagle3("safeailab-bin-f32", "zip pickle", file="bin", dtype="float32"),
    eagle3("prefixed", "names `model.layers.0.*`, as other servers accept them", renames=(
        ("layers.0.", "model.layers.0."), ("fc.", "model.fc."), ("norm.", "model.norm."))),
    specforge("specforge", "tap ids in output numbering: 1, 3, 4 are the outputs entering layers 2, 4, 5",
              config=in_eagle_config([1, 3, 4], use_aux_hidden_state=True)),
    specforge("specforge-old-norm-output", "before the fix `norm_output: true` meant the norm before the head: a plain head",
              config={"norm_output": True} | in_eagle_config([1, 3, 4])),
    specforge("specforge-no-head-norm", "before the fix `norm_output: false` meant no norm before the head", THREE.but(head_norm=False),
              config={"norm_output": False} | in_eagle_config([1, 3, 4])),
    eagle3("d2t-absolute", "absolute ids, as t2d shows", d2t="absolute"),
    eagle3("d2t-zero", "offsets all zero: the first 31 ids", THREE.but(d2t="first")),
]

OPTIONS = [
    eagle3("taps-1", "one tap, top-level ids", THREE.but(taps=(6,)), config={"eagle_aux_hidden_state_layer_ids": [6]}),
    eagle3("taps-2", "fc reads 2 * hidden, as an EAGLE-1 head's does", THREE.but(taps=(2, 6)),
           config={"num_aux_hidden_states": 2, "eagle_aux_hidden_state_layer_ids": [2, 6]}),
    eagle3("taps-4", "with tap n, so the ids in eagle_config are canonical", THREE.but(taps=(0, 3, 5, 8)), config=in_eagle_config([0, 3, 5, 8])),
    eagle3("own-embedding", "same width as the target's, but its own", THREE.but(own_embed=True)),
    eagle3("full-head", "own head over the whole vocabulary, maps as trainers leave them", THREE.but(draft_vocab=VOCAB)),
    eagle3("borrowed-head", "draft_vocab_size null and no lm_head: the target's", THREE.but(draft_vocab=VOCAB, own_head=False), d2t="absent",
           config={"draft_vocab_size": None}),
    eagle3("target-48", "target_hidden_size, own embedding", THREE.but(target_hidden=48, own_embed=True), config={"target_hidden_size": 48}),
    eagle3("norm-before-fc", "one norm over all taps", THREE.but(joint_norm=True), config={"norm_before_fc": True}),
    eagle3("fc-norm", "a norm for each tap", THREE.but(tap_norms=True), config={"fc_norm": True}),
    eagle3("aux-norm", "its older names", THREE.but(tap_norms=True), config={"use_aux_norm": True}, renames=(
        *MIDLAYER, ("fc_norm.0.", "aux_norm_low."), ("fc_norm.1.", "aux_norm_mid."), ("fc_norm.2.", "aux_norm_high."))),
    eagle3("norm-before-residual", "residual from the normed hidden", THREE.but(norm_before_residual=True), config={"norm_before_residual": True}),
    eagle3("norm-output", "the normed output is fed back", THREE.but(norm_output=True), config={"norm_output": True}),
    eagle3("final-feature", "fed the target's final norm, no fc", THREE.but(final=True, taps=()), config={"eagle_config": {"use_aux_hidden_state": False}}),
    eagle3("head-dim-32", "heads wider than hidden / heads", THREE.but(head_dim=32), config={"head_dim": 32}),
    eagle3("qk-norm", "qwen3 layer", THREE.but(qk_norm=True), config={"model_type": "qwen3", "head_dim": 16}),
    eagle3("two-layers", "the second an ordinary layer", THREE.but(layers=2), renames=()),
    eagle3("attention-bias", "on q, k, v", THREE.but(qkv_bias=True), config={"attention_bias": True}),
    eagle3("attention-bias-o", "on q, k, v and o", THREE.but(qkv_bias=True, o_bias=True), config={"attention_bias": True}),
    eagle3("window-4", "a row sees itself and three before it", THREE.but(window=4),
           config={"sliding_window": 4, "layer_types": ["sliding_attention"]}),
    eagle3("rope-theta", "500000", THREE.but(theta=500000.0), config=OLD_ROPE),
    eagle3("rope-llama3", "older keys", THREE.but(rope=LLAMA3), config={"rope_theta": 10000.0, "rope_scaling": LLAMA3}),
    eagle3("rope-linear", "`type` instead of `rope_type`", THREE.but(rope={"rope_type": "linear", "factor": 4.0}),
           config={"rope_scaling": {"type": "linear", "factor": 4.0}}),
    eagle3("rope-yarn", "", THREE.but(rope=YARN), config={"rope_scaling": YARN, "max_position_embeddings": 256}),
    eagle3("rope-parameters", "llama3 scaling with theta inside, newer keys", THREE.but(rope=LLAMA3, theta=500000.0),
           config={"rope_parameters": {"rope_theta": 500000.0} | LLAMA3}),
    eagle3("rope-parameters-nested", "the same by layer type", THREE.but(rope=LLAMA3, theta=500000.0),
           config={"layer_types": ["full_attention"], "rope_parameters": {"full_attention": {"rope_theta": 500000.0} | LLAMA3}}),
]

GGUF = [
    gguf("", "", dtype="float32"),
    gguf("-f16", "matrices in f16"),
    gguf("-extract-layers", "older spellings, and an embedding", THREE.but(taps=(1, 4, 7), own_embed=True),
         config={"target_layers": "extract_layers", "layers.0.hidden_norm": "blk.0.hidden_norm"}),
    gguf("-rope-freqs", "llama3 scaling as divisors", THREE.but(rope=LLAMA3, theta=500000.0)),
    gguf("-norm-before-residual", "", THREE.but(norm_before_residual=True)),
    gguf("-norm-before-fc", "", THREE.but(joint_norm=True)),
    gguf("-borrowed-head", "whole vocabulary, no output tensor", THREE.but(draft_vocab=VOCAB, own_head=False)),
]

# The package always saves its embedding.
SAVED = THREE.but(own_embed=True)

SPECULATORS = [
    package("llama", "all but the sizes as its config class has it", SAVED.but(eps=1e-6)),
    package("diff-config", "the same; keys equal to the class defaults left out, as older versions of transformers did",
            SAVED.but(eps=1e-6), config={"differences_only": True}),
    package("qwen3", "a qwen3 layer", SAVED.but(qk_norm=True)),
    package("norm-before-residual", "", SAVED.but(norm_before_residual=True)),
    package("norm-before-fc", "", SAVED.but(joint_norm=True)),
    package("fc-norm", "two taps", SAVED.but(tap_norms=True, taps=(3, 8))),
    package("norm-output", "", SAVED.but(norm_output=True)),
    package("bias-rope", "attention bias, llama3 rope", SAVED.but(qkv_bias=True, o_bias=True, rope=LLAMA3, theta=500000.0)),
    package("two-layers", "", SAVED.but(layers=2)),
    package("window", "sliding window 4", SAVED.but(window=4)),
    package("full-head", "equal vocabularies: no maps", SAVED.but(draft_vocab=VOCAB)),
]

# Written by speculators 0.2.
SPECULATORS1 = [
    package("eagle1", "", ONE.but(eps=1e-6)),
    package("eagle1-norms", "layernorms and fusion_bias", ONE.but(eps=1e-6, extra_norms=True, fc_bias=True)),
]
