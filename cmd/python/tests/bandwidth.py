"""Times decoding to torch on one core, beside NumPy's copies: bandwidth.py Q4K.nstf TMP

Q4K.nstf is a model whose matrices are q4_k (nstf dev generate --blocks, nstf convert); one with random codes of tcq3 in
their places, rotated by 128 both ways, is written into TMP.
"""

import os
import pathlib
import statistics
import sys
import time

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np  # noqa: E402
import packages  # noqa: E402
import torch  # noqa: E402

import nstf  # noqa: E402


def tcq3(source, path):
    rng = np.random.default_rng(0)
    tensors = {}
    with nstf.open(source) as p:
        for name, t in p.items():
            if len(t.shape) < 2:
                tensors[name] = (t.shape, packages.plain(t.numpy()))
                continue
            n, k = t.shape
            half = lambda size, mean: rng.normal(mean, mean / 10, size).astype("<f2").tobytes()  # noqa: E731
            parts = [("codes", "u16", (n // 16, k // 16, 48), rng.bytes(n * k * 3 // 8)), ("scales", "f16", (n // 16,), half(n // 16, 0.02))]
            parts += [("out", "f16", (n,), half(n, 1)), ("in", "f16", (k,), half(k, 1))]
            params = {"bits": 3, "codebook": 1, "rotate_in": 128, "rotate_out": 128, "seed": 1, "in_scales": 1, "out_scales": 1}
            tensors[name] = (t.shape, {"scheme": "tcq", "params": params, "parts": parts})
        packages.write(path, {"model": p.graph, "files": []}, tensors)


def seconds():
    t = os.times()
    return time.perf_counter(), t.user + t.system + t.children_user + t.children_system


def rate(what, size, run, times):
    rates = []
    for _ in range(times):
        before = seconds()
        kept = run()
        after = seconds()
        rates.append([size / (y - x) / 1e9 for x, y in zip(before, after)])
        del kept
    (wall, best), (_, median) = ([f(r) for r in zip(*rates)] for f in (max, statistics.median))
    print(f"{what:60} {wall:6.2f} GB/s, {best:6.2f} GB in a second of processor time, median {median:6.2f}", flush=True)


source, tmp = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
other = tmp / "tcq3.nstf"
if not other.exists():
    tcq3(source, other)
a, b = (np.ones(1 << 26, np.float32) for _ in range(2))
rate("numpy.copyto, 256 MiB, both arrays there", a.nbytes, lambda: np.copyto(b, a), 10)
rate("ndarray.copy, 256 MiB, into new memory", a.nbytes, a.copy, 10)
for path in (source, other):
    with nstf.open(path) as p:
        coded = [name for name, t in p.items() if len(t.shape) > 1]
        size = sum(4 * p[name].shape[0] * p[name].shape[1] for name in coded)
        rate(f"{path.name}: {size / 4e9:.2f} B weights, decoded to torch at once", size, lambda: [torch.from_numpy(x) for x in p.decode(*coded)], 9)
        large = max(coded, key=lambda name: p[name].shape[0] * p[name].shape[1])
        size = 4 * p[large].shape[0] * p[large].shape[1]
        rate(f"{path.name}: {large} {list(p[large].shape)}, by Tensor.torch", size, lambda: p[large].torch(), 9)
