"""Writes packages whose matrices are coded and factored at random, by docs/nstf.md, docs/schemes and docs/forms."""

import json
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "testdata" / "graph"))

from package import blake3  # noqa: E402


def plain(w):
    return {"scheme": "f32", "parts": [("data", "f32", w.shape, w.astype("<f4").tobytes())]}


def affine(w):
    """Codes of 8 bits with a float32 scale for each 8 weights of a row."""
    rows = np.abs(w.reshape(-1, w.shape[-1]))
    n, k = rows.shape
    groups = -(-k // 8)
    of = np.arange(k) // 8
    s = np.stack([rows[:, of == g].max(1) for g in range(groups)], 1).astype(np.float32) / 120 + 1e-9
    q = np.clip(np.rint(w.reshape(n, k) / s[:, of]) + 128, 0, 255).astype(np.uint8)
    parts = [("codes", "u8", (n, k), q.tobytes()), ("scales", "f32", s.shape, s.astype("<f4").tobytes())]
    return {"scheme": "affine", "params": {"bits": 8, "group": 8, "scale": 1}, "parts": parts}


def decoded(w):
    """What affine makes of w."""
    a = affine(w)
    q, s = a["parts"][0], a["parts"][1]
    of = np.arange(w.shape[-1]) // 8
    scale = np.frombuffer(s[3], "<f4").reshape(s[2])[:, of]
    return (scale * (np.frombuffer(q[3], "u1").reshape(q[2]) - np.float32(128))).reshape(w.shape)


def factored(form, factors):
    return {"form": form, "factors": factors}


def lowrank(w, rng):
    """The product of all singular vectors, and of two where there are more than 8."""
    u, s, v = np.linalg.svd(w, full_matrices=False)
    return factored("lowrank", {"a": affine((u * s[..., None, :])), "b": plain(v)})


def corrected(w, rng):
    n, k = w.shape[-2:]
    a, b = rng.normal(0, 0.1, (*w.shape[:-2], n, 2)), rng.normal(0, 0.1, (*w.shape[:-2], 2, k))
    return factored("corrected", {"q": affine(w - a @ b), "a": plain(a), "b": affine(b)})


def shared(w, rng):
    c, u = rng.normal(0, 0.3, (w.shape[0], 2)), rng.normal(0, 0.1, (2, *w.shape[1:]))
    return factored("shared", {"c": plain(c), "u": affine(u), "q": affine(w - np.tensordot(c, u, 1))})


def train(w, rng):
    """Two cores: all of a table in the second."""
    v, k = w.shape
    rows = -(-v // 4)
    full = np.zeros((4 * rows, k))
    full[:v] = w
    g1 = np.eye(4)  # [4][1*1*4]
    g2 = full.reshape(4, rows, k).transpose(1, 0, 2).reshape(rows, 4 * k)
    return factored("train", {"g1": plain(g1), "g2": affine(g2)}) | {"params": {"cols1": 1, "rank1": 4, "cols2": k}}


def write(path, header, tensors):
    """A package with the header's graph and files, and tensors of what the functions above give."""
    entries, data, files = [], b"", []

    def put(parts, prefix=""):
        nonlocal data
        out, raws = [], b""
        for name, dtype, shape, raw in parts:
            data += bytes(-len(data) % 64)
            out.append({"name": prefix + name, "dtype": dtype, "shape": list(shape), "offset": len(data), "size": len(raw)})
            data += raw
            raws += raw
        return out, raws

    for name, (shape, t) in tensors.items():
        size = sum(len(p[3]) for x in [t, *t.get("factors", {}).values()] for p in x.get("parts", []))
        # Tensors of 64 KiB and more begin at pages: those of the tests are smaller, but for tables.
        data += bytes(-len(data) % (4096 if size + 640 >= 65536 else 64))
        e = {"name": name, "shape": list(shape), "form": t.get("form", "dense"), "scheme": t.get("scheme", "factors")}
        if t.get("params"):
            e["params"] = t["params"]
        parts, raws = put(t.get("parts", []))
        if "factors" in t:
            e["factors"] = []
            for short, f in t["factors"].items():
                some, raw = put(f["parts"], short + ".")
                parts, raws = parts + some, raws + raw
                first = f["parts"][0][2]
                e["factors"].append({"name": short, "shape": f.get("shape", list(first)), "scheme": f["scheme"], **({"params": f["params"]} if "params" in f else {})})
        entries.append(e | {"parts": parts, "hash": blake3(raws)})
    for f in header["files"]:
        data += bytes(-len(data) % (64))
        files.append({**f["entry"], "offset": len(data)})
        data += f["raw"]
    head = {"requires": [], "provenance": {"tool": "tests", "flags": [], "sources": []}, "files": files, "model": header["model"], "tensors": entries}
    head = json.dumps(head).encode()
    data += bytes(-len(data) % 4096)
    padding = bytes(-(64 + len(head)) % 4096)
    whole = 64 + len(head) + len(padding) + len(data)
    fixed = b"\x89NSTF\r\n\x1a" + b"".join(n.to_bytes(size, "little") for n, size in ((1, 4), (0, 4), (len(head), 8), (whole, 8)))
    path.write_bytes(fixed + bytes.fromhex(blake3(fixed + head)) + head + padding + data)


def recode(package, path, seed=0):
    """A copy of an open package with every matrix of a linear coded or factored, by turns."""
    rng = np.random.default_rng(seed)
    linears, tables = {}, {package.graph["embed"]["table"]}

    def walk(o):
        if isinstance(o, dict):
            if "role" in o and "weight" in o:
                linears[o["weight"]] = o["role"]
            for v in o.values():
                walk(v)
        elif isinstance(o, list):
            for v in o:
                walk(v)

    walk(package.graph)
    tensors, forms = {}, []
    for name, t in package.items():
        w = np.array(t.numpy(), np.float64)
        role = linears.get(name, "")
        if name in tables:
            way = train
        elif not role or t.shape[-1] < 2:
            way = None
        elif len(t.shape) == 3:
            way = [shared, lambda w, _: affine(w)][len(forms) % 2] if role.startswith("moe_") else None
        else:
            way = [lambda w, _: affine(w), lowrank, corrected][len(forms) % 3]
        made = plain(w) if way is None else way(w, rng)
        forms += [name] if way else []
        for f in made.get("factors", {}).values():
            f["shape"] = list(f["parts"][0][2])
        fix(made, t.shape)
        tensors[name] = (t.shape, made)
    files = [{"entry": {k: f[k] for k in ("name", "encoding", "decoded", "size", "hash")}, "raw": package._bytes(f["offset"], f["size"]).tobytes()} for f in package.header["files"]]
    write(path, {"model": package.graph, "files": files}, tensors)
    return forms


def fix(made, shape):
    """Factors of stacks are stacks, though parts of codes have two dimensions."""
    form, f = made.get("form"), made.get("factors", {})
    if len(shape) == 3 and form == "shared":
        f["u"]["shape"] = [f["c"]["shape"][1], *shape[1:]]
        f["q"]["shape"] = list(shape)
    assert form != "lowrank" or math.prod(f["a"]["shape"]) > 0
