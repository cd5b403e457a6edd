#!/usr/bin/env python3
"""Moves every key of config.json off its default and records what transformers computes then.

A checkpoint may differ from another by one key of config.json and mean another model. For each of
the twelve model types that NSTF reads, this script takes a tiny configuration and changes it: every
key of transformers' configuration class (and of its base class, and the names that the class maps
to its own), one at a time; every key of a rotary embedding's description, in the style of
rope_parameters and in that of rope_scaling, for every kind; and the sets of keys that mean
something only together. It loads the changed model with AutoModelForCausalLM in float32 with eager
attention, as a user would, and records the logits of the last positions of a short prompt, or that
transformers refuses.

    python make.py                     writes cases.json.gz and logits.npy beside this script
    python make.py --type NAME...      later model types, each to the folder of its name
    python make.py --wide N SEED DIR   N random sets of one to three changes to DIR, for a run by hand; of later types with --type
    python make.py --base JSON DIR     the types that JSON names, with keys put over their bases, to DIR

Weights are not stored: weight() below makes them from a tensor's name, exactly, so that another
program makes the same ones (runtime/exec/configs_test.go does). cases.json.gz has the shapes.

    {"versions", "ids", "rows": R,
     "bases":  {model_type: config.json},
     "shapes": [{tensor name: shape}], where "#3" in a name of a later type stands for 0, 1 and 2,
     "cases":  [{"type", "set": keys put over the base's, "drop": keys taken out,
                 "head": "stored" (a head of its own beside tied embeddings) | "copied" (an equal one),
                 "shapes": index, "logits": index into logits.npy | "error": class of the exception}]}
    logits.npy  float32 [N][R x largest vocabulary]: the last R positions, flat, zeros behind; equal
                ones are stored once

Needs: transformers, torch (a CPU is enough), safetensors, numpy. Made with transformers 5.23.0 and
torch 2.15.0; the versions stand in cases.json.gz.
"""

import argparse
import copy
import dataclasses
import itertools
import gzip
import json
import logging
import math
import os
import random
import re
import shutil
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.generation.configuration_utils import GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HERE = Path(__file__).parent
IDS = [3, 17, 5, 11, 2, 19, 7, 13, 1, 23, 9, 4]
ROWS = 2  # the last positions: they attend to everything before

# ---------------------------------------------------------------- weights


