"""Holds the runner of this folder to what others computed.

usage: check.py NSTF TESTDATA TMP

Every checkpoint of testdata/micro, packed by NSTF, has the logits of transformers;
testdata/routers are the choices of its routers; testdata/vectors/graphs.json says
which graphs are refused, and at what place. Its good ones get random weights and are
run here and by NSTF, for no checkpoint has all that a graph may say.
"""

import copy
import glob
import json
import os
import re
import subprocess
import sys

import numpy as np

import package
import rules
import run

LIMIT = 1e-4  # of the logits' range


def micro(nstf, folder, scratch):
    """Holds every checkpoint of testdata/micro to the logits that transformers computed."""
    worst, count, packed = 0, 0, os.path.join(scratch, "run.nstf")
    for path in sorted(glob.glob(os.path.join(folder, "*", "reference.json"))):
        here = os.path.dirname(path)
        subprocess.run([nstf, "convert", here, "-o", packed], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        runner = run.Runner(package.Package(packed))
        os.remove(packed)
        with open(path) as f:
            wanted = json.load(f)["logits"]
        for item in wanted:
            want = np.load(os.path.join(here, item["file"]))
            got = runner.logits(item["ids"])
            assert got.shape == want.shape, f"{here}: logits of {got.shape}, not {want.shape}"
            off = np.abs(got - want).max() / (want.max() - want.min())
            assert off < LIMIT, f"{here}: {item['file']} is {off:.2g} of its range off"
            worst, count = max(worst, off), count + 1
    assert count > 0, f"no checkpoints in {folder}"
    print(f"{count} sets of logits, at most {worst:.2g} of their range off")


def routers(path):
    """Holds the choice of experts and their weights to testdata/routers."""
    with open(path) as f:
        cases = json.load(f)
    assert len(cases) >= 10, f"{len(cases)} routers"
    for c in cases:
        m = {key: default for key, (_, default) in rules.TABLES["moe"].items()} | c["moe"]
        m["group_best"] = m["group_best"] or 2
        bias = np.array(c["bias"], np.float32) if c["bias"] else 0
        for row, logits in enumerate(c["logits"]):
            chosen, w = run.Runner.route(None, m, np.array(logits), bias)
            want = dict(zip(c["chosen"][row], c["share"][row]))
            assert set(want) == set(chosen.tolist()), f"{c['name']}: {chosen}, not {want}"
            for e, x in zip(chosen.tolist(), w):
                assert abs(x - want[e]) <= 2e-6 * abs(want[e]), f"{c['name']}: expert {e} has {x}, not {want[e]}"
    print(f"{len(cases)} routers")


def edited(base, changes):
    """A copy of a graph with what stands at the places replaced."""
    g = copy.deepcopy(base)
    for place, value in changes.items():
        at, (*way, last) = g, [int(i) if i else k for k, i in re.findall(r"([A-Za-z_]+)|\[(\d+)\]", place)]
        for step in way:
            at = at[step]
        if value == {"delete": True}:
            del at[last]
        else:
            at[last] = value
    return g


def pack(path, graph, tensors):
    """Writes a package of f32 tensors without files: nstf.md, sections 3 to 7."""
    entries, data = [], b""
    for name, w in tensors.items():
        raw = w.astype("<f4").tobytes()
        data += bytes(-len(data) % 64)
        part = {"name": "data", "dtype": "f32", "shape": w.shape, "offset": len(data), "size": len(raw)}
        entries.append({"name": name, "shape": w.shape, "scheme": "f32", "form": "dense", "parts": [part], "hash": package.blake3(raw)})
        data += raw
    head = {"requires": [], "provenance": {"tool": "check.py", "flags": [], "sources": []}, "files": [], "model": graph, "tensors": entries}
    head, fill = json.dumps(head).encode(), lambda n: bytes(-n % 4096)
    data += fill(len(data))
    padding = fill(64 + len(head))
    whole = 64 + len(head) + len(padding) + len(data)
    fixed = b"\x89NSTF\r\n\x1a" + b"".join(n.to_bytes(size, "little") for n, size in ((1, 4), (0, 4), (len(head), 8), (whole, 8)))
    with open(path, "wb") as f:
        f.write(fixed + bytes.fromhex(package.blake3(fixed + head)) + head + padding + data)


def variants(nstf, path, scratch):
    """Runs each good vector with random weights here and by the program."""
    with open(path) as f:
        entries = json.load(f)
    named, worst, count = {e["name"]: e["graph"] for e in entries if "name" in e}, 0, 0
    ids, packed, logits = (os.path.join(scratch, name) for name in ("ids.json", "variant.nstf", "variant.npy"))
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 16, 24)]
    with open(ids, "w") as f:
        json.dump(tokens, f)
    for e in entries:
        if "error" in e:
            continue
        g, rng = e["graph"] if "graph" in e else edited(named[e["base"]], e["change"]), np.random.default_rng(2)
        tensors = {name: rng.normal(0, 0.7, shape) for name, shape in rules.read_graph(copy.deepcopy(g))}
        for n in (b[kind] for b in g["blocks"] for kind in ("delta", "mamba") if kind in b and not b[kind].get("decay_log")):
            tensors[n["decay"]] = -abs(tensors[n["decay"]])  # what is remembered fades
        pack(packed, g, tensors)
        want = run.Runner(package.Package(packed)).logits(tokens)
        subprocess.run([nstf, "eval", packed, "--token-ids", ids, "--dump-logits", logits, "--device", "cpu"], check=True, stdout=subprocess.DEVNULL)
        off = np.abs(np.load(logits) - want).max() / (want.max() - want.min())
        os.remove(logits)
        assert off < LIMIT, f"{e['what']}: {off:.2g} of the range off"
        worst, count = max(worst, off), count + 1
    print(f"{count} graphs run here and by the program, at most {worst:.2g} of their range apart")


def vectors(path):
    """Holds the rules to testdata/vectors/graphs.json."""
    with open(path) as f:
        entries = json.load(f, parse_int=rules.integer)
    named = {e["name"]: e["graph"] for e in entries if "name" in e}
    for e in entries:
        tensors = None
        g = copy.deepcopy(e["graph"]) if "graph" in e else edited(named[e["base"]], e["change"])
        said = None
        try:
            tensors = dict(rules.read_graph(g))
        except rules.Malformed as err:
            said = ("format", str(err))
        except rules.Unsupported as err:
            said = ("unsupported", str(err))
        assert (said[0] if said else None) == e.get("error"), f"{e['what']}: {said}"
        assert not said or e["at"] in said[1], f"{e['what']}: {said[1]} does not name {e['at']}"
        assert "tensors" not in e or tensors == e["tensors"], f"{e['what']}: {tensors}"
    print(f"{len(entries)} graphs")


def main():
    nstf, folder, scratch = sys.argv[1:4]
    vectors(os.path.join(folder, "vectors", "graphs.json"))
    routers(os.path.join(folder, "routers", "routers.json"))
    variants(nstf, os.path.join(folder, "vectors", "graphs.json"), scratch)
    micro(nstf, os.path.join(folder, "micro"), scratch)


if __name__ == "__main__":
    main()
