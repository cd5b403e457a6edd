#!/usr/bin/env python3
"""ggml's schemes alone, as GGUF, against llama-quantize at its files' sizes; see quality.md.

    quality_ggml.py NSTF LLAMA_PERPLEXITY SHARED WORK RESULTS.jsonl

NSTF plans and fits base-llama to no more than each size, calibrated on text/calib.jsonl, and exports it;
LLAMA_PERPLEXITY measures the file against the bf16 model on text/anchor_mix.txt. WORK keeps statistics and
files. RESULTS gets a JSON line for each.
"""
import json
import os
import re
import subprocess
import sys

# type, bytes of the file, mean KL divergence: llama-quantize with imatrix, the tool itself on the same text.
PEERS = [("Q3_K_M", 29_250_000, 0.0770), ("Q4_K_M", 34_890_000, 0.0234), ("Q5_K_M", 39_970_000, 0.0072), ("Q6_K", 45_360_000, 0.0031)]


def run(*args):
    done = subprocess.run(args, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(args)}: exit code {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return (done.stdout + done.stderr).decode(errors="replace")


def peer(tool, last, *args):
    """Runs the tool until its log holds the last line: a build of 2026 now and then ends before it is written."""
    for _ in range(5):
        log = run(tool, *args)
        if last in log:
            return log
    sys.exit(f"{tool} {' '.join(args)}: no {last!r}")


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    nstf, tool, shared, work, results = sys.argv[1:]
    model, calib, text = f"{shared}/models/base-llama", f"{shared}/text/calib.jsonl", f"{shared}/text/anchor_mix.txt"
    stats, source, ref = f"{work}/base-llama.nstats", f"{work}/base.gguf", f"{work}/base.kld"
    os.makedirs(work, exist_ok=True)
    if not os.path.exists(stats):
        run(nstf, "calibrate", model, "--calib", calib, "-o", stats)
    run(nstf, "export", model, "-o", source)
    peer(tool, "Final estimate", "-m", source, "-f", text, "-c", "512", "--kl-divergence-base", ref)
    info = json.loads(subprocess.check_output([nstf, "inspect", model, "--json"]))
    params = info["parameters"]
    head = os.path.getsize(source) - 2 * params  # what is no weight: vocabulary, norms in float32, padding
    for name, size, kl in PEERS:
        out = f"{work}/{name}"
        run(nstf, "quantize", model, "--calib", calib, "--stats", stats, "--schemes", "ggml", "--bpw", f"{8 * (size - head) / params:.4f}", "-o", out + ".nstf")
        run(nstf, "export", out + ".nstf", "-o", out + ".gguf")
        log = peer(tool, "Same top p", "-m", out + ".gguf", "-c", "512", "--kl-divergence-base", ref, "--kl-divergence")
        mean, se = re.search(r"Mean +KLD: +([0-9.]+) ± +([0-9.]+)", log).groups()
        top = re.search(r"Same top p: +([0-9.]+)", log).group(1)
        row = {"type": name, "bytes": os.path.getsize(out + ".gguf"), "limit": size, "peer": kl, "kl": float(mean), "se": float(se), "top1": float(top)}
        print(f"{name}: {row['bytes']} bytes, {row['kl']} over {kl} is {row['kl'] / kl:.2f}")
        with open(results, "a") as f:
            f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
