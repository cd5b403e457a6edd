"""Reads packages: docs/nstf.md, and the schemes of docs/schemes that the checkpoints of testdata/micro use."""

import json
import math

import numpy as np

import rules
from rules import Malformed, Unsupported, need

F32, U32 = np.float32, np.uint32

IV = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], U32)
ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]


TURNED = [[(i + by) % 4 for i in range(4)] for by in range(4)]


def compress(cv, m, counter, length, flags):
    """BLAKE3's compression of n blocks side by side: cv [8][n], m [16][n]. Four columns at once, then four diagonals."""
    n = cv.shape[1]
    a, b, c = cv[:4], cv[4:], np.repeat(IV[:4, None], n, 1)
    d = np.stack([counter.astype(U32), np.zeros(n, U32), np.full(n, length, U32), np.full(n, flags, U32)])
    right = lambda x, r: (x >> U32(r)) | (x << U32(32 - r))
    for _ in range(7):
        for words, by in ((m[:8], 1), (m[8:], -1)):
            for word, r, s in ((words[::2], 16, 12), (words[1::2], 8, 7)):
                a = a + b + word
                d = right(d ^ a, r)
                c = c + d
                b = right(b ^ c, s)
            b, c, d = b[TURNED[by]], c[TURNED[2]], d[TURNED[-by]]
        m = m[ORDER]
    return np.concatenate([a ^ c, b ^ d])


