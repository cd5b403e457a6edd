"""Holds the kernels that nstf::decode launches to the schemes' vectors, by nstf._kernels alone: emulated.py ARCH, where the
emulator of kernels/amdemu stands in for AMD's libraries and AMDEMU_HOSTVISIBLE is 1 (.ci/gpu). It needs NumPy, not torch."""

import ctypes
import gzip
import json
import pathlib
import sys

import numpy as np

from nstf import _kernels

VECTORS = pathlib.Path(__file__).resolve().parents[3] / "testdata" / "vectors"
# Weights and bytes of a block, and where its binary16 scales lie (docs/schemes).
BLOCKS = {"q4_0": (32, 18, 0), "q4_1": (32, 20, 0, 2), "q5_0": (32, 22, 0), "q5_1": (32, 24, 0, 2), "q8_0": (32, 34, 0), "q2_k": (256, 84, 80, 82)}
BLOCKS |= {"q3_k": (256, 110, 108), "q4_k": (256, 144, 0, 2), "q5_k": (256, 176, 0, 2), "q6_k": (256, 210, 208), "iq4_xs": (256, 136, 0), "mxfp4": (32, 17)}
BLOCKS |= {"iq2_xxs": (256, 66, 0), "iq3_s": (256, 110, 0), "tq1_0": (256, 54, 52)}
KINDS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}


class Memory:
    """Arrays in memory of the device, which the host sees here."""

    def __init__(self, library):
        self.malloc, self.wait = library.hipMalloc, library.hipDeviceSynchronize
        self.malloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]

    def put(self, array):
        at = ctypes.c_void_p()
        assert self.malloc(ctypes.byref(at), max(array.nbytes, 1)) == 0
        there = np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_uint8)), (array.nbytes,))
        there[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return at.value, there


def rounded(want, kind):
    if kind != "bf16":
        with np.errstate(over="ignore"):
            return want.astype(KINDS[kind])
    bits = want.view("<u4")
    out = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    out[np.isnan(want)] = 0x7FC0
    return out


def same(what, got, want):
    nan = np.zeros(len(got), bool) if got.dtype.kind == "u" else np.isnan(got) & np.isnan(want)
    whole = {2: "<u2", 4: "<u4"}[got.itemsize]
    wrong = (got.view(whole) != want.view(whole)) & ~nan
    assert not wrong.any(), f"{what}: number {wrong.argmax()} is {got[wrong][:3]}, not {want[wrong][:3]}"


def blocks(device, memory, name, file, kind):
    weights, size, *places = BLOCKS[name]
    raw = np.frombuffer((VECTORS / (file + ".blocks")).read_bytes(), np.uint8).reshape(-1, size)
    want = np.frombuffer(gzip.decompress((VECTORS / (file + ".f32.gz")).read_bytes()), "<f4")
    kernel = device.kernel(name, {}, kind)
    assert (kernel.weights, kernel.bytes) == (weights, size)
    scales = [memory.put(raw[:, at : at + 2].copy().view("<f2").astype("<f4")) for at in places]
    table, data = memory.put(np.frombuffer(kernel.table, np.uint8)), memory.put(raw)
    order = np.arange(len(raw), dtype="<i8")[::-1].copy()  # a row is a block
    order[1::7] = [(-1, -100, len(raw), 1 << 32, -(1 << 62))[i % 5] for i in range(len(order[1::7]))]  # rows that are not there
    for rows in (None, order):
        y, out = memory.put(np.zeros(want.shape, KINDS[kind]))
        at = [s[0] for s in scales] + [0, 0]
        device.blocks(kernel, 0, len(raw), weights, y, data[0], table[0], 0 if rows is None else memory.put(rows)[0], len(raw), *at[:2])
        assert memory.wait() == 0
        turned = want if rows is None else np.where(((rows >= 0) & (rows < len(raw)))[:, None], want.reshape(-1, weights)[::-1], np.float32(np.nan)).reshape(-1)
        same(f"{file} as {kind}", out.view(KINDS[kind]), rounded(turned, kind))


def trellis(device, memory, v, kind):
    (n, k), p = v["shape"], v["params"]
    raw = (VECTORS / (v["name"] + ".parts")).read_bytes()
    want = np.frombuffer(gzip.decompress((VECTORS / (v["name"] + ".f32.gz")).read_bytes()), "<f4")
    size = n * k * p["bits"] // 8
    codes, rest = memory.put(np.frombuffer(raw[:size], np.uint8)), np.frombuffer(raw[size:], "<f2").astype("<f4")
    units, rest = memory.put(rest[: n // 16]), rest[n // 16 :]
    out, rest = (memory.put(rest[:n])[0], rest[n:]) if p.get("out_scales") else (0, rest)
    into, rest = (memory.put(rest[:k])[0], rest[k:]) if p.get("in_scales") else (0, rest)
    assert len(rest) == 0
    y, there = memory.put(np.zeros(want.shape, KINDS[kind]))
    device.trellis(device.kernel("tcq", p, kind), 0, n, k, y, codes[0], units[0], into, out, _kernels.words(p["seed"]))
    assert memory.wait() == 0
    same(f"{v['name']} as {kind}", there.view(KINDS[kind]), rounded(want, kind))


device = _kernels.Device("hip", sys.argv[1])
memory = Memory(ctypes.CDLL("libamdhip64.so.6"))
for name in BLOCKS:
    for i, kind in enumerate(KINDS):
        if i == 0 or name in ("q4_k", "q8_0"):
            blocks(device, memory, name, name.upper(), kind)
            if (VECTORS / (name.upper() + "_edges.blocks")).exists():
                blocks(device, memory, name, name.upper() + "_edges", kind)
others = [v for v in json.loads((VECTORS / "schemes.json").read_text())["vectors"] if v["scheme"] == "tcq"]
assert len(others) >= 5
for i, v in enumerate(others):
    for kind in KINDS if i == 1 else ["f32"]:
        trellis(device, memory, v, kind)
try:
    device.kernel("fp8", {"rows": 128, "cols": 128, "scale": 3}, "f32")
    raise SystemExit("a kernel of fp8, which has none")
except _kernels.Error as e:
    assert "fp8" in str(e), e
print(f"{sys.argv[1]}: {len(device.kernels)} kernels loaded by ctypes, {len(BLOCKS)} schemes of blocks, {len(others)} of trellis codes: the vectors' bits")
