#!/usr/bin/env python3
"""Vectors of the schemes that are not ggml's, decoded by the libraries that
own them.

    pip install torch numpy bitsandbytes compressed-tensors ml_dtypes
    python3 make_schemes.py

schemes.json lists the vectors: scheme, shape, params and the names of the
parts. NAME.parts is the parts one after another, NAME.f32.gz the weights as the
library gives them in float32. smallfloats.f32.gz holds, by smallfloats in
schemes.json, what ml_dtypes makes of every code.

Made with torch 2.15.0, bitsandbytes 0.50.2, compressed-tensors 0.20.0,
ml_dtypes 0.6.0.
"""
import gzip
import json
import ml_dtypes
import numpy as np
import torch
import bitsandbytes.functional as bnb
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from compressed_tensors.compressors import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationStrategy
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize

F16, BF16, F32, U8 = 2, 3, 1, 9  # ids of formats/scheme
index = {"vectors": [], "smallfloats": []}
gen = torch.Generator().manual_seed(20261120)


def raw(t):
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    if t.dtype == torch.float8_e4m3fn:
        t = t.view(torch.uint8)
    return t.contiguous().numpy().tobytes()


def put(name, scheme, shape, params, parts, want, by):
    with open(name + ".parts", "wb") as f:
        for p in parts:
            f.write(p if isinstance(p, bytes) else raw(p))
    assert want.dtype == torch.float32 and list(want.shape) == list(shape)
    with open(name + ".f32.gz", "wb") as f:
        f.write(gzip.compress(raw(want), mtime=0))
    index["vectors"].append(dict(name=name, scheme=scheme, shape=list(shape), params=params, by=by))


def weights(n, k):
    w = torch.randn(n, k, generator=gen) * 0.05
    w[torch.rand(n, k, generator=gen) < 0.005] *= 20
    return w


def nf4(name, n, k, nested):
    q, st = bnb.quantize_4bit(weights(n, k), blocksize=64, compress_statistics=nested, quant_type="nf4")
    params, parts = {"block": 64}, [q.flatten(), st.code, st.absmax]
    if nested:
        params["nested"] = st.state2.blocksize
        parts += [st.state2.absmax, st.state2.code, st.offset.reshape(1)]
    want, by = bnb.dequantize_4bit(q, st), "bitsandbytes.functional.dequantize_4bit"
    if k % 64:
        # The CPU kernel of 0.50.2 starts blocks anew at each row, unlike the quantizer and the CUDA
        # kernels, and is ten times as far from the weights; the generic code is right.
        want, by = _dequantize_4bit_compute(q.flatten(), st.absmax, st.code, 64, (n, k), torch.float32), "bitsandbytes.backends.default"
    put(name, "nf4", (n, k), params, parts, want, by)


def codes(q, bits):
    """Bits from the low end, rows padded to whole bytes."""
    rows = []
    for row in q.to(torch.uint8).numpy():
        b = ((row[:, None] >> np.arange(bits)) & 1).reshape(-1).astype(np.uint8)
        rows.append(np.packbits(b, bitorder="little").tobytes())
    return b"".join(rows)


