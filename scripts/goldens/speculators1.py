"""EAGLE-1 by the class of `speculators` 0.2: a file saved by it, and its forward. Needs that version."""

import torch
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models import EagleSpeculator, EagleSpeculatorConfig
from speculators.proposals import GreedyTokenProposalConfig
from transformers import LlamaConfig, LlamaForCausalLM

import index
from golden import states
from options import ROWS, VOCAB


def plain_names(name):
    return name.replace("fusion_fc.", "fc.").replace("transformer.", "layers.0.")


def package_names(name):
    return name.replace("layers.0.", "transformer.") if name.startswith("layers.") else name.replace("fc.", "fusion_fc.", 1)


def build(o, weights, target):
    layer = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=o.hidden,
        intermediate_size=o.intermediate,
        num_hidden_layers=1,
        num_attention_heads=o.heads,
        num_key_value_heads=o.kv_heads,
        rms_norm_eps=o.eps,
        rope_theta=o.theta,
        attn_implementation="eager",
    )
    verifier = LlamaForCausalLM(layer).float()
    named = {name: target[name] for name in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")}
    verifier.load_state_dict(named, strict=False)
    config = EagleSpeculatorConfig(
        transformer_layer_config=layer,
        layernorms=o.extra_norms,
        fusion_bias=o.fc_bias,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=4)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="tiny/target", architectures=["LlamaForCausalLM"]),
        ),
    )
    model = EagleSpeculator(config, verifier_attachment_mode="detached")
    found = model.load_state_dict({package_names(name): t.float() for name, t in weights.items()}, strict=False)
    assert not found.unexpected_keys and not found.missing_keys, found
    model.attach_verifier(verifier, mode="train_only")
    return model.float().eval()


def save(folder, model, dtype):
    """Saves as the package does; gives the tensors that the file holds, under their plain names."""
    model.to(dtype).save_pretrained(folder)
    index.without_code(folder)
    own = ("embedding_layernorm", "fusion_fc", "transformer", "pre_lm_head_layernorm")
    kept = {plain_names(name): t.clone() for name, t in model.state_dict().items() if name.startswith(own)}
    return kept


@torch.no_grad()
def run(model, o, target):
    """Extend by the package's forward, which returns logits only."""
    feature = states(o, target, slice(0, ROWS)).float()
    mask = torch.full((ROWS, ROWS), float("-inf")).triu(1)[None, None]
    tokens = target["tokens"][None, 1:]
    return {"extend.logits": model.float()(tokens, feature[None], attention_mask=mask, return_dict=False)[0]}
