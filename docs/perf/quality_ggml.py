#!/usr/bin/env python3
"""ggml's schemes alone, as GGUF, against llama-quantize at its files' sizes; see quality.md.

    quality_ggml.py NSTF LLAMA_PERPLEXITY SHARED WORK RESULTS.jsonl [TYPE...]

NSTF plans and fits base-llama to no more than each size, calibrated on text/calib.jsonl, and exports it;
LLAMA_PERPLEXITY measures the file against the bf16 model on text/anchor_mix.txt, which nothing was fitted on.
WORK keeps statistics and files. RESULTS gets a JSON line of the machine and one for each type (all of the
table's by default); lines that are there already are kept, and the table is made of all of them.
"""
import json
import os
import re
import subprocess
import sys

# type, bytes of the file, mean KL divergence: llama-quantize with imatrix, the tool itself on the same text.
PEERS = [
    ("IQ2_XXS", 19_050_000, 0.6871), ("IQ2_S", 21_690_000, 0.3597), ("Q2_K", 24_090_000, 0.3038), ("IQ3_XXS", 24_310_000, 0.1857),
    ("IQ3_S", 27_340_000, 0.1028), ("Q3_K_M", 29_250_000, 0.0770), ("IQ4_XS", 32_030_000, 0.0329), ("Q4_0", 33_520_000, 0.0364),
    ("Q4_K_M", 34_890_000, 0.0234), ("Q5_K_M", 39_970_000, 0.0072), ("Q6_K", 45_360_000, 0.0031),
]
GOAL = 0.8  # of the peer's divergence at its size


def run(*args):
    """Runs a program and returns its standard output and error."""
    done = subprocess.run(args, capture_output=True)
    out, log = (b.decode(errors="replace") for b in (done.stdout, done.stderr))
    if done.returncode:
        sys.exit(f"{' '.join(args)}: exit code {done.returncode}\n{log}")
    return out, log


def peer(tool, last, *args):
    """Runs the tool until its log holds the last line: a build of 2026 now and then ends before it is written."""
    for _ in range(5):
        log = "".join(run(tool, *args))
        if last in log:
            return log
    sys.exit(f"{tool} {' '.join(args)}: no {last!r}")


class Bench:
    """Makes and measures packages: the reference and the statistics once, those in WORK are used again."""

    def __init__(self, nstf, tool, shared, work):
        self.nstf, self.tool, self.work = nstf, tool, work
        self.model, self.calib = f"{shared}/models/base-llama", f"{shared}/text/calib.jsonl"
        self.stats, self.ref = f"{work}/base-llama.nstats", f"{work}/base.kld"
        source = f"{work}/base.gguf"
        os.makedirs(work, exist_ok=True)
        if not os.path.exists(self.stats):
            run(nstf, "calibrate", self.model, "--calib", self.calib, "-o", self.stats)
        run(nstf, "export", self.model, "-o", source)
        peer(tool, "Final estimate", "-m", source, "-f", f"{shared}/text/anchor_mix.txt", "-c", "512", "--kl-divergence-base", self.ref)
        self.params = json.loads(run(nstf, "inspect", self.model, "--json")[0])["parameters"]
        self.head = os.path.getsize(source) - 2 * self.params  # what is no weight: vocabulary, norms in float32, padding

    def machine(self):
        """Says what the figures belong to: our commit, the machine, the tool's version."""
        ours = json.loads(run("bash", f"{os.path.dirname(os.path.abspath(__file__))}/machine.sh", self.nstf)[0])
        return {**ours, "peer": re.search(r"version: (.*)", "".join(run(self.tool, "--version"))).group(1)}

    def measure(self, name, size, kl):
        out, bpw = f"{self.work}/{name}", f"{8 * (size - self.head) / self.params:.4f}"
        made = json.loads(run(self.nstf, "quantize", self.model, "--calib", self.calib, "--stats", self.stats, "--schemes", "ggml",
                              "--bpw", bpw, "-o", out + ".nstf", "--json")[0])
        run(self.nstf, "export", out + ".nstf", "-o", out + ".gguf")
        got = os.path.getsize(out + ".gguf")
        if got > size:
            sys.exit(f"{out}.gguf: {got} bytes, more than {size}")
        log = peer(self.tool, "Same top p", "-m", out + ".gguf", "-c", "512", "--kl-divergence-base", self.ref, "--kl-divergence")
        mean, se = map(float, re.search(r"Mean +KLD: +([0-9.]+) ± +([0-9.]+)", log).groups())
        top = float(re.search(r"Same top p: +([0-9.]+)", log).group(1))
        schemes = {}
        for t in made["tensors"]:
            schemes[t["to"]] = schemes.get(t["to"], 0) + t["bytes"]
        ledger = made["ledger"]["model"]
        return {"type": name, "bytes": got, "limit": size, "peer": kl, "kl": mean, "se": se, "top1": top, "bpw": made["bpw"],
                "predicted": ledger["predicted_kld"], "held": ledger["kld"]["mean"], "schemes": schemes}


def table(rows):
    print("| peer's type | its MB | its KL | our MB | our KL | ratio | goal | same top token % | predicted, held-out KL | of our bytes |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, size, kl in PEERS:
        if name not in rows:
            continue
        r = rows[name]
        ratio = r["kl"] / kl
        total = sum(r["schemes"].values())
        share = [f"{s} {100 * n / total:.0f} %" for s, n in sorted(r["schemes"].items(), key=lambda x: -x[1]) if n >= 0.01 * total]
        print(f"| {name} | {size / 1e6:.2f} | {kl:.4f} | {r['bytes'] / 1e6:.2f} | {r['kl']:.5f} ± {r['se']:.5f} | {ratio:.2f} "
              f"| {GOAL}{'' if ratio <= GOAL else ' missed'} | {r['top1']:.1f} | {r['predicted']:.4f}, {r['held']:.4f} | {', '.join(share)} |")


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    results, names = sys.argv[5], sys.argv[6:] or [name for name, _, _ in PEERS]
    unknown = set(names) - {name for name, _, _ in PEERS}
    if unknown:
        sys.exit(f"no type {', '.join(sorted(unknown))}")
    rows = {}
    if os.path.exists(results):
        with open(results) as f:
            rows = {r["type"]: r for r in map(json.loads, f) if "type" in r}
    todo = [p for p in PEERS if p[0] in names and p[0] not in rows]
    bench = Bench(*sys.argv[1:5]) if todo else None
    if bench and not os.path.exists(results):
        with open(results, "w") as f:
            f.write(json.dumps(bench.machine()) + "\n")
    for name, size, kl in todo:
        rows[name] = bench.measure(name, size, kl)
        with open(results, "a") as f:
            f.write(json.dumps(rows[name]) + "\n")
    table(rows)


if __name__ == "__main__":
    main()
