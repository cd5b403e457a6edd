#!/usr/bin/env python3
"""Makes the micro checkpoints that are already quantized (quant-*) and what they decode to.

    python make_quant.py                    every directory
    python make_quant.py quant-awq-int4     the named ones
    python make_quant.py --list             the names, one line each
    python make_quant.py --peers DIR        also compares with AutoGPTQ and AutoAWQ, whose unpacked
                                            packages (auto_gptq 0.7.1, autoawq 0.2.9) lie under DIR

Needs what make.py needs, and compressed-tensors, bitsandbytes, accelerate.
Made with: transformers 5.17.0, torch 2.15.0, compressed-tensors 0.20.0, bitsandbytes 0.50.2.

A directory holds the checkpoint as the named tool lays it out, and
    expected.npz     for each quantized tensor, under the name of the plain weight that it stands
                     for, the float32 matrix [N][K] (experts [E][N][K]) that it decodes to, to the bit
    reference.json, logits.npy     as make.py's, of the model with those float32 weights

Everything decodes in float32: codes, zero points and scales are widened first (exactly), then
multiplied, one rounding to nearest per product. Where the product always fits 24 bits no rounding
happens at all. Who computed it: `decode` below states each formula in numpy from the stored bytes,
and is held bit-equal to the library's own function wherever that runs on a CPU (the column "checked
against" of README.md). Libraries usually decode to the model's dtype: that last rounding is left out.
"""

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True
import make  # noqa: E402

HERE = Path(__file__).resolve().parent
PEERS: Path | None = None
Tensors = dict[str, torch.Tensor]

