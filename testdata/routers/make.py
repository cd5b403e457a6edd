#!/usr/bin/env python3
"""Makes routers.json: what the routers of transformers choose for given logits.

Each case is the router of one architecture, whose weights are the identity, so that its logits are its
input: {"name", "moe": the constants as formats/graph spells them, "bias", "logits" [T][experts],
"chosen" [T][top_k] and "share" [T][top_k], in no order}. No logits are equal: torch does not say which of
equals it takes.

Needs: transformers, torch. Made with: transformers 5.23.0, torch 2.15.0.
"""

import importlib
import json
import os
import types

import torch

TOKENS = 6


def router(module, name, **config):
    m = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    return getattr(m, name)(types.SimpleNamespace(**config))


def sigmoid_groups(module, name, n_group, topk_group, scale):
    return router(module, name, num_experts_per_tok=4, num_local_experts=16, hidden_size=16, n_routed_experts=16,
                  routed_scaling_factor=scale, n_group=n_group, topk_group=topk_group, norm_topk_prob=True)


def grouped(n_group, topk_group, scale, **more):
    m = {"score": "sigmoid", "normalize": True, "epsilon": 1e-20, "scale": scale} | more
    return m | ({"groups": n_group, "top_groups": topk_group} if n_group else {})


def cases():
    plain = dict(num_experts_per_tok=4, hidden_size=16)
    yield "deepseek_v3", sigmoid_groups("deepseek_v3", "DeepseekV3TopkRouter", 4, 2, 2.5), grouped(4, 2, 2.5)
    yield "glm4_moe", sigmoid_groups("glm4_moe", "Glm4MoeTopkRouter", 1, 1, 1.5), grouped(1, 1, 1.5)
    yield "nemotron_h", sigmoid_groups("nemotron_h", "NemotronHTopkRouter", 8, 3, 1.0), grouped(8, 3, 1.0)
    yield "axk2", sigmoid_groups("axk2", "AXK2TopkRouter", 4, 2, 2.0), grouped(4, 2, 2.0, zero_masked=True)
    yield "deepseek_v2", router("deepseek_v2", "DeepseekV2TopkRouter", num_experts=16, routed_scaling_factor=16.0, topk_method="group_limited_greedy",
                                n_group=4, topk_group=2, **plain), {"groups": 4, "top_groups": 2, "group_best": 1, "scale": 16.0}
    yield "deepseek_v4", router("deepseek_v4", "DeepseekV4TopKRouter", num_local_experts=16, scoring_func="sqrtsoftplus", routed_scaling_factor=1.5,
                                **plain), {"score": "root", "normalize": True, "epsilon": 1e-20, "scale": 1.5}
    yield "minimax_m2", router("minimax_m2", "MiniMaxM2TopKRouter", num_local_experts=16, **plain), {"score": "sigmoid", "normalize": True}
    yield "lfm2_moe", router("lfm2_moe", "Lfm2MoeTopKRouter", num_experts=16, norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=True,
                             **plain), {"score": "sigmoid", "normalize": True, "epsilon": 1e-6}
    yield "qwen3_next", router("qwen3_next", "Qwen3NextTopKRouter", num_experts=16, norm_topk_prob=True, **plain), {"normalize": True}
    yield "gpt_oss", router("gpt_oss", "GptOssTopKRouter", num_local_experts=16, **plain), {"score": "selected"}


def main():
    torch.manual_seed(7)
    out = []
    for name, r, moe in cases():
        with torch.no_grad():
            r.weight.copy_(torch.eye(16))
        x = torch.randn(TOKENS, 16) * 2
        bias = torch.randn(16) * 0.7 - 0.3
        args, used = [], True
        if hasattr(r, "e_score_correction_bias"):
            r.e_score_correction_bias.copy_(bias)
        elif name in ("minimax_m2", "lfm2_moe"):
            args = [bias]
        else:
            used = False
        if name == "gpt_oss":
            with torch.no_grad():
                r.bias.zero_()
        with torch.no_grad():
            logits, share, chosen = r(x, *args)
        assert torch.equal(logits.float(), x), name
        out.append({"name": name, "moe": {"act": "silu", "experts": 16, "top_k": 4} | moe, "bias": bias.tolist() if used else [],
                    "logits": x.tolist(), "chosen": chosen.tolist(), "share": share.tolist()})
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "routers.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n")


main()
