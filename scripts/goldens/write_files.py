"""config.json with pytorch_model.bin or model.safetensors: SafeAILab, SpecForge and their kin."""

import json
import os

import torch
from safetensors.torch import save_file

from options import VOCAB
from weights import ids, stored

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def config(o, dtype, changes):
    """Keys that a Llama-like draft config has; `changes` adds to them or replaces some."""
    keys = {
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "draft_vocab_size": o.draft_vocab,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": o.hidden,
        "initializer_range": 0.02,
        "intermediate_size": o.intermediate,
        "max_position_embeddings": 2048,
        "model_type": "llama",
        "num_attention_heads": o.heads,
        "num_hidden_layers": o.layers,
        "num_key_value_heads": o.kv_heads,
        "pad_token_id": 0,
        "rms_norm_eps": o.eps,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        "transformers_version": "4.46.2",
        "use_cache": True,
        "vocab_size": VOCAB,
    }
    if o.version == 1:
        del keys["draft_vocab_size"]
    return keys | changes


def maps(o, kind):
    """d2t and t2d: offsets, as trainers save them, or absolute ids; none at all for `absent`."""
    if o.version == 1 or kind == "absent":
        return {}
    chosen = ids(o)
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[chosen] = True
    return {"d2t": chosen if kind == "absolute" else chosen - torch.arange(len(chosen)), "t2d": t2d}


def renamed(tensors, renames):
    def name(old):
        for begin, instead in renames:
            if old.startswith(begin):
                return instead + old.removeprefix(begin)
        return old

    return {name(old): tensor.contiguous() for old, tensor in tensors.items()}


def write(folder, case, weights):
    """Writes the head and returns its tensors as the file holds them, under their plain names."""
    o = case.options
    kept = stored(weights, DTYPES[case.dtype])
    tensors = renamed(kept | maps(o, case.d2t), case.renames)
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config(o, case.dtype, case.config), out, indent=2)
        out.write("\n")
    if case.file == "bin":
        torch.save(tensors, os.path.join(folder, "pytorch_model.bin"))
    else:
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    return kept