def affine(name, n, k, bits, group, scale_type, zero, perm):
    half = 1 << (bits - 1)
    w = weights(n, k)
    g = w.reshape(n, -1, group)
    scale = ((g.amax(-1) - g.amin(-1)) / (2**bits - 1)).to(scale_type)
    zp = torch.round(-g.amin(-1) / scale.float()) - half if zero else torch.zeros_like(scale.float())
    zp = zp.clamp(-half, half - 1).to(torch.int8)
    args = QuantizationArgs(num_bits=bits, type="int", strategy="group", group_size=group, symmetric=not zero)
    q = quantize(w, scale.float(), zp if zero else None, args, dtype=torch.int8)
    want = dequantize(q, scale.float(), zp if zero else None, args=args, dtype=torch.float32)
    if perm:  # the columns were quantized in another order than they are stored in
        order = torch.randperm(k, generator=gen)
        q, want = q[:, order], want[:, order].contiguous()
        gidx = (torch.arange(k) // group)[order].to(torch.int32)
    params = {"bits": bits, "group": group, "scale": {torch.float16: F16, torch.bfloat16: BF16, torch.float32: F32}[scale_type]}
    parts = [codes(q.int() + half, bits), scale]
    if zero:
        params["zero"] = U8
        parts.append((zp.int() + half).to(torch.uint8))
    if perm:
        params["index"] = n
        parts.append(gidx)
    put(name, "affine", (n, k), params, parts, want, "compressed_tensors dequantize")


def fp8(name, n, k, rows, cols, scale_type):
    w = weights(n, k)
    pad = torch.nn.functional.pad(w.abs(), (0, -k % cols, 0, -n % rows))
    top = pad.reshape(pad.shape[0] // rows, rows, pad.shape[1] // cols, cols).amax((1, 3))
    scale = (top / 448).to(scale_type)
    full = scale.float().repeat_interleave(rows, 0)[:n].repeat_interleave(cols, 1)[:, :k]
    q = (w / full).clamp(-448, 448).to(torch.float8_e4m3fn)
    if rows == n and cols == k:
        args = QuantizationArgs(num_bits=8, type="float", strategy=QuantizationStrategy.TENSOR)
        want = dequantize(q, scale.float().reshape(1), args=args, dtype=torch.float32)
    elif rows == 1 and cols == k:
        args = QuantizationArgs(num_bits=8, type="float", strategy=QuantizationStrategy.CHANNEL)
        want = dequantize(q, scale.float(), args=args, dtype=torch.float32)
    else:
        args = QuantizationArgs(num_bits=8, type="float", strategy=QuantizationStrategy.BLOCK, block_structure=[rows, cols])
        want = dequantize(q, scale.float(), args=args, dtype=torch.float32)
    params = {"rows": rows, "cols": cols, "scale": {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}[scale_type]}
    put(name, "fp8", (n, k), params, [q, scale], want, "compressed_tensors dequantize")


def mxfp4_pairs(name, n, k):
    """Not blocks of the scheme but the other layout: codes, then scales."""
    c = torch.randint(0, 256, (n, k // 2), generator=gen, dtype=torch.uint8)
    e = torch.randint(100, 140, (n, k // 32), generator=gen, dtype=torch.uint8)
    v = unpack_fp4_from_uint8(c, n, k, dtype=torch.float32)
    s = torch.pow(2.0, e.float() - 127).repeat_interleave(32, 1)
    with open(name + ".parts", "wb") as f:
        f.write(raw(c) + raw(e))
    with open(name + ".f32.gz", "wb") as f:
        f.write(gzip.compress(raw(v * s), mtime=0))


nf4("nf4", 5, 192, False)
nf4("nf4_cross", 6, 96, False)
nf4("nf4_nested", 13, 1280, True)
affine("affine_w4", 6, 256, 4, 64, torch.float16, False, False)
affine("affine_w4_zero", 6, 256, 4, 32, torch.bfloat16, True, False)
affine("affine_w4_index", 6, 256, 4, 32, torch.float32, True, True)
affine("affine_w8", 6, 128, 8, 128, torch.bfloat16, False, False)
affine("affine_w3_zero", 6, 96, 3, 32, torch.float16, True, False)
fp8("fp8_tensor", 8, 96, 8, 96, torch.float32)
fp8("fp8_channel", 8, 96, 1, 96, torch.bfloat16)
fp8("fp8_block", 24, 48, 8, 16, torch.float32)
mxfp4_pairs("mxfp4_pairs", 4, 128)

values = []
for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
             "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"):
    dt = np.dtype(getattr(ml_dtypes, name))
    n = 16 if name.startswith("float4") else 64 if name.startswith("float6") else 256
    v = np.arange(n, dtype=np.uint8).view(dt).astype(np.float32)
    values.append(v)
    index["smallfloats"].append([name, n])
with open("smallfloats.f32.gz", "wb") as f:
    f.write(gzip.compress(np.concatenate(values).tobytes(), mtime=0))
with open("schemes.json", "w") as f:
    json.dump(index, f, indent=1)
    f.write("\n")
