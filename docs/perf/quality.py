#!/usr/bin/env python3
"""Size against accuracy: packages of one model at the sizes of other tools' files; see quality.md.

    quality.py NSTF SHARED WORK RESULTS.jsonl [MB...]

NSTF is the program, SHARED the folder with models/base-llama and text/. WORK keeps the statistics and the
packages. For each size (all of the table's by default) a package no larger is made, calibrated on
text/calib.jsonl, and measured against the bf16 model on text/anchor_mix.txt, which nothing was fitted on.
RESULTS gets a JSON line for each, lines that are there already are kept; the table and the plot (an SVG
beside RESULTS) are made of all of them. A package serves all files of others that are no smaller. FLAGS, such as
"effort=1 parallel", are given to quantize too and stand in the line.
"""
import json
import math
import os
import subprocess
import sys

# type, tool, megabytes of the file, mean KL divergence: the peers' own tools on the same text and reference.
PEERS = [
    ("IQ2_XXS", "llama.cpp", 19.05, 0.6871), ("IQ2_KT", "ik_llama.cpp", 19.83, 0.4430), ("IQ2_K", "ik_llama.cpp", 20.94, 0.3887),
    ("IQ2_S", "llama.cpp", 21.69, 0.3597), ("Q2_K", "llama.cpp", 24.09, 0.3038), ("IQ3_XXS", "llama.cpp", 24.31, 0.1857),
    ("IQ3_KT", "ik_llama.cpp", 25.05, 0.1279), ("IQ3_K", "ik_llama.cpp", 26.44, 0.0938), ("IQ3_S", "llama.cpp", 27.34, 0.1028),
    ("Q3_K_M", "llama.cpp", 29.25, 0.0770), ("IQ4_KT", "ik_llama.cpp", 30.98, 0.0413), ("IQ4_XS", "llama.cpp", 32.03, 0.0329),
    ("IQ4_KS", "ik_llama.cpp", 32.57, 0.0271), ("Q4_0", "llama.cpp", 33.52, 0.0364), ("IQ4_K", "ik_llama.cpp", 33.67, 0.0211),
    ("Q4_K_M", "llama.cpp", 34.89, 0.0234), ("IQ5_K", "ik_llama.cpp", 39.24, 0.0070), ("Q5_K_M", "llama.cpp", 39.97, 0.0072),
    ("Q6_K", "llama.cpp", 45.36, 0.0031),
]
GOAL = {"llama.cpp": 0.5, "ik_llama.cpp": 0.7}  # of the peer's divergence at its size


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(args)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def measure(nstf, shared, work, mb):
    model, calib, text = f"{shared}/models/base-llama", f"{shared}/text/calib.jsonl", f"{shared}/text/anchor_mix.txt"
    stats, ref, out = f"{work}/base-llama.nstats", f"{work}/anchor.ref", f"{work}/base-llama-{mb:.2f}.nstf"
    if not os.path.exists(stats):
        run(nstf, "calibrate", model, "--calib", calib, "-o", stats)
    if not os.path.exists(ref):
        run(nstf, "eval", model, "--text", text, "--protocol", "llama.cpp", "--save-ref", ref)
    given = {k: v or True for k, _, v in (f.partition("=") for f in os.environ.get("FLAGS", "").split())}
    more = [x for k, v in given.items() for x in (f"--{k}", v) if x is not True]
    made = json.loads(run(nstf, "quantize", model, "--calib", calib, "--stats", stats, "--size", str(int(mb * 1e6)), "-o", out, "--resume", "--json", *more))
    got = json.loads(run(nstf, "eval", out, "--text", text, "--protocol", "llama.cpp", "--ref", ref, "--json"))
    ledger = made["ledger"]["model"]
    return {"mb": mb, **given, "bytes": os.path.getsize(out), "bpw": made["bpw"], "predicted": ledger["predicted_kld"], "held": ledger["kld"]["mean"],
            "kl": got["ref"]["kl_mean"]["value"], "se": got["ref"]["kl_mean"]["std_err"], "top1": got["ref"]["top1_agreement"]["value"],
            "perplexity": got["perplexity"]["value"]}