def blake3(data):
    """The hash of bytes, in hexadecimal digits."""
    whole, rest = divmod(len(data), 1024)
    if whole and not rest:
        whole, rest = whole - 1, 1024
    alone, nodes = whole == 0, []

    def chunks(raw, count, first, length):
        cv = np.repeat(IV[:, None], count, 1)
        blocks = max(1, -(-length // 64))
        words = np.frombuffer(raw, "<u4").reshape(count, blocks, 16)
        for b in range(blocks):
            flags = (1 if b == 0 else 0) | ((2 | (8 if alone else 0)) if b == blocks - 1 else 0)
            size = 64 if b < blocks - 1 else length - 64 * (blocks - 1)
            cv = compress(cv, words[:, b].T, np.arange(first, first + count), size, flags)
        nodes.extend(cv.T)

    if whole:
        chunks(data[: whole * 1024], whole, 0, 1024)
    tail = data[whole * 1024 :]
    chunks(tail + bytes(-len(tail) % 64 if tail else 64), 1, whole, rest)
    while len(nodes) > 1:  # neighbours join, an odd one moves up
        pairs = len(nodes) // 2
        m = np.array(nodes[: 2 * pairs]).reshape(pairs, 16).T
        joined = compress(np.repeat(IV[:, None], pairs, 1), m, np.zeros(pairs), 64, 4 | (8 if len(nodes) == 2 else 0))
        nodes = list(joined.T) + nodes[2 * pairs :]
    return nodes[0].astype("<u4").tobytes().hex()


def unique(pairs):
    need(len(dict(pairs)) == len(pairs), "a key", "stands twice")
    return dict(pairs)


def no_constant(name):
    raise Malformed(f"{name} is not JSON")


class Package:
    """A package: its graph, checked, and tensors by name."""

    def __init__(self, path):
        with open(path, "rb") as f:
            raw = f.read()
        need(raw[:8] == b"\x89NSTF\r\n\x1a", path, "is not an NSTF package")
        need(len(raw) >= 64, path, "is truncated")
        version, reserved, size, whole = (int.from_bytes(raw[a:b], "little") for a, b in ((8, 12), (12, 16), (16, 24), (24, 32)))
        if version > 1:
            raise Unsupported(f"version {version}")
        need(version == 1 and reserved == 0 and 2 <= size <= 1 << 26 and whole == len(raw) and whole % 4096 == 0, path)
        start = -(-(64 + size) // 4096) * 4096
        need(start <= whole and not any(raw[64 + size : start]), path)
        need(blake3(raw[:32] + raw[64 : 64 + size]) == raw[32:64].hex(), path, "has a damaged header")
        head = json.loads(raw[64 : 64 + size].decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant, parse_int=rules.integer)
        for feature in head["requires"]:
            raise Unsupported(f"feature {feature}")
        self.data, self.tensors = raw[start:], {t["name"]: t for t in head["tensors"]}
        self.graph = head["model"]
        self.weights = {}
        for name, shape in rules.read_graph(self.graph):
            need(name in self.tensors, name, "is missing")
            need(self.tensors[name]["shape"] == shape, name, f"is {self.tensors[name]['shape']}, not {shape}")

    def __getitem__(self, name):
        if name not in self.weights:
            t = self.tensors[name]
            if t["form"] != "dense":
                raise Unsupported(f"form {t['form']} of {name}")
            if t["scheme"] not in SCHEMES:
                raise Unsupported(f"scheme {t['scheme']} of {name}")
            parts = {p["name"]: self.data[p["offset"] : p["offset"] + p["size"]] for p in t["parts"]}
            need(all(len(parts[p["name"]]) == p["size"] for p in t["parts"]), name, "lies beyond the file")
            need(blake3(b"".join(parts.values())) == t["hash"], name, "is damaged")
            k = t["shape"][-1] if t["shape"] else 1
            n = math.prod(t["shape"]) // k if k else 0
            w = SCHEMES[t["scheme"]](parts, n, k, t.get("params", {}))
            self.weights[name] = np.asarray(w, F32).reshape(t["shape"])
        return self.weights[name]


# The schemes: docs/schemes.


def floats(kind):
    """Elements of an id of plain.md: f32, f16, bf16, i16 and u8."""
    if kind == 3:
        return lambda raw: (np.frombuffer(raw, "<u2").astype(U32) << U32(16)).view(F32)
    return lambda raw: np.frombuffer(raw, {1: "<f4", 2: "<f2", 6: "<i2", 9: "u1"}[kind]).astype(F32)


def plain(kind):
    return lambda parts, n, k, params: floats(kind)(parts["data"])


def q8_0(parts, n, k, params):
    b = np.frombuffer(parts["data"], "u1").reshape(-1, 34)
    return b[:, :2].copy().view("<f2").astype(F32) * b[:, 2:].view("i1").astype(F32)


def nibbles(b):
    return np.concatenate([b & 15, b >> 4], 1)


def q4_0(parts, n, k, params):
    b = np.frombuffer(parts["data"], "u1").reshape(-1, 18)
    return b[:, :2].copy().view("<f2").astype(F32) * (nibbles(b[:, 2:]).astype(F32) - F32(8))


def mxfp4(parts, n, k, params):
    b = np.frombuffer(parts["data"], "u1").reshape(-1, 17)
    doubled = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], F32)
    return np.ldexp(doubled[nibbles(b[:, 1:])], b[:, :1].astype(int) - 128)


def affine(parts, n, k, params):
    bits, group, share = params["bits"], params["group"], params.get("index", 0)
    stream = np.unpackbits(np.frombuffer(parts["codes"], "u1").reshape(n, -1), axis=1, bitorder="little")
    q = stream[:, : k * bits].reshape(n, k, bits).astype(F32) @ (2.0 ** np.arange(bits)).astype(F32)
    of = np.tile(np.arange(k) // group, (n, 1))
    if share:
        of = np.frombuffer(parts["index"], "<i4").reshape(-1, k)[np.arange(n) // share]
    at = (np.arange(n)[:, None], of)
    zero = F32(2 ** (bits - 1))
    if params.get("zero", 0):
        zero = floats(params["zero"])(parts["zeros"]).reshape(n, -1)[at]
    return floats(params["scale"])(parts["scales"]).reshape(n, -1)[at] * (q - zero)


def fp8(parts, n, k, params):
    c = np.arange(256)
    e, m = c >> 3 & 15, c & 7
    table = np.where(e > 0, (8 + m) * 2.0 ** (e - 10.0), m * 2.0**-9) * np.where(c > 127, -1, 1)
    table[[127, 255]] = np.nan
    scales = floats(params["scale"])(parts["scales"]).reshape(-1, -(-k // params["cols"]))
    scales = scales[(np.arange(n) // params["rows"])[:, None], np.arange(k) // params["cols"]]
    return table.astype(F32)[np.frombuffer(parts["codes"], "u1").reshape(n, k)] * scales


def nf4(parts, n, k, params):
    b, nested = np.frombuffer(parts["codes"], "u1"), params.get("nested", 0)
    q = np.stack([b >> 4, b & 15], 1).reshape(-1)[: n * k]
    f = floats(1)
    if nested:
        code = np.frombuffer(parts["absmax"], "u1")
        big = f(parts["nested_absmax"])[np.arange(len(code)) // nested]
        absmax = f(parts["nested_levels"])[code] * big + f(parts["offset"])
    else:
        absmax = f(parts["absmax"])
    return f(parts["levels"])[q] * absmax[np.arange(n * k) // params["block"]]


SCHEMES = {"f32": plain(1), "f16": plain(2), "bf16": plain(3), "q8_0": q8_0, "q4_0": q4_0}
SCHEMES |= {"mxfp4": mxfp4, "affine": affine, "fp8": fp8, "nf4": nf4}
