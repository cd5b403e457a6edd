#!/usr/bin/env python3
"""Vectors of the scheme tcq, decoded from docs/schemes/tcq.md alone.

    pip install numpy
    python3 make_tcq.py

Writes tcq_*.parts and tcq_*.f32.gz and puts their rows into schemes.json. Made
with numpy 2.3. It shares no code with formats/scheme: states are cut out of
one big integer per tile, and transforms follow the page's order of operations.
"""
import gzip
import json
import numpy as np

rng = np.random.default_rng(20261121)
F32 = np.float32


def signs(seed):
    out, state = [], seed
    for _ in range(4):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        out.append(z ^ (z >> 31))
    return out[0] | out[1] << 64, out[2] | out[3] << 64


def signed(b):
    return b - 256 if b > 127 else b


def codeword(codebook, state):
    if codebook in (1, 3):
        y = state * {1: 0xCE5C43, 3: 0x654CB9}[codebook] % 2**32
        return sum(signed(y >> s & 255) for s in (0, 8, 16, 24))
    y = (state * 0xD59B + 0x469D) % 2**16
    return signed(y & 255) + signed(y >> 8)


def hadamard(x, size):
    """Along the last axis, in blocks."""
    shape = x.shape
    x = x.reshape(-1, size).copy()
    s = 1
    while s < size:
        y = x.reshape(x.shape[0], size // (2 * s), 2, s)
        x = np.stack([y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]], axis=2).reshape(-1, size)
        s *= 2
    return (x * F32(1 / np.sqrt(float(size)))).reshape(shape)


def decode(n, k, p, codes, scales, out, inn):
    w = np.zeros((n, k), F32)
    bits = p["bits"]
    for i in range(n // 16):
        for j in range(k // 16):
            stream = int.from_bytes(codes[i, j].tobytes(), "little")
            stream |= stream << 256 * bits
            for t in range(256):
                c = codeword(p["codebook"], stream >> t * bits & 0xFFFF)
                w[i * 16 + t % 16, j * 16 + t // 16] = F32(F32(scales[i]) * F32(1 / 128)) * F32(c)
    s_in, s_out = signs(p["seed"])
    if p["rotate_in"] > 1:
        w = hadamard(w, p["rotate_in"])
        w *= np.array([-1 if s_in >> (c % p["rotate_in"]) & 1 else 1 for c in range(k)], F32)
    if inn is not None:
        w = w * inn.astype(F32)
    if p["rotate_out"] > 1:
        w = hadamard(np.ascontiguousarray(w.T), p["rotate_out"]).T
        w = w * np.array([-1 if s_out >> (r % p["rotate_out"]) & 1 else 1 for r in range(n)], F32)[:, None]
    if out is not None:
        w = w * out.astype(F32)[:, None]
    return np.ascontiguousarray(w)


def make(name, n, k, **p):
    codes = rng.integers(0, 2**16, (n // 16, k // 16, 16 * p["bits"]), np.uint16)
    scales = (0.01 + rng.random(n // 16) * 0.02).astype(np.float16)
    out = rng.uniform(0.5, 2, n).astype(np.float16) if p.get("out_scales") else None
    inn = rng.uniform(0.5, 2, k).astype(np.float16) if p.get("in_scales") else None
    with open(name + ".parts", "wb") as f:
        for part in (codes, scales, out, inn):
            if part is not None:
                f.write(part.tobytes())
    w = decode(n, k, p, codes, scales, out, inn)
    assert w.dtype == F32
    with open(name + ".f32.gz", "wb") as f:
        f.write(gzip.compress(w.tobytes(), mtime=0))
    return dict(name=name, scheme="tcq", shape=[n, k], params=p, by="make_tcq.py, from the page")


rows = [
    make("tcq_2", 64, 96, bits=2, codebook=1, rotate_in=32, rotate_out=64, seed=1),
    make("tcq_3", 128, 128, bits=3, codebook=1, rotate_in=128, rotate_out=128, seed=2**53 - 1, in_scales=1, out_scales=1),
    make("tcq_4", 48, 64, bits=4, codebook=2, rotate_in=64, rotate_out=1, seed=3, out_scales=1),
    make("tcq_5", 32, 48, bits=5, codebook=3, rotate_in=1, rotate_out=32, seed=4, in_scales=1),
    make("tcq_6", 16, 32, bits=6, codebook=2, rotate_in=1, rotate_out=1, seed=0),
]
with open("schemes.json") as f:
    index = json.load(f)
index["vectors"] = [v for v in index["vectors"] if v["scheme"] != "tcq"] + rows
with open("schemes.json", "w") as f:
    json.dump(index, f, indent=1)
    f.write("\n")