BASE = dict(vocab_size=264, hidden_size=32, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1,
            eos_token_id=2, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


# ---------------------------------------------------------------- GPTQ

def pack_words(codes: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """Unsigned codes into int32 words along axis, the first code in the lowest bits."""
    per = 32 // bits
    codes = np.moveaxis(codes.astype(np.uint64), axis, -1)
    words = codes.reshape(*codes.shape[:-1], -1, per) << (np.arange(per, dtype=np.uint64) * np.uint64(bits))
    words = words.sum(-1).astype(np.uint32).view(np.int32)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


def unpack_words(words: np.ndarray, bits: int, axis: int) -> np.ndarray:
    per = 32 // bits
    words = np.moveaxis(words.view(np.uint32), axis, -1)[..., None] >> (np.arange(per, dtype=np.uint32) * np.uint32(bits))
    codes = (words & np.uint32(2**bits - 1)).reshape(*words.shape[:-2], -1)
    return np.moveaxis(codes, -1, axis).astype(np.int64)


def affine(w: np.ndarray, bits: int, g_idx: np.ndarray, sym: bool):
    """Round to nearest: codes [K][N], zeros [K/G][N], scales float16 [K/G][N] for W [N][K]."""
    top, groups = 2**bits - 1, g_idx.max() + 1
    scales = np.empty((groups, len(w)), np.float16)
    zeros = np.empty((groups, len(w)), np.int64)
    codes = np.empty(w.T.shape, np.int64)
    for g in range(groups):
        part = w[:, g_idx == g]
        hi, lo = np.maximum(part.max(1), 0), np.minimum(part.min(1), 0)
        if sym:
            hi = np.maximum(hi, -lo)
            lo = -hi
        scales[g] = (hi - lo) / top
        zeros[g] = (top + 1) // 2 if sym else np.clip(np.round(-lo / scales[g]), 1, top)
        codes[g_idx == g] = np.clip(np.round(part.T / scales[g].astype(np.float32)) + zeros[g], 0, top)
    return codes, zeros, scales


def gptq_pack(bits=4, group=32, sym=True, act_order=False, minus_one=True) -> Callable:
    def pack(name: str, w: torch.Tensor) -> Tensors:
        n, k = w.shape
        size = k if group == -1 else group
        order = np.arange(k)
        if act_order:  # columns are quantized in the order of their activations: a group is not a run of columns
            order = np.random.default_rng(len(name) * n + k).permutation(k)
        g_idx = np.empty(k, np.int64)
        g_idx[order] = np.arange(k) // size
        codes, zeros, scales = affine(w.float().numpy(), bits, g_idx, sym)
        return {"qweight": torch.from_numpy(pack_words(codes, bits, 0)),
                "qzeros": torch.from_numpy(pack_words(zeros - 1 if minus_one else zeros, bits, 1)),
                "scales": torch.from_numpy(scales), "g_idx": torch.from_numpy(g_idx.astype(np.int32))}
    return pack


def gptq_decode(bits=4, minus_one=True, **_) -> Callable:
    def decode(t: dict[str, np.ndarray]) -> np.ndarray:
        codes = unpack_words(t["qweight"], bits, 0)                       # [K][N]
        zeros = unpack_words(t["qzeros"], bits, 1) + (1 if minus_one else 0)  # [K/G][N]
        scales = t["scales"].astype(np.float32)
        g = t["g_idx"]
        return (scales[g] * (codes - zeros[g]).astype(np.float32)).T      # exact: 11 bits by at most 9
    return decode


def gptq_peer(bits=4, group=32, minus_one=True, **_) -> Callable:
    """AutoGPTQ: packs the decoded matrix again and multiplies an identity by the result."""
    def check(t: Tensors, want: np.ndarray) -> str:
        if PEERS is None:
            return ""
        zeros = unpack_words(t["qzeros"].numpy(), bits, 1) + (1 if minus_one else 0)
        ours = {**t, "qzeros": torch.from_numpy(pack_words(zeros - 1, bits, 1))}  # AutoGPTQ only knows v1
        path = next(PEERS.rglob("auto_gptq/nn_modules/qlinear/qlinear_cuda.py"))
        module_spec = importlib.util.spec_from_file_location("qlinear_cuda", path)
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
        n, k = want.shape
        layer = module.QuantLinear(bits, group, k, n, False, weight_dtype=torch.float32)
        layer.autogptq_cuda_available = False
        linear = torch.nn.Linear(k, n, bias=False)
        linear.weight.data = torch.from_numpy(want.copy())
        layer.pack(linear, t["scales"].float().T.contiguous(), torch.from_numpy(zeros).float().T.contiguous(), t["g_idx"])
        for key in ("qweight", "qzeros", "g_idx"):
            assert torch.equal(getattr(layer, key), ours[key]), f"AutoGPTQ packs {key} differently"
        got = layer(torch.eye(k)).detach().numpy().T
        assert np.array_equal(got, want), "AutoGPTQ decodes differently"
        return "AutoGPTQ"
    return check


def gptq_config(bits=4, group=32, sym=True, act_order=False, minus_one=True) -> dict:
    return {"bits": bits, "group_size": group, "damp_percent": 0.01, "desc_act": act_order, "static_groups": False,
            "sym": sym, "true_sequential": True, "model_name_or_path": None, "model_file_base_name": "model",
            "quant_method": "gptq", "checkpoint_format": "gptq" if minus_one else "gptq_v2"}


# ---------------------------------------------------------------- AWQ

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble i of a word holds the column AWQ_ORDER[i] of its eight


def awq_shuffle(codes: np.ndarray) -> np.ndarray:
    return codes.reshape(len(codes), -1, 8)[:, :, AWQ_ORDER].reshape(codes.shape)


def awq_pack(name: str, w: torch.Tensor) -> Tensors:
    codes, zeros, scales = affine(w.float().numpy(), 4, np.arange(w.shape[1]) // 32, sym=False)
    return {"qweight": torch.from_numpy(pack_words(awq_shuffle(codes), 4, 1)),   # [K][N/8]
            "qzeros": torch.from_numpy(pack_words(awq_shuffle(zeros), 4, 1)),    # [K/G][N/8]
            "scales": torch.from_numpy(scales)}                                  # [K/G][N]


def awq_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    inverse = np.argsort(AWQ_ORDER)

    def unpack(words):
        codes = unpack_words(words, 4, 1)
        return codes.reshape(len(codes), -1, 8)[:, :, inverse].reshape(codes.shape)

    codes, zeros = unpack(t["qweight"]), unpack(t["qzeros"])
    group = len(codes) // len(zeros)
    scales = t["scales"].astype(np.float32).repeat(group, 0)
    return ((codes - zeros.repeat(group, 0)).astype(np.float32) * scales).T      # exact: 11 bits by 5


def awq_peer(t: Tensors, want: np.ndarray) -> str:
    if PEERS is None:
        return ""
    path = next(PEERS.rglob("awq/utils/packing_utils.py"))
    module_spec = importlib.util.spec_from_file_location("packing_utils", path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    got = module.dequantize_gemm(t["qweight"], t["qzeros"], t["scales"].float(), 4, 32)
    assert np.array_equal(got.numpy().T, want), "AutoAWQ decodes differently"
    return "AutoAWQ"


AWQ_CONFIG = {"bits": 4, "group_size": 32, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm",
              "zero_point": True}


# ---------------------------------------------------------------- FP8

FP8_MAX = 448.0


def fp8(w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (w.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def fp8_tensor_pack(scale_name: str, activation_name: str, dtype: torch.dtype) -> Callable:
    def pack(name: str, w: torch.Tensor) -> Tensors:
        scale = (w.float().abs().max() / FP8_MAX).to(dtype)
        return {"weight": fp8(w, scale.float()), scale_name: scale, activation_name: torch.tensor(0.0125, dtype=dtype)}
    return pack


def fp8_tensor_decode(scale_name: str) -> Callable:
    def decode(t: dict[str, np.ndarray]) -> np.ndarray:
        return t["weight"] * t[scale_name]        # 4 bits by 24: one rounding; by 8 (bfloat16): exact
    return decode


def fp8_block_pack(name: str, w: torch.Tensor) -> Tensors:
    n, k = w.shape
    scale = torch.empty(-(-n // 128), -(-k // 128))
    code = torch.empty(n, k, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            block = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            scale[i, j] = w[block].float().abs().max() / FP8_MAX
            code[block] = fp8(w[block], scale[i, j])
    return {"weight": code, "weight_scale_inv": scale}


def fp8_block_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    """weight_scale_inv [ceil(N/128)][ceil(K/128)] multiplies, for all its name; the last blocks are cut."""
    w = t["weight"]
    return w * t["weight_scale_inv"].repeat(128, 0)[: w.shape[0]].repeat(128, 1)[:, : w.shape[1]]


def fp8_peer(t: Tensors, want: np.ndarray) -> str:
    """transformers' decoder derives the block from the grid and wants whole blocks: pads to them, and cuts again."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    weight = t["weight"].view(torch.uint8)
    scale = t["weight_scale_inv"] if "weight_scale_inv" in t else t["weight_scale"]
    if scale.ndim == 2:
        weight = torch.nn.functional.pad(weight, (0, -weight.shape[1] % 128, 0, -weight.shape[0] % 128))
    got = Fp8Dequantize(None)._dequantize_one(weight.view(torch.float8_e4m3fn), scale, torch.float32).numpy()
    got = got[: want.shape[0], : want.shape[1]]
    assert np.array_equal(got, want), "transformers decodes differently"
    return "transformers"


# ---------------------------------------------------------------- compressed-tensors

def ct_scheme(**kw):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    return QuantizationScheme(targets=["Linear"], **{k: QuantizationArgs(**v) for k, v in kw.items()})


def ct_compressor(fmt: str):
    from compressed_tensors.compressors import BaseCompressor
    return BaseCompressor.get_value_from_registry(fmt)


def ct_pack(fmt: str, scheme_args: dict) -> Callable:
    def pack(name: str, w: torch.Tensor) -> Tensors:
        from compressed_tensors.quantization.utils import calculate_qparams
        scheme = ct_scheme(**scheme_args)
        args = scheme.weights
        rows = w.reshape(len(w), -1, args.group_size) if args.group_size else w[:, None, :]
        scale, zero = calculate_qparams(rows.amin(-1), rows.amax(-1), args)
        if fmt.startswith("mxfp4"):  # the largest weight of a block lies between 4 and 8 units
            scale = torch.exp2(torch.floor(torch.log2(rows.float().abs().amax(-1))) - 2)
        state = {"weight": w, "weight_scale": scale.to(w.dtype), "weight_zero_point": zero}
        return ct_compressor(fmt).compress(state, scheme)
    return pack


def ct_peer(fmt: str, scheme_args: dict) -> Callable:
    def check(t: Tensors, want: np.ndarray) -> str:
        state = dict(t)
        if state["weight_scale"].is_floating_point():
            state["weight_scale"] = state["weight_scale"].float()
        got = ct_compressor(fmt).decompress(state, ct_scheme(**scheme_args))["weight"].float().numpy()
        assert np.array_equal(got, want), "compressed-tensors decodes differently"
        return "compressed-tensors"
    return check


def ct_int4_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    """Words along K hold code+8; zero points (where there are any) lie in words along N, also plus 8."""
    n, k = t["weight_shape"]
    codes = unpack_words(t["weight_packed"], 4, 1)[:, :k] - 8
    group = k // t["weight_scale"].shape[1]
    scale = t["weight_scale"].repeat(group, 1)
    if "weight_zero_point" in t:
        codes = codes - (unpack_words(t["weight_zero_point"], 4, 0)[:n] - 8).repeat(group, 1)
    return codes.astype(np.float32) * scale       # exact: 5 bits by 8 (scales are bfloat16)


def ct_channel_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    """int8 or float8 codes [N][K] and a bfloat16 scale per row [N][1]."""
    return t["weight"].astype(np.float32) * t["weight_scale"]


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def e2m1(packed: np.ndarray) -> np.ndarray:
    """Bytes of two codes, the even weight in the low nibble, along the last axis."""
    return E2M1[np.stack([packed & 15, packed >> 4], -1)].reshape(*packed.shape[:-1], -1)


def ct_mxfp4_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    scale = np.exp2(t["weight_scale"].astype(np.float32) - 127)
    return e2m1(t["weight_packed"]) * scale.repeat(32, 1)


def ct_config(fmt: str, scheme_args: dict) -> dict:
    from compressed_tensors.quantization import QuantizationConfig, QuantizationStatus
    config = QuantizationConfig(config_groups={"group_0": ct_scheme(**scheme_args)}, ignore=["lm_head"], format=fmt,
                                quantization_status=QuantizationStatus.COMPRESSED).to_dict()
    return json.loads(json.dumps(config, default=str))


W4 = dict(weights=dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32))
W4_ASYM = dict(weights=dict(num_bits=4, type="int", symmetric=False, strategy="group", group_size=32))
W8A8 = dict(weights=dict(num_bits=8, type="int", symmetric=True, strategy="channel"),
            input_activations=dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True))
F8A8 = dict(weights=dict(num_bits=8, type="float", symmetric=True, strategy="channel"),
            input_activations=dict(num_bits=8, type="float", symmetric=True, strategy="token", dynamic=True))
MX4 = dict(weights=dict(num_bits=4, type="float", symmetric=True, strategy="group", group_size=32,
                        scale_dtype="torch.uint8", zp_dtype="torch.uint8"))


# ---------------------------------------------------------------- MXFP4 as gpt-oss has it

def mxfp4_pack(name: str, w: torch.Tensor) -> Tensors:
    """Experts [E][N][K] into NAME_blocks uint8 [E][N][K/32][16] and NAME_scales uint8 [E][N][K/32]."""
    blocks = w.float().numpy().reshape(*w.shape[:-1], -1, 32)
    exponent = np.floor(np.log2(np.abs(blocks).max(-1))) - 2
    unit = np.exp2(exponent)[..., None]
    codes = np.abs(blocks[..., None] / unit[..., None] - E2M1).argmin(-1).astype(np.uint8)
    return {"blocks": torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4),
            "scales": torch.from_numpy((exponent + 127).astype(np.uint8))}


def mxfp4_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    values = np.ldexp(e2m1(t["blocks"]), t["scales"].astype(np.int32)[..., None] - 127)
    return values.reshape(*values.shape[:-2], -1)


def mxfp4_peer(t: Tensors, want: np.ndarray) -> str:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    got = convert_moe_packed_tensors(t["blocks"], t["scales"], dtype=torch.float32).transpose(1, 2).numpy()
    assert np.array_equal(got, want), "transformers decodes differently"
    return "transformers"


# ---------------------------------------------------------------- bitsandbytes

def bnb_config(double: bool) -> dict:
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double,
                                           bnb_4bit_compute_dtype="bfloat16").to_dict()


def bnb_pack(double: bool) -> Callable:
    def pack(name: str, w: torch.Tensor) -> Tensors:
        from bitsandbytes.functional import quantize_4bit
        codes, state = quantize_4bit(w, blocksize=64, compress_statistics=double, quant_type="nf4")
        return {"weight": codes, **{f"weight.{k}": v for k, v in state.as_dict(packed=True).items()}}
    return pack


def bnb_decode(t: dict[str, np.ndarray]) -> np.ndarray:
    """Blocks run over the flattened matrix, the first weight in the high nibble. With double
    quantization absmax = table[byte] * nested_absmax, rounded, + nested_offset, rounded."""
    state = json.loads(t["weight.quant_state.bitsandbytes__nf4"].tobytes())
    absmax = t["weight.absmax"]
    if "nested_blocksize" in state:
        nested = t["weight.nested_absmax"].repeat(state["nested_blocksize"])[: len(absmax)]
        absmax = t["weight.nested_quant_map"][absmax] * nested + np.float32(state["nested_offset"])
    packed = t["weight"].ravel()
    codes = np.stack([packed >> 4, packed & 15], -1).ravel()
    values = t["weight.quant_map"][codes] * absmax.repeat(state["blocksize"])[: codes.size]
    assert values.dtype == np.float32
    return values.reshape(state["shape"])


def bnb_peer(t: Tensors, want: np.ndarray) -> str:
    """bitsandbytes twice: its portable code, and, where the block divides a row, its CPU kernel (0.50.2's
    starts the blocks afresh with each row, unlike the portable code, the packer and the GPU kernels)."""
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
    from bitsandbytes.functional import QuantState, dequantize_4bit, dequantize_blockwise
    state = QuantState.from_dict({k: v for k, v in t.items() if k != "weight"}, torch.device("cpu"))
    state.dtype = torch.float32
    absmax = state.absmax
    if state.nested:
        absmax = dequantize_blockwise(absmax, state.state2) + state.offset
    got = _dequantize_4bit_compute(t["weight"].reshape(-1), absmax, state.code, state.blocksize, state.shape, torch.float32)
    assert np.array_equal(got.numpy(), want), "bitsandbytes decodes differently"
    if want.shape[1] % state.blocksize:
        return "bitsandbytes (portable)"
    assert np.array_equal(dequantize_4bit(t["weight"], state).numpy(), want), "bitsandbytes' kernel decodes differently"
    return "bitsandbytes"


# ---------------------------------------------------------------- the directories

@dataclass
class Quant:
    """pack: a plain weight to its stored parts; decode: those parts (as numpy, floats widened to
    float32) back to float32; peer: asserts that a library agrees and returns its name."""
    about: str
    pack: Callable
    decode: Callable
    peer: Callable
    config: Callable[[], dict]
    dtype: torch.dtype = torch.bfloat16
    model: dict = field(default_factory=lambda: BASE)
    cls: str = "LlamaForCausalLM"
    seed: int = 101
    loads: bool = False             # transformers itself can load the directory on a CPU
    keep: tuple = ()                # the tensors that expected.npz holds; all where empty


def gptq(about: str, seed: int, **kw) -> Quant:
    return Quant(about, gptq_pack(**kw), gptq_decode(**kw), gptq_peer(**kw), lambda: gptq_config(**kw),
                 dtype=torch.float16, seed=seed)


def ct(about: str, fmt: str, scheme: dict, decode: Callable, seed: int) -> Quant:
    return Quant(about, ct_pack(fmt, scheme), decode, ct_peer(fmt, scheme), lambda: ct_config(fmt, scheme), seed=seed, loads=True)


QUANTS = {
    "quant-gptq-int4": gptq("GPTQ v1, int4, groups of 32, symmetric: stored zero points are one too small", 301),
    "quant-gptq-int4-actorder": gptq("the same with desc_act: g_idx is not k/32", 102, act_order=True),
    "quant-gptq-int4-v2": gptq("checkpoint_format gptq_v2, asymmetric: zero points as they are", 203, sym=False, minus_one=False),
    "quant-gptq-int8": gptq("GPTQ v1, int8, group_size -1: one scale per row", 204, bits=8, group=-1),
    "quant-awq-int4": Quant("AWQ (gemm), int4, groups of 32, zero points, nibbles in AWQ's order", awq_pack, awq_decode,
                            awq_peer, lambda: AWQ_CONFIG, dtype=torch.float16, seed=405),
    "quant-fp8-tensor": Quant(
        "quant_method fp8 as vLLM's AutoFP8 writes it: weight_scale and input_scale, float32 scalars",
        fp8_tensor_pack("weight_scale", "input_scale", torch.float32), fp8_tensor_decode("weight_scale"),
        fp8_peer, lambda: {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}, seed=206),
    "quant-fp8-tensor-inv": Quant(
        "quant_method fp8 as transformers and Mistral write it: weight_scale_inv and activation_scale, bfloat16 scalars",
        fp8_tensor_pack("weight_scale_inv", "activation_scale", torch.bfloat16), fp8_tensor_decode("weight_scale_inv"),
        fp8_peer, lambda: {"quant_method": "fp8", "activation_scheme": "static", "modules_to_not_convert": ["lm_head"],
                           "weight_block_size": None, "dequantize": False}, seed=307, loads=True),
    "quant-fp8-block": Quant(
        "quant_method fp8 as DeepSeek writes it: weight_scale_inv float32 per 128x128 block; sizes that 128 does not divide",
        fp8_block_pack, fp8_block_decode, fp8_peer,
        lambda: {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
        model={**BASE, "hidden_size": 136, "intermediate_size": 144}, seed=108,
        keep=("model.layers.0.mlp.gate_proj.weight", "model.layers.0.self_attn.k_proj.weight")),
    "quant-ct-int4": ct("compressed-tensors pack-quantized, int4, groups of 32, symmetric", "pack-quantized", W4, ct_int4_decode, 109),
    "quant-ct-int4-asym": ct("the same, asymmetric: packed zero points", "pack-quantized", W4_ASYM, ct_int4_decode, 110),
    "quant-ct-int8": ct("compressed-tensors int-quantized, int8, a scale per row", "int-quantized", W8A8, ct_channel_decode, 111),
    "quant-ct-fp8": ct("compressed-tensors float-quantized, float8_e4m3fn, a scale per row", "float-quantized", F8A8, ct_channel_decode, 112),
    "quant-ct-mxfp4": ct("compressed-tensors mxfp4-pack-quantized", "mxfp4-pack-quantized", MX4, ct_mxfp4_decode, 113),
    "quant-mxfp4": Quant(
        "quant_method mxfp4 in gpt-oss's storage (*_blocks, *_scales), here on Mixtral's stacked experts (gate rows, then up rows)",
        mxfp4_pack, mxfp4_decode, mxfp4_peer,
        lambda: {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.gate",
                                                                     "model.embed_tokens", "lm_head"]},
        cls="MixtralForCausalLM", seed=1014,
        model={**BASE, "intermediate_size": 64, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": None}),
    "quant-bnb-nf4": Quant("bitsandbytes NF4, blocks of 64 over the flattened matrix: with K = 32 a block spans rows",
                           bnb_pack(False), bnb_decode, bnb_peer, lambda: bnb_config(False), seed=715),
    "quant-bnb-nf4-double": Quant("the same with double quantization of absmax; K is a multiple of 64", bnb_pack(True), bnb_decode,
                                  bnb_peer, lambda: bnb_config(True), seed=216, loads=True,
                                  model={**BASE, "hidden_size": 64, "intermediate_size": 64}),
}


# ---------------------------------------------------------------- making

def is_quantized(name: str, q: Quant) -> bool:
    return ".experts." in name if q.cls.startswith("Mixtral") else "_proj" in name


def stored_name(name: str, part: str) -> str:
    """The name of a part: beside `weight`, or for stacked experts with a suffix."""
    return f"{name.removesuffix('.weight')}.{part}" if name.endswith(".weight") else f"{name}_{part}"


def to_numpy(t: torch.Tensor) -> np.ndarray:
    return (t.float() if t.is_floating_point() else t).numpy()


def make_quant(name: str) -> None:
    q = QUANTS[name]
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    with tempfile.TemporaryDirectory() as tmp:
        plain = Path(tmp) / name
        spec = make.Spec(cls=q.cls, config=q.model, dtype=q.dtype, seed=q.seed, prompts=(5, 12), stacked=True)
        make.save(plain, spec)
        config = {**json.loads((plain / "config.json").read_text()), "quantization_config": q.config()}
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        weights = load_file(plain / "model.safetensors")
        stored, decoded, checked = quantized(weights, q)
        save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
        np.savez_compressed(path / "expected.npz", **{k: v for k, v in decoded.items() if not q.keep or k in q.keep})

        plain_weights = {k: torch.from_numpy(decoded[k]) if k in decoded else w.float() for k, w in weights.items()}
        save_file(plain_weights, plain / "model.safetensors", metadata={"format": "pt"})
        make.write_reference(plain, spec)
        for f in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "reference.json", "logits.npy"):
            shutil.copy(plain / f, path)
    print(f"{'':4}quantized {sum(f.stat().st_size for f in path.iterdir()) / 1024:.0f} KiB, decoding checked against "
          f"{', '.join(sorted(checked - {''})) or 'no library'}{loaded(path) if q.loads else ''}")


def quantized(weights: Tensors, q: Quant) -> tuple[Tensors, dict[str, np.ndarray], set[str]]:
    """The tensors to store, what they decode to, and who agrees."""
    stored, decoded, checked = {}, {}, set()
    for key, w in weights.items():
        if not is_quantized(key, q):
            stored[key] = w
            continue
        parts = {p: t.contiguous() for p, t in q.pack(key, w).items()}
        stored.update({stored_name(key, p): t for p, t in parts.items()})
        decoded[key] = np.ascontiguousarray(q.decode({p: to_numpy(t) for p, t in parts.items()}))
        assert decoded[key].dtype == np.float32 and decoded[key].shape == tuple(w.shape), key
        error = np.linalg.norm(decoded[key] - to_numpy(w)) / np.linalg.norm(to_numpy(w))
        assert error < 0.25, f"{key} decodes {error:.2f} away from its source"
        checked.add(q.peer(parts, decoded[key]))
    return stored, decoded, checked


def loaded(path: Path) -> str:
    """Lets transformers load the directory: its arithmetic is coarser (bfloat16, quantized
    activations), so this only shows that configuration and names are what it expects."""
    reference = json.loads((path / "reference.json").read_text())
    want = np.load(path / "logits.npy")
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cpu")
    with torch.no_grad():
        got = model(torch.tensor([reference["logits"][0]["ids"]])).logits[0].float().numpy()
    off = np.abs(got - want).mean() / (want.max() - want.min())
    assert off < 0.03, f"{path.name}: transformers computes something else ({off:.3f})"
    return f"; transformers loads it, mean difference {off:.4f} of the range"


def main() -> None:
    global PEERS
    parser = argparse.ArgumentParser(description="makes the quantized micro checkpoints; see the head of this file")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--peers", type=Path)
    args = parser.parse_args()
    PEERS = args.peers
    if args.list:
        for name, q in QUANTS.items():
            print(f"{name:26} {q.about}")
        return
    unknown = [n for n in args.names if n not in QUANTS]
    if unknown:
        sys.exit(f"error: no such checkpoint: {', '.join(unknown)}\nhint: make_quant.py --list")
    failed = []
    for name in args.names or QUANTS:
        try:
            make_quant(name)
        except AssertionError as e:
            failed.append(name)
            print(f"error: {e}")
    if failed:
        sys.exit(f"error: {len(failed)} checkpoints are not usable: {' '.join(failed)}")


if __name__ == "__main__":
    main()
