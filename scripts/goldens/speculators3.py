"""EAGLE-3 by the classes of `speculators` 0.9: a file saved by them, and their forward."""

import copy
import json
import os

import torch
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

import index
from golden import states
from options import ROWS, STEPS, VOCAB
from write_files import maps


def fits(o):
    """What this package's class can be: one width, taps, the final norm before the head."""
    return o.version == 3 and not o.final and o.target_hidden == o.hidden and o.head_norm and o.o_bias == o.qkv_bias


def layer_config(o):
    kind = Qwen3Config if o.qk_norm else LlamaConfig
    keys = {"head_dim": o.head_dim} if o.qk_norm or o.head_dim * o.heads != o.hidden else {}
    if o.window:
        keys |= {"sliding_window": o.window, "layer_types": ["sliding_attention"] * o.layers}
        keys |= {"use_sliding_window": True, "max_window_layers": 0} if o.qk_norm else {}
    return kind(
        vocab_size=VOCAB,
        hidden_size=o.hidden,
        intermediate_size=o.intermediate,
        num_hidden_layers=o.layers,
        num_attention_heads=o.heads,
        num_key_value_heads=o.kv_heads,
        rms_norm_eps=o.eps,
        attention_bias=o.qkv_bias,
        rope_parameters={"rope_type": "default"} | (o.rope or {}) | {"rope_theta": o.theta},
        **keys,
    )


def build(o, weights, target):
    """The package's model with these tensors, in float32."""
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer_config(o),
        draft_vocab_size=o.draft_vocab,
        norm_before_residual=o.norm_before_residual,
        norm_before_fc=o.joint_norm,
        fc_norm=o.tap_norms,
        norm_output=o.norm_output,
        eagle_aux_hidden_state_layer_ids=list(o.taps),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="tiny/target", architectures=["LlamaForCausalLM"]),
        ),
    )
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config)
    tensors = {name: t.float() for name, t in weights.items()}
    tensors.setdefault("embed_tokens.weight", target["model.embed_tokens.weight"])
    tensors.setdefault("lm_head.weight", target["lm_head.weight"])
    tensors |= maps(o, "offsets") if o.reduced else {}
    found = model.load_state_dict(tensors, strict=False)
    assert not found.unexpected_keys, found
    assert all(key.startswith("verifier_") for key in found.missing_keys), found
    return model.float().eval()


def save(folder, model, dtype):
    """Saves as the package does; gives the tensors that the file holds."""
    stored = copy.deepcopy(model).to(dtype)
    stored.save_pretrained(folder)
    index.without_code(folder)
    return {name: tensor for name, tensor in stored.state_dict().items() if not name.startswith("verifier_")}


def keep_differences(folder):
    """Leaves out the layer's keys that equal its class defaults, which a reader must then know."""
    path = os.path.join(folder, "config.json")
    with open(path) as data:
        config = json.load(data)
    layer = config["transformer_layer_config"]
    defaults = (Qwen3Config if layer["model_type"] == "qwen3" else LlamaConfig)().to_dict()
    own = {"head_dim": layer["hidden_size"] // layer["num_attention_heads"]}
    left = {k: v for k, v in layer.items() if (defaults | own).get(k) != v or k == "model_type"}
    config["transformer_layer_config"] = left
    with open(path, "w") as out:
        json.dump(config, out, indent=2, sort_keys=True)
        out.write("\n")


@torch.no_grad()
def run(model, o, ids, target):
    """Extend and steps, all computed by the package's `forward` and read off its lm_head.

    That forward runs step s for every row at once: row q sees rows 0..=q and its own earlier steps,
    and is given the token of row q + s. So the drafted tokens are rows behind the last true one,
    whose row in the results is the recurrence.
    """
    taps = torch.cat([states(o, target, slice(0, ROWS)).float(), torch.zeros(STEPS, len(o.taps) * o.hidden)])
    drafts = []
    for step in range(STEPS + 1):
        drafted = drafts + [0] * (STEPS - len(drafts))
        tokens = torch.cat([target["tokens"][1:], torch.tensor(drafted, dtype=torch.long)])
        logits, hidden = forward(model, taps, tokens, step + 1)
        drafts.append(int(ids[logits[-1][ROWS - 1].argmax()]))
    out = {"extend.logits": logits[0][:ROWS], "extend.hidden": hidden[0][:ROWS]}
    out["steps.tokens"] = torch.tensor(drafts[:STEPS])
    out["steps.logits"] = torch.stack([x[ROWS - 1] for x in logits[1:]])
    out["steps.hidden"] = torch.stack([x[ROWS - 1] for x in hidden[1:]])
    return out


def forward(model, taps, tokens, steps):
    """Of each step: the logits and what is fed back."""
    logits, before, after = [], [], []
    hooks = [
        model.lm_head.register_forward_hook(lambda _, args, out: logits.append(out[0])),
        model.norm.register_forward_pre_hook(lambda _, args: before.append(args[0][0])),
        model.norm.register_forward_hook(lambda _, args, out: after.append(out[0])),
    ]
    model(
        hidden_states=taps[None],
        input_ids=tokens[None],
        document_ids=torch.zeros(1, len(tokens), dtype=torch.long),
        position_ids=torch.arange(len(tokens))[None],
        ttt_steps=steps,
    )
    for hook in hooks:
        hook.remove()
    return logits, after if model.config.norm_output else before