def flags(row):
    """Says what a package was made with beside its size: `--effort 1`, ..."""
    return " ".join(f"`--{k} {row[k]}`" if row[k] is not True else f"`--{k}`" for k in ("schemes", "effort", "parallel") if k in row) or "defaults"


def table(rows):
    """Prints each peer's row beside the largest package that is no larger than its file."""
    print("| peer's type | tool | its MB | its KL | our MB | our KL | ratio | goal | top token % | perplexity |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, tool, mb, kl in PEERS:
        fitting = [r for r in rows.values() if r["bytes"] <= mb * 1e6]
        if not fitting:
            continue
        r = max(fitting, key=lambda r: r["bytes"])
        ratio = r["kl"] / kl
        if ratio > GOAL[tool] and r["bytes"] < 0.95 * mb * 1e6:
            continue  # a larger one was not made yet
        mark = "" if ratio <= GOAL[tool] else " missed"
        print(f"| {name} | {tool} | {mb:.2f} | {kl:.4f} | {r['bytes'] / 1e6:.2f} | {r['kl']:.4f} ± {r['se']:.4f} | {ratio:.2f} | {GOAL[tool]}{mark} "
              f"| {100 * r['top1']:.1f} | {r['perplexity']:.2f} |")
    print("\n| MB | made with | bits per weight | predicted KL | on held-out text | on the table's text |\n|---|---|---|---|---|---|")
    for r in sorted(rows.values(), key=lambda r: r["bytes"]):
        print(f"| {r['bytes'] / 1e6:.2f} | {flags(r)} | {r['bpw']:.2f} | {r['predicted']:.4f} | {r['held']:.4f}, {r['held'] / r['predicted']:.2f} of it "
              f"| {r['kl']:.4f}, {r['kl'] / r['predicted']:.2f} of it |")


def plot(path, rows):
    """Draws size against divergence, the latter on a logarithmic scale."""
    w, h, left, bottom = 720, 420, 60, 40
    x = lambda mb: left + (mb - 18) / 29 * (w - left - 20)
    y = lambda kl: 20 + (math.log10(1) - math.log10(kl)) / 3 * (h - bottom - 20)
    series = [("nstf", "#c22", [(r["bytes"] / 1e6, r["kl"]) for r in rows.values()])]
    for tool, color in (("llama.cpp", "#26c"), ("ik_llama.cpp", "#282")):
        series.append((tool, color, [(mb, kl) for _, t, mb, kl in PEERS if t == tool]))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" font-family="sans-serif" font-size="12">',
           f'<rect width="{w}" height="{h}" fill="white"/>']
    for mb in range(20, 48, 5):
        out.append(f'<text x="{x(mb):.0f}" y="{h - 20}" text-anchor="middle">{mb} MB</text><path d="M{x(mb):.0f} 20V{h - bottom}" stroke="#ddd"/>')
    for e in range(4):
        kl = 10.0 ** -e
        out.append(f'<text x="{left - 6}" y="{y(kl) + 4:.0f}" text-anchor="end">{kl:g}</text><path d="M{left} {y(kl):.0f}H{w - 20}" stroke="#ddd"/>')
    for i, (name, color, points) in enumerate(series):
        points = sorted(points)
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}"/><text x="{w - 140}" y="{40 + 16 * i}" fill="{color}">{name}</text>')
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{color}"/>' for a, b in points]
    out.append("</svg>\n")
    with open(path, "w") as f:
        f.write("\n".join(out))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    nstf, shared, work, results = sys.argv[1:5]
    sizes = [float(a) for a in sys.argv[5:]] or [mb for _, _, mb, _ in PEERS]
    os.makedirs(work, exist_ok=True)
    rows = {}
    if os.path.exists(results):
        with open(results) as f:
            rows = {r["mb"]: r for r in map(json.loads, f)}
    for mb in sizes:
        if mb not in rows:
            rows[mb] = measure(nstf, shared, work, mb)
            with open(results, "a") as f:
                f.write(json.dumps(rows[mb]) + "\n")
    table(rows)
    plot(os.path.splitext(results)[0] + ".svg", rows)


if __name__ == "__main__":
    main()
