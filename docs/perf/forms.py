#!/usr/bin/env python3
"""Divergence of packages with forms and without at equal bits per weight; see decomposition.md.

    forms.py NSTF SHARED WORK RESULTS.jsonl [--models base-llama,tiny-mixtral] [--bpw 2.05,2.5,3] [--kinds codes,forms]

NSTF is the program, SHARED the folder with models/ and text/. WORK keeps statistics, references and packages.
Each package is calibrated on text/calib.jsonl and measured against the bf16 model on text/anchor_mix.txt in
llama.cpp's protocol; nothing was fitted on that text. RESULTS gets a JSON line for each, lines that are there
already are kept; the tables are made of all of them.
"""
import argparse
import collections
import json
import os
import subprocess
import sys


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(args)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def measure(a, model, bpw, kind):
    src, calib, text = f"{a.shared}/models/{model}", f"{a.shared}/text/calib.jsonl", f"{a.shared}/text/anchor_mix.txt"
    stats, ref, out = f"{a.work}/{model}.nstats", f"{a.work}/{model}.ref", f"{a.work}/{model}-{bpw}-{kind}.nstf"
    if not os.path.exists(stats):
        run(a.nstf, "calibrate", src, "--calib", calib, "-o", stats)
    if not os.path.exists(ref):
        run(a.nstf, "eval", src, "--text", text, "--protocol", "llama.cpp", "--save-ref", ref)
    extra = ["--forms"] if kind == "forms" else []
    made = json.loads(run(a.nstf, "quantize", src, "--calib", calib, "--stats", stats, "--bpw", str(bpw), "-o", out, "--resume", "--json", *extra))
    got = json.loads(run(a.nstf, "eval", out, "--text", text, "--protocol", "llama.cpp", "--ref", ref, "--json"))
    ledger = made["ledger"]["model"]
    recipes = collections.Counter(t["recipe"] for t in made["ledger"]["tensors"] if t["recipe"] != "keep")
    chosen = [{k: t[k] for k in ("name", "recipe", "bits", "predicted_error", "obtained_error", "loss")}
              for t in made["ledger"]["tensors"] if ":" in t["recipe"]]
    return {"model": model, "bpw": bpw, "kind": kind, "bytes": os.path.getsize(out), "got_bpw": made["bpw"], "predicted": ledger["predicted_kld"],
            "held": ledger["kld"]["mean"], "kl": got["ref"]["kl_mean"]["value"], "se": got["ref"]["kl_mean"]["std_err"],
            "perplexity": got["perplexity"]["value"], "recipes": dict(recipes), "chosen": chosen}


def table(rows):
    print("| model | bits | codes: KL | forms: KL | ratio | predicted, held out: codes | forms | tensors with forms |")
    print("|---|---:|---:|---:|---:|---|---|---|")
    for model, bpw in sorted({(m, b) for m, b, _ in rows}):
        c, f = rows.get((model, bpw, "codes")), rows.get((model, bpw, "forms"))
        if not c or not f:
            continue
        forms = {r: n for r, n in f["recipes"].items() if ":" in r}
        print(f"| {model} | {bpw} | {c['kl']:.4f} ± {c['se']:.4f} | {f['kl']:.4f} ± {f['se']:.4f} | {f['kl'] / c['kl']:.3f} "
              f"| {c['predicted']:.4f}, {c['held']:.4f} | {f['predicted']:.4f}, {f['held']:.4f} | {sum(forms.values())} of {sum(f['recipes'].values())} |")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for name in ("nstf", "shared", "work", "results"):
        p.add_argument(name)
    p.add_argument("--models", default="base-llama,tiny-mixtral")
    p.add_argument("--bpw", default="2.05,2.5,3")
    p.add_argument("--kinds", default="codes,forms")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    rows = {}
    if os.path.exists(a.results):
        with open(a.results) as f:
            rows = {(r["model"], r["bpw"], r["kind"]): r for r in map(json.loads, f)}
    for kind in a.kinds.split(","):
        for model in a.models.split(","):
            for bpw in map(float, a.bpw.split(",")):
                key = (model, bpw, kind)
                if key not in rows:
                    rows[key] = measure(a, model, bpw, kind)
                    with open(a.results, "a") as f:
                        f.write(json.dumps(rows[key]) + "\n")
    table(rows)


if __name__ == "__main__":
    main()