def weight(name: str, shape: list[int], gemma: bool) -> np.ndarray:
    """The float32 numbers of a tensor. Seed: FNV-1a (64 bits) of the name. Number i: splitmix64 of
    seed + (i+1) * 0x9E3779B97F4A7C15, its upper 24 bits as an integer n, u = (n - 2^23) / 2^23. A
    matrix or a bias is u/2, the weight of a norm 1 + u/4, in Gemma u/4. Every step is exact but for
    the sum, which is rounded to float32 once."""
    seed = 0xCBF29CE484222325
    for b in name.encode():
        seed = (seed ^ b) * 0x100000001B3 % 2**64
    i = np.arange(1, math.prod(shape) + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = ((z >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32) * np.float32(2**-23)
    if len(shape) == 1 and name.endswith(".weight"):
        return (np.float32(0 if gemma else 1) + u * np.float32(0.25)).reshape(shape)
    return (u * np.float32(0.5)).reshape(shape)


# ---------------------------------------------------------------- configurations

FAMILY = dict(vocab_size=24, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GPT = dict(vocab_size=24, n_embd=32, n_layer=3, n_head=4, n_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)

BASES = {
    "llama": FAMILY,
    "mistral": FAMILY,
    "mixtral": {**FAMILY, "num_local_experts": 4},
    "qwen2": {k: v for k, v in FAMILY.items() if k != "head_dim"},
    "qwen3": FAMILY,
    "qwen3_moe": {**FAMILY, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "phi3": {k: v for k, v in FAMILY.items() if k != "head_dim"},
    "gemma2": {**FAMILY, "query_pre_attn_scalar": 8, "sliding_window": 5},
    "gemma3_text": {**FAMILY, "query_pre_attn_scalar": 8, "sliding_window": 5, "sliding_window_pattern": 2},
    "gpt2": GPT,
    "gpt_neox": {**{k: v for k, v in FAMILY.items() if k not in ("head_dim", "num_key_value_heads")}, "num_attention_heads": 2},
    "gptj": {**GPT, "rotary_dim": 4},
}

# Types that came later have a folder each (make.py --type NAME), with fewer values for keys that others have.
TWIN = {k: v for k, v in FAMILY.items() if k != "head_dim"}
HYBRID = {**FAMILY, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
HYBRID_MOE = {**HYBRID, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 16}
LATENT = {**TWIN, "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 8, "v_head_dim": 5, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
KIMI = {**{k: v for k, v in LATENT.items() if k not in ("q_lora_rank", "n_routed_experts", "first_k_dense_replace")}, "num_local_experts": 4, "linear_num_heads": 3,
        "linear_head_dim": 8, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
LATER = {
    "kimi_linear": KIMI,
    "deepseek_v2": LATENT, "deepseek_v3": LATENT, "glm4_moe_lite": {k: v for k, v in LATENT.items() if k != "first_k_dense_replace"},
    "seed_oss": FAMILY, "ernie4_5": FAMILY,
    "smollm3": {**TWIN, "num_hidden_layers": 4, "sliding_window": 5},
    "starcoder2": TWIN, "stablelm": TWIN,
    "falcon": {k: v for k, v in {**TWIN, "ffn_hidden_size": 40}.items() if k not in ("intermediate_size", "num_key_value_heads")},
    "glm4_moe": {**FAMILY, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "gpt_oss": {**FAMILY, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    "gemma4_text": {**FAMILY, "global_head_dim": 12, "sliding_window": 5, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 24},
    "gemma4_unified_text": {**FAMILY, "global_head_dim": 12, "sliding_window": 5},
    "qwen2_moe": {**TWIN, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 16},
    "qwen3_next": HYBRID_MOE, "qwen3_5_text": HYBRID, "qwen3_5_moe_text": {k: v for k, v in HYBRID_MOE.items() if k != "intermediate_size"},
    "olmo2": TWIN, "olmo3": {**TWIN, "num_hidden_layers": 4, "sliding_window": 5}, "exaone4": {**TWIN, "sliding_window": 5, "sliding_window_pattern": 2},
    "ministral3": {**FAMILY, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4, "llama_4_scaling_beta": 0.3}},
    "minimax_m2": {**FAMILY, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {**TWIN, "num_hidden_layers": 4, "intermediate_size_mlp": 40, "num_local_experts": 4, "num_experts_per_tok": 2, "attention_chunk_size": 5,
                    "floor_scale": 3, "interleave_moe_layer_step": 2},
    "ernie4_5_moe": {**TWIN, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24}, "hunyuan_v1_moe": {**FAMILY, "num_experts": 4, "moe_topk": 2},
    "apertus": TWIN, "hunyuan_v1_dense": FAMILY, "granite": TWIN, "cohere": TWIN, "cohere2": {**TWIN, "sliding_window": 5, "sliding_window_pattern": 2},
    "lfm2": {**TWIN, "block_multiple_of": 8, "layer_types": ["conv", "full_attention", "conv"]},
    "lfm2_moe": {**TWIN, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv"]},
    "granitemoehybrid": {**TWIN, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 24, "mamba_n_heads": 4, "mamba_n_groups": 1,
                         "mamba_d_state": 8, "mamba_d_head": 16, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "nemotron_h": {**{k: v for k, v in FAMILY.items() if k != "num_hidden_layers"}, "layers_block_type": ["linear_attention", "full_attention", "moe", "mlp"],
                   "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 16},
}
HYBRIDS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
LATER_VALUES = {"hidden_act": ["gelu", "relu", "gelu_pytorch_tanh", "silu"], "activation": ["gelu", "relu", "silu"], "sliding_window": [4, None]}

# What a key is moved to, where its type alone does not say. The values are chosen so that a reader
# that disregards the key, or takes its default, gives other logits.
VALUES = {
    "vocab_size": [32], "hidden_size": [48], "n_embd": [48], "intermediate_size": [56], "n_inner": [56], "moe_intermediate_size": [32],
    "num_hidden_layers": [2], "n_layer": [2], "num_attention_heads": [2, 4, 8], "n_head": [2], "num_key_value_heads": [1, 4, None],
    "head_dim": [4, 16, None], "max_position_embeddings": [8], "n_positions": [16], "original_max_position_embeddings": [8],
    "rms_norm_eps": [0.5], "layer_norm_eps": [0.5], "layer_norm_epsilon": [0.5],
    "hidden_act": ["gelu", "gelu_new", "relu", "quick_gelu", "gelu_10", "gelu_fast", "gelu_pytorch_tanh", "laplace", "leaky_relu", "linear", "mish",
                   "relu2", "relu6", "sigmoid", "silu", "swish", "tanh", "prelu", "gelu_python", "gelu_python_tanh", "gelu_accurate", "no_such"],
    "sliding_window": [4, 1, 0, -1, None], "max_window_layers": [1], "query_pre_attn_scalar": [16],
    "final_logit_softcapping": [2.0, None, 0.0], "attn_logit_softcapping": [1.5, None, 0.0],
    "layer_types": [["sliding_attention", "full_attention", "full_attention"], ["full_attention"] * 3, ["full_attention"] * 4, ["chunked_attention"] * 3],
    "mlp_only_layers": [[1], [0, 1, 2]], "decoder_sparse_step": [2, 0], "num_experts": [3], "num_local_experts": [3], "num_experts_per_tok": [1, 3, 5],
    "full_attention_interval": [3, 1, 0], "linear_num_key_heads": [4, 1, 3], "linear_num_value_heads": [2, 6], "linear_key_head_dim": [16],
    "linear_value_head_dim": [12], "linear_conv_kernel_dim": [3, 1], "attn_output_gate": [False, True],
    "rotary_dim": [8, 2, 0, 3], "attention_dropout": [0.5, None],
    "pad_token_id": [5, None, 24], "bos_token_id": [6, None], "eos_token_id": [7, [4, 5], None],
    "dtype": ["float16", "bfloat16", "float64"], "architectures": [["LlamaModel"], []], "transformers_version": ["4.1.0"],
    "id2label": [{"0": "a", "1": "b", "2": "c"}], "label2id": [{"a": 0}], "problem_type": ["regression"],
    "summary_type": ["mean"], "summary_activation": ["tanh"], "rope_parameters": [],
    # Of the base class, but no field of it; and what masks read.
    "per_layer_config": [{"1": {"intermediate_size": 24}}, {}], "is_causal": [False, True], "output_attentions": [True],
    "attn_implementation": ["eager", "flash_attention_2"], "torch_dtype": ["float16"], "num_labels": [5], "chunk_size_feed_forward": [4],
    "attention_chunk_size": [4], "use_bidirectional_attention": [True, None], "return_dict": [False], "is_encoder_decoder": [True],
    "is_decoder": [True], "tie_last_hidden_states": [True],
    "no_rope_layers": [[0, 1, 1, 0], [1, 1, 1, 1], [1]], "no_rope_layer_interval": [2, 0], "norm_epsilon": [0.5], "ffn_hidden_size": [56, None],
    "num_kv_heads": [2, 1, None], "num_ln_in_parallel_attn": [1, 2], "shared_expert_intermediate_size": [24],
    "n_routed_experts": [6], "n_shared_experts": [2], "first_k_dense_replace": [2, 0], "num_mtp_layers": [0], "n_group": [2], "topk_group": [2],
    "time_step_limit": [[0.5, 1.0], [0.25, 1e9]], "layers_block_type": [["moe", "linear_attention", "mlp", "full_attention"], ["linear_attention", "full_attention"]],
    "mamba_n_heads": [8], "mamba_n_groups": [2], "mamba_d_state": [12], "mamba_d_head": [8, "auto"], "mamba_d_conv": [3], "mamba_expand": [3], "position_embedding_type": ["rope", "nope"],
    "mamba_num_heads": [2], "mamba_head_dim": [12], "n_groups": [1, 4], "ssm_state_size": [12], "conv_kernel": [3], "moe_latent_size": [12], "expand": [3],
    "mlp_hidden_act": ["gelu", "relu", "silu"], "mamba_hidden_act": ["gelu", "relu"], "moe_shared_expert_intermediate_size": [24], "shared_intermediate_size": [32],
    "mtp_layers_block_type": [["moe"]], "num_nextn_predict_layers": [1], "hidden_dropout": [0.5], "mamba_ssm_cache_dtype": ["bfloat16"],
    "norm_eps": [0.5], "conv_L_cache": [4, 1], "block_multiple_of": [16], "block_ffn_dim_multiplier": [2, 1.6, None], "full_attn_idxs": [[0], [0, 2]], "num_dense_layers": [2, 0],
    "kv_lora_rank": [14], "q_lora_rank": [16, None], "qk_nope_head_dim": [10], "qk_rope_head_dim": [4], "v_head_dim": [7],
    "topk_method": ["group_limited_greedy", "noaux_tc"], "mlp_layer_types": [["dense", "dense", "sparse"], ["sparse"] * 3, ["dense", "no_such", "sparse"], ["sparse"]],
    "moe_k": [1, 3], "moe_num_experts": [6], "moe_num_shared_experts": [1, 0], "moe_layer_start_index": [0, 2], "moe_layer_end_index": [1], "moe_layer_interval": [2],
    "moe_norm_min": [2.0], "moe_topk": [1, [1, 1, 1], [2, 1, 2]],
    "moe_layers": [[0, 3], [], [1, 9]], "interleave_moe_layer_step": [1, 3, 0], "intermediate_size_mlp": [56], "floor_scale": [5], "attn_scale": [0.5], "use_qk_norm": [False, True],
    "linear_num_heads": [2], "linear_head_dim": [4],
    "swiglu_alpha": [0.5, 0.0], "swiglu_limit": [0.125, 0.0],
}
VALUES["hidden_activation"] = VALUES["activation_function"] = VALUES["hidden_act"]
EXTRA = ("per_layer_config", "is_causal", "output_attentions", "attn_implementation", "torch_dtype", "num_labels", "attention_chunk_size",
         "use_bidirectional_attention", "tie_last_hidden_states", "layer_types", "head_dim", "sliding_window", "use_sliding_window", "attention_bias",
         "mlp_bias", "num_key_value_heads", "hidden_activation", "logit_scale", "embedding_multiplier", "residual_multiplier", "logits_scaling",
         "qk_norm", "clip_qkv", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "scale_attn_by_inverse_layer_idx")


def others(key: str, default, later: bool = False) -> list:
    """The values that a key is moved to."""
    if later and key in LATER_VALUES:
        return [v for v in LATER_VALUES[key] if v != default]
    if key in VALUES:
        return [v for v in VALUES[key] if v != default or type(v) is not type(default)]
    if isinstance(default, bool):
        return [not default, None]
    if isinstance(default, int):
        return [default + 1]
    if isinstance(default, float):
        return [default * 2 + 0.25]
    return [True, 2.0]


def class_keys(kind: str) -> dict:
    """The keys of a configuration class with their defaults."""
    cls = CONFIG_MAPPING[kind]
    return {f.name: (None if f.default is dataclasses.MISSING else f.default) for f in dataclasses.fields(cls)}


ROPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "longrope": {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0, 3.0, 4.0, 5.0], "factor": 4.0, "original_max_position_embeddings": 8},
    "llama3": {"factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "proportional": {"partial_rotary_factor": 0.5},
    "su": {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0, 3.0, 4.0, 5.0], "original_max_position_embeddings": 8},
    "mrope": {"mrope_section": [1, 1, 2]},
    "no_such": {},
}
ROPE_VALUES = {
    "rope_theta": [50.0, None], "partial_rotary_factor": [0.5, 0.25, 1.0], "factor": [8.0, 0.5, None], "original_max_position_embeddings": [16],
    "attention_factor": [1.75, 0.0], "beta_fast": [4.0, 0.0], "beta_slow": [0.25], "mscale": [0.5], "mscale_all_dim": [0.25], "truncate": [False],
    "short_factor": [[3.0, 2.0, 1.0, 4.0], [2.0, 1.0]], "long_factor": [[9.0, 3.0, 1.0, 4.0], [9.0, 3.0]], "low_freq_factor": [0.5], "high_freq_factor": [2.0],
    "mrope_section": [[1, 1, 2]], "short_mscale": [1.5], "long_mscale": [1.5], "finetuned": [True], "interleaved": [True],
}


def ropes(kind: str):
    """Sets of changes that describe a rotary embedding, in both styles."""
    for name, needs in ROPES.items():
        if kind == "gpt_neox":
            needs = {k: v[:2] if isinstance(v, list) else v for k, v in needs.items()}  # it rotates 4 of 16 numbers
        more = {"max_position_embeddings": 8} if name == "dynamic" else {}
        variants = [{}] + [{k: v} for k, vs in ROPE_VALUES.items() for v in vs] + [{"mscale": 0.5, "mscale_all_dim": 0.25}]
        for v in variants:
            if name in ("no_such", "mrope", "proportional") and v:
                continue
            if v and not set(v) & {"rope_theta", "partial_rotary_factor"} and not relevant(name, v):
                continue
            modern = {"rope_type": name, "rope_theta": 100.0, **needs, **v}
            legacy = {**needs, **{k: x for k, x in v.items() if k not in ("rope_theta", "partial_rotary_factor")}}
            flat = {"rope_theta": 100.0, **{k: x for k, x in v.items() if k in ("rope_theta", "partial_rotary_factor")}}
            if kind != "gemma3_text" or not v:  # where it is read by type of layer: see nested
                yield {**more, "rope_parameters": modern}
                yield {**more, **flat, "rope_scaling": {"type": name, **legacy}}
            if kind == "gemma3_text" or not v:
                yield {**more, **flat, "rope_scaling": {"rope_type": name, **legacy}}
        for k in needs if kind != "gemma3_text" else ():
            yield {**more, "rope_parameters": {"rope_type": name, **{a: b for a, b in needs.items() if a != k}}}
        yield {**more, "original_max_position_embeddings": 16, "rope_parameters": {"rope_type": name, **needs}}
    yield {"rope_theta": 50.0}
    yield {"rope_theta": None}
    yield {"partial_rotary_factor": 0.5}
    yield {"partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 50.0}}
    yield {"rope_parameters": {"rope_theta": 50.0}, "rope_theta": 70.0}
    yield {"rope_parameters": {"rope_theta": 50.0}, "rope_scaling": {"type": "linear", "factor": 2.0}}
    yield {"rope_parameters": {"rope_theta": 50.0}, "rope_scaling": {}}
    yield {"rope_parameters": {"rope_theta": 50.0}, "rope_scaling": None}
    yield {"rope_parameters": {"full_attention": {"rope_theta": 50.0}, "sliding_attention": {"rope_theta": 70.0}}}
    yield {"rope_scaling": {"rope_theta": 50.0, "rope_type": "default"}}
    yield {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}}
    yield {"rotary_emb_base": 50.0}
    yield {"rotary_emb_base": 50.0, "rope_theta": 70.0}
    yield {"rotary_emb_base": 50.0, "rope_parameters": {"rope_theta": 70.0}}
    yield {"rotary_pct": 0.5, "rope_parameters": {"partial_rotary_factor": 0.25}}
    yield {"rotary_pct": 0.5, "partial_rotary_factor": 0.25}
    yield {"rotary_pct": 0.5, "rope_scaling": {"type": "linear", "factor": 4.0}}
    yield {"rotary_pct": 0.5}
    yield {"rope_local_base_freq": 50.0}


def few_ropes(kind: str):
    """Each kind of scaling in both styles, and the keys that stand beside it."""
    for name, needs in ROPES.items():
        if kind in HYBRIDS:
            needs = {k: v[:1] if isinstance(v, list) else v for k, v in needs.items()}  # they rotate 2 of 8 numbers
        more = {"max_position_embeddings": 8} if name == "dynamic" else {}
        yield {**more, "rope_parameters": {"rope_type": name, "rope_theta": 100.0, **needs}}
        if name not in ("proportional", "mrope", "no_such"):
            yield {**more, "rope_theta": 100.0, "rope_scaling": {"type": name, **needs}}
    for partial in (0.5, 1.0):
        yield {"partial_rotary_factor": partial}
        yield {"rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": partial}}
    yield {"rope_theta": 50.0}
    yield {"rope_parameters": {"rope_theta": 50.0}, "rope_theta": 70.0}
    yield {"rope_parameters": {"full_attention": {"rope_theta": 50.0}, "sliding_attention": {"rope_theta": 70.0}}}


def relevant(name: str, v: dict) -> bool:
    """Keeps the keys that a kind reads, and one foreign key for each."""
    own = {
        "default": {"factor"}, "linear": {"factor", "attention_factor"}, "dynamic": {"factor", "original_max_position_embeddings"},
        "yarn": {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "finetuned"},
        "longrope": {"factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor", "short_mscale"},
        "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}, "su": {"factor"},
    }
    return set(v) <= own.get(name, set())


def nested(kind: str):
    """Gemma 3's rotary embeddings, one for each type of layer."""
    for name, needs in ROPES.items():
        if name in ("no_such", "mrope", "su"):
            continue
        more = {"max_position_embeddings": 8} if name == "dynamic" else {}
        for at in ("full_attention", "sliding_attention"):
            other = {"full_attention": "sliding_attention", "sliding_attention": "full_attention"}[at]
            for v in [{}, {"rope_theta": 50.0}, {"partial_rotary_factor": 0.5}, {"attention_factor": 1.75}, {"truncate": False}, {"beta_fast": 4.0}]:
                if v and name not in ("default", "yarn", "linear"):
                    continue
                yield {**more, "rope_parameters": {at: {"rope_type": name, "rope_theta": 100.0, **needs, **v}, other: {"rope_type": "default", "rope_theta": 70.0}}}
            yield {**more, "rope_parameters": {at: {"rope_type": name, "rope_theta": 100.0, **needs}}}
    yield {"rope_parameters": {"full_attention": None, "sliding_attention": {"rope_theta": 70.0}}}
    yield {"rope_parameters": {"full_attention": {"rope_theta": 70.0}, "sliding_attention": None}}
    yield {"rope_parameters": {"full_attention": {"rope_theta": 70.0}, "sliding_attention": {"rope_theta": 50.0}}, "rope_local_base_freq": 30.0, "rope_theta": 20.0}
    yield {"rope_parameters": {"full_attention": {"rope_theta": 70.0}}, "rope_local_base_freq": 30.0}
    yield {"rope_parameters": {"sliding_attention": {"rope_theta": 70.0}}, "rope_theta": 20.0}
    yield {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    yield {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}, "truncate": False}}
    yield {"rope_theta": 50.0, "rope_local_base_freq": 30.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    for pattern in ({"sliding_window_pattern": 2}, {"_sliding_window_pattern": 2}, {"sliding_window_pattern": 2, "_sliding_window_pattern": 3},
                    {"sliding_window_pattern": 1}, {"sliding_window_pattern": 0}, {"sliding_window_pattern": None}, {"sliding_window_pattern": -2}):
        yield pattern
        yield {**pattern, "rope_theta": 50.0, "rope_local_base_freq": 30.0}


def together(kind: str):
    """Keys that mean something only beside each other."""
    alternating = ["sliding_attention", "full_attention", "sliding_attention"]
    if kind in ("qwen2", "qwen3", "qwen3_moe"):
        for first in (0, 1, 3):
            yield {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": first}
        yield {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}
        yield {"use_sliding_window": True, "max_window_layers": 0}
        yield {"use_sliding_window": True, "sliding_window": 0, "max_window_layers": 0}
        yield {"use_sliding_window": True, "sliding_window": 4, "layer_types": alternating}
        yield {"use_sliding_window": False, "sliding_window": 4, "layer_types": alternating}
        yield {"sliding_window": 4, "layer_types": alternating}
        yield {"use_sliding_window": True, "sliding_window": None, "layer_types": alternating}
    if kind in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        for how in ({}, {"topk_method": "group_limited_greedy"}):
            yield {"n_group": 2, "topk_group": 1, **how}
        for scale in ({"mscale": 0.7, "mscale_all_dim": 0.7}, {"mscale_all_dim": 0.7}, {"mscale": 0.7}, {"mscale": 1.0, "mscale_all_dim": 0.5, "attention_factor": 1.5}):
            yield {"rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8, **scale}}
        yield {"rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 4.0, "mscale_all_dim": 0.7}}
        yield {"rope_theta": 100.0, "rope_scaling": {"type": "default", "factor": 4.0, "mscale_all_dim": 0.7}}
    if kind == "kimi_linear":
        for change in ({"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2, 3], "head_dim": 4, "num_heads": 2, "short_conv_kernel_size": 2}, "layer_types": None},
                       {"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2, 3], "num_heads": 2}}, {"linear_attn_config": None},
                       {"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2]}, "layer_types": None}, {"layer_types": None, "num_hidden_layers": 5},
                       {"first_k_dense_replace": 2}, {"first_k_dense_replace": 2, "mlp_layer_types": ["sparse", "dense", "sparse"]}, {"n_group": 2, "topk_group": 1},
                       {"num_expert_group": 2, "n_group": 1}, {"num_experts": 6, "num_local_experts": 4}, {"num_experts_per_token": 1, "num_experts_per_tok": 2},
                       {"moe_renormalize": False, "norm_topk_prob": True}, {"num_shared_experts": 2, "n_shared_experts": 1}, {"n_shared_experts": 0},
                       {"model_max_length": 8, "max_position_embeddings": 32}, {"rope_theta": 50.0, "rope_scaling": {"type": "linear", "factor": 4.0}}):
            yield change
    if kind == "smollm3":
        for window in (4, None):
            yield {"use_sliding_window": True, "sliding_window": window}
        yield {"use_sliding_window": True, "no_rope_layers": [0, 1, 0, 1]}
        yield {"layer_types": (alternating * 2)[:4], "no_rope_layers": [0, 1, 0, 1]}
        yield {"layer_types": (alternating * 2)[:4], "sliding_window": None}
    if kind == "falcon":
        for change in ({"new_decoder_architecture": True}, {"multi_query": False}, {"parallel_attn": False}, {"multi_query": False, "parallel_attn": False, "bias": True}):
            for more in ({}, {"num_kv_heads": 2}, {"num_ln_in_parallel_attn": 1}, {"num_ln_in_parallel_attn": 2}):
                yield {**change, **more}
        yield {"new_decoder_architecture": True, "parallel_attn": False}
        yield {"n_embed": 48}
    if kind in ("gemma4_text", "gemma4_unified_text"):
        full = ["full_attention", "sliding_attention", "full_attention"]
        for change in ({}, {"num_kv_shared_layers": 1}, {"num_kv_shared_layers": 1, "use_double_wide_mlp": True}, {"attention_k_eq_v": True},
                       {"attention_k_eq_v": True, "num_global_key_value_heads": 1}, {"num_global_key_value_heads": 1}, {"global_head_dim": 16},
                       {"per_layer_config": {"0": {"head_dim": 16}, "2": {"head_dim": 16, "num_key_value_heads": 1}}},
                       {"per_layer_config": {"1": {"head_dim": 16}}}, {"num_kv_shared_layers": 2}, {"sliding_window": None}):
            yield {**change, "layer_types": full}
        for theta in (50.0, None):
            for own in ({"rope_type": "default"}, {"rope_type": "default", "partial_rotary_factor": 0.5}, {"rope_type": "proportional", "partial_rotary_factor": 0.5},
                        {"rope_type": "proportional"}, {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0},
                        {"rope_type": "proportional", "partial_rotary_factor": 0.3}, {"rope_type": "linear", "factor": 2.0}):
                yield {"rope_parameters": {"full_attention": {**own, "rope_theta": theta}, "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}}
                yield {"rope_parameters": {"sliding_attention": {**own, "rope_theta": theta}, "full_attention": {"rope_type": "default", "rope_theta": 70.0}}}
        yield {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50.0}}}
        for how in ("all", "vision"):
            yield {"use_bidirectional_attention": how}
    if kind == "gemma4_text":
        experts = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24}
        for change in ({}, {"top_k_experts": 3}, {"num_experts": 3}, {"moe_intermediate_size": 16}, {"num_experts": None}, {"hidden_size_per_layer_input": 0}):
            yield {**experts, **change}
        for n in (0, None, 8):
            yield {"hidden_size_per_layer_input": n}
    if kind in ("olmo3", "exaone4", "cohere2"):
        yield {"layer_types": (alternating * 2)[: 4 if kind == "olmo3" else 3], "sliding_window": 4}
        yield {"layer_types": (alternating * 2)[: 4 if kind == "olmo3" else 3], "sliding_window": None}
        yield {"layer_types": ["full_attention"] * (4 if kind == "olmo3" else 3), "sliding_window": None}
        for pattern in (1, 3, 0, "LLG"):
            yield {"sliding_window_pattern": pattern}
    if kind == "olmo3":
        yield {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}
        yield {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4.0}}}
        yield {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}, "rope_theta": 100.0}
    if kind == "ministral3":
        yarn = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 4, "llama_4_scaling_beta": 0.3}
        for more in ({"mscale": 1.0, "mscale_all_dim": 1.0}, {"mscale": 0.7, "mscale_all_dim": 1.0}, {"beta_fast": 4.0}, {"llama_4_scaling_beta": 0.8},
                     {"original_max_position_embeddings": 6}, {"rope_type": "default"}, {"llama_4_scaling_beta": None}, {"max_position_embeddings": 8}):
            yield {"rope_parameters": {**yarn, **more}}
        yield {"rope_scaling": yarn, "rope_parameters": None}
        yield {"rope_parameters": None}
    if kind == "hunyuan_v1_dense":
        for alpha in (20.0, 1.0, 0.0, None):
            yield {"rope_parameters": {"rope_type": "dynamic", "factor": 1.0, "rope_theta": 100.0, "alpha": alpha}}
        yield {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 20.0}, "rope_theta": 100.0}
    if kind == "granite":
        yield {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 8.0, "rms_norm_eps": 0.1}
        yield {"residual_multiplier": 0}
    if kind == "glm4_moe":
        yield {"n_group": 2, "topk_group": 2}
        yield {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 1}
        yield {"num_nextn_predict_layers": 2}
        yield {"num_local_experts": 6}
    if kind == "qwen2_moe":
        yield {"use_sliding_window": True, "sliding_window": 4}
        yield {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
        yield {"use_sliding_window": True, "layer_types": alternating}
    if kind in ("mistral", "gemma2", "gemma3_text", "llama", "mixtral", "phi3"):
        for w in (4, 0, None):
            yield {"sliding_window": w, "layer_types": alternating}
        yield {"sliding_window": 4, "layer_types": None}
        yield {"sliding_window": 4, "layer_types": alternating[:2]}
        yield {"sliding_window": 4, "layer_types": alternating + alternating}
        yield {"sliding_window": 4, "layer_types": ["attention"] * 3}
        yield {"layer_types": alternating}
    if kind == "mistral":
        yield {"sliding_window": 4, "layer_types": ["full_attention"] * 3, "num_key_value_heads": None}
    if kind in ("gpt2", "gptj"):
        for alias, value in (("hidden_size", 48), ("num_hidden_layers", 2), ("num_attention_heads", 2), ("max_position_embeddings", 16)):
            yield {alias: value}
        yield {"hidden_size": 32, "num_hidden_layers": 3}
    if kind in ("mixtral", "qwen3_moe", "qwen2_moe"):
        yield {"num_local_experts": 3, "num_experts": 4}
        yield {"num_local_experts": 4, "num_experts": 3}
        yield {"num_experts_per_tok": 3, "norm_topk_prob": True}
        yield {"norm_topk_prob": False}
        yield {"decoder_sparse_step": 2, "mlp_only_layers": [1]}
    yield {"tie_word_embeddings": True}
    yield {"tie_word_embeddings": False}


def heads(kind: str):
    for how in ("stored", "copied"):
        yield how


def build(kind: str, change: dict, drop=()) -> dict:
    config = {"model_type": kind, **copy.deepcopy(BASES[kind]), **copy.deepcopy(change)}
    for key in drop:
        config.pop(key, None)
    return config


def cases_of(kind: str):
    """All changes of a model type: (change, drop, head)."""
    base = BASES[kind]
    later = kind in LATER
    for key, default in class_keys(kind).items():
        for value in others(key, base.get(key, default), later):
            yield {key: value}, (), None
        if key in base and (not isinstance(default, int) or default <= 1024):
            yield {}, (key,), None
    for key in EXTRA:
        if key not in class_keys(kind) and (not later or key in ("is_causal", "per_layer_config", "head_dim", "layer_types", "sliding_window", "attention_bias")):
            for value in others(key, None):
                yield {key: value}, (), None
    for key in GenerationConfig._get_default_generation_params():
        if key in ("temperature", "top_k", "num_beams"):
            yield {key: 3}, (), None
    for change in together(kind):
        yield change, (), None
    if later:
        for change in few_ropes(kind):
            yield change, (), None
    elif kind == "gptj":  # whose class describes no rotary embedding: one of each kind
        for name, needs in ROPES.items():
            yield {"rope_parameters": {"rope_type": name, "rope_theta": 100.0, **needs}}, (), None
            yield {"rope_scaling": {"type": name, **needs}, "rope_theta": 100.0}, (), None
    elif kind != "gpt2":
        for change in ropes(kind):
            yield change, (), None
    if kind == "gemma3_text":
        for change in nested(kind):
            yield change, (), None
    for how in heads(kind):
        yield {"tie_word_embeddings": True}, (), how


# ---------------------------------------------------------------- answers

def head_name(shapes: dict) -> tuple[str, str]:
    embed = next(n for n in shapes if n.endswith(("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", ".embeddings.weight")))
    return ("embed_out.weight" if "embed_in" in embed else "lm_head.weight"), embed


def answer(config: dict, head: str | None, work: Path):
    """(shapes, logits) of a configuration, or (shapes or None, name of the exception)."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "config.json").write_text(json.dumps(config))
    shapes = None
    try:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(work), dtype=torch.float32, attn_implementation="eager")
        model.save_pretrained(work / "names")
        with safe_open(work / "names" / "model.safetensors", "np") as f:
            shapes = {n: list(f.get_slice(n).get_shape()) for n in sorted(f.keys())}
        gemma = config["model_type"] in ("gemma2", "gemma3_text")
        w = {n: weight(n, s, gemma) for n, s in shapes.items()}
        if head:
            name, embed = head_name(shapes)
            shapes[name] = shapes[embed]
            w[name] = weight(name, shapes[name], gemma) if head == "stored" else w[embed].copy()
        save_file(w, work / "model.safetensors", metadata={"format": "pt"})
        model, info = AutoModelForCausalLM.from_pretrained(work, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if info["missing_keys"] or info["unexpected_keys"]:
            raise SystemExit(f"error: {config}: {info}")
        with torch.no_grad():
            out = model.eval()(torch.tensor([IDS]), use_cache=False)
        logits = (out[0] if isinstance(out, tuple) else out.logits)[0, -ROWS:].numpy().astype(np.float32)
    except Exception as e:
        return shapes, type(e).__name__
    return (shapes, logits) if np.isfinite(logits).all() else (shapes, "not finite")


def unique(found):
    seen = set()
    for kind, change, drop, head in found:
        key = json.dumps([kind, change, drop, head], sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield kind, change, drop, head


def record(found, out: Path) -> None:
    all_shapes, rows, entries = [], [], []
    index = {}
    with tempfile.TemporaryDirectory() as tmp:
        for kind, change, drop, head in unique(found):
            shapes, result = answer(build(kind, change, drop), head, Path(tmp) / "m")
            entry = {"type": kind}
            if change:
                entry["set"] = change
            if drop:
                entry["drop"] = list(drop)
            if head:
                entry["head"] = head
            shapes = shapes or first_shapes(entries, all_shapes, kind)
            if shapes not in all_shapes:
                all_shapes.append(shapes)
            entry["shapes"] = all_shapes.index(shapes)
            if isinstance(result, str):
                entry["error"] = result
            else:
                data = result.tobytes()
                if data not in index:
                    index[data] = len(rows)
                    rows.append(result.ravel())
                entry["logits"] = index[data]
            entries.append(entry)
            if len(entries) % 100 == 0:
                print(f"{len(entries)} cases, {len(rows)} different answers", flush=True)
    width = max(len(r) for r in rows)
    table = np.zeros((len(rows), width), np.float32)
    for i, r in enumerate(rows):
        table[i, :len(r)] = r
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "logits.npy", table)
    head = {"versions": {"transformers": transformers.__version__, "torch": torch.__version__}, "ids": IDS, "rows": ROWS,
            "bases": {k: {"model_type": k, **v} for k, v in BASES.items()},
            "keys": {k: sorted(class_keys(k)) for k in BASES}}
    line = lambda v: json.dumps(v, separators=(",", ":"))
    if out != HERE:
        all_shapes = [collapsed(dict(s)) for s in all_shapes]
    text = line(head)[:-1] + ',\n"shapes":[\n' + ",\n".join(map(line, all_shapes)) + '],\n"cases":[\n' + ",\n".join(map(line, entries)) + "]}\n"
    (out / "cases.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    errors = sum("error" in e for e in entries)
    print(f"{len(entries)} cases: {len(entries) - errors} with logits ({len(rows)} different), {errors} that transformers refuses")


def collapsed(shapes: dict) -> dict:
    """Tensors that differ by a number alone, from 0 to n-1, under one name with #n in the number's place: layers and experts."""
    for back in (1, 2):  # the last number of a name, then the one before
        groups = {}
        for name, shape in shapes.items():
            places = [m for m in re.finditer(r"(?<=\.)[0-9]+(?=\.)", name)]
            if len(places) >= back:
                m = places[-back]
                groups.setdefault((name[: m.start()], name[m.end() :], tuple(shape)), set()).add(int(m[0]))
        for (head, tail, shape), numbers in groups.items():
            if numbers == set(range(len(numbers))):
                for n in numbers:
                    del shapes[f"{head}{n}{tail}"]
                shapes[f"{head}#{len(numbers)}{tail}"] = list(shape)
    return dict(sorted(shapes.items()))


def first_shapes(entries: list, all_shapes: list, kind: str) -> dict:
    """A case that transformers cannot even build is held to the shapes of its type's first."""
    return next(all_shapes[e["shapes"]] for e in entries if e["type"] == kind)


def every():
    for kind in BASES:
        yield kind, {}, (), None
        for change, drop, head in cases_of(kind):
            yield kind, change, drop, head


def merged(a: dict, b: dict) -> dict:
    """b over a, one level into the descriptions of rotary embeddings."""
    out = {**a, **b}
    for key in ("rope_parameters", "rope_scaling"):
        if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
            out[key] = {**a[key], **b[key]}
    return out


def wide(n: int, seed: int):
    rng = random.Random(seed)
    pools = {k: [c for c in cases_of(k) if c[0]] for k in BASES}
    for kind in BASES:
        yield kind, {}, (), None
    for _ in range(n):
        kind = rng.choice(list(BASES))
        change, drop, head = {}, (), None
        for _ in range(rng.choice([1, 2, 2, 3])):
            c, d, h = rng.choice(pools[kind])
            change, drop, head = merged(change, jitter(c, rng)), drop or d, head or h
        yield kind, change, drop, head


def jitter(change, rng):
    """Other numbers of the same kind, half of the time."""
    if isinstance(change, dict):
        return {k: (v if k.endswith(("_size", "_layers", "_heads", "head_dim", "n_head", "n_layer", "n_embd", "n_positions", "_embeddings")) else jitter(v, rng)) for k, v in change.items()}
    if isinstance(change, float) and rng.random() < 0.5:
        return round(change * rng.uniform(0.6, 1.7), 3)
    if isinstance(change, list):
        return [jitter(v, rng) if isinstance(v, float) else v for v in change]
    return change


def main() -> None:
    parser = argparse.ArgumentParser(description="records what transformers computes for changed configurations; see the head of this file")
    parser.add_argument("--wide", nargs=3, metavar=("N", "SEED", "DIR"))
    parser.add_argument("--type", nargs="+", metavar="NAME", help="later types, to folders of their names beside this script")
    parser.add_argument("--base", nargs=2, metavar=("JSON", "DIR"))
    args = parser.parse_args()
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if args.wide:
        if args.type:
            BASES.clear()
            BASES.update({kind: LATER[kind] for kind in args.type})
        record(wide(int(args.wide[0]), int(args.wide[1])), Path(args.wide[2]))
    elif args.type:
        BASES.clear()
        for kind in args.type:
            BASES.clear()
            BASES[kind] = LATER[kind]
            record(every(), HERE / kind)
    elif args.base:
        over = json.loads(args.base[0])
        for kind in over:
            BASES[kind] = {**BASES[kind], **over[kind]}
        record((c for c in every() if c[0] in over), Path(args.base[1]))
    else:
        record(every(), HERE)


if __name__ == "__main__":
    main()
