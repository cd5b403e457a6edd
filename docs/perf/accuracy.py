#!/usr/bin/env python3
"""Compares nstf's commands with what transformers computed in float32; see accuracy.md.

    accuracy.py NSTF SHARED RESULTS.jsonl [MODEL...]

NSTF is the program, SHARED the folder with models/ and text/. Every model is taken through four
doors: its Hugging Face directory, the package made of it, our own GGUF export of the package, and
the GGUF that a llama.cpp converter made where SHARED has one. All four compute in float32 (--exact);
the package is measured once more as nstf computes by itself. RESULTS gets a JSON line for each; a table
goes to standard output. Exit code 1: a check failed. Needs numpy.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

EXACT = 2e-4       # largest difference of logits, as a share of the reference's range
REDUCED = 2e-3     # the same without --exact
MARGIN = 1e-2      # a greedy step whose two best logits are closer may fall either way
PERPLEXITY = 1e-3  # relative
TOKENS = 60000


class Nstf:
    def __init__(self, program):
        self.program = program

    def __call__(self, *args, stdin=None, code=0):
        done = subprocess.run([self.program, *args], input=stdin, capture_output=True)
        if done.returncode != code:
            sys.exit(f"nstf {' '.join(args)}: exit code {done.returncode}, not {code}\n{done.stderr.decode()}")
        return done.stdout


def read_json(path):
    with open(path) as f:
        return json.load(f)


def logits(nstf, model, mode, reference, tmp):
    """Returns the largest difference as a share of the range, over all reference arrays."""
    worst = 0.0
    for ids, npy in [("logits_ids.json", "logits_f32.npy"), ("long_ids.json", "long_logits_f32.npy")]:
        if not os.path.exists(f"{reference}/{ids}"):
            continue
        out = f"{tmp}/logits.npy"
        nstf("eval", model, "--token-ids", f"{reference}/{ids}", "--dump-logits", out, mode)
        want, got = np.load(f"{reference}/{npy}"), np.load(out)
        if ids == "long_ids.json":
            got = got[200:300]
        assert got.shape == want.shape and got.dtype == np.float32, (got.shape, got.dtype)
        worst = max(worst, float(np.abs(got - want).max() / (want.max() - want.min())))
    return worst


def greedy(nstf, model, mode, reference, eos):
    """Returns how many steps were held to the reference, and how many prompts differed."""
    steps = wrong = 0
    for case in read_json(f"{reference}/greedy.json"):
        sure = next((i for i, m in enumerate(case["margins"]) if m < MARGIN), len(case["margins"]))
        if eos in case["greedy_ids"]:
            sure = min(sure, case["greedy_ids"].index(eos))
        ids = case["greedy_ids"][:sure]
        want = nstf("tokenize", model, "--decode", stdin=json.dumps(ids).encode()).rstrip("\ufffd".encode())
        got = nstf("run", model, mode, "--greedy", "--max-tokens", str(len(case["greedy_ids"])), "-p", case["prompt"])
        steps += sure
        wrong += not got.startswith(want)
    return steps, wrong


def tokens(nstf, model, reference):
    """Returns how many texts were compared, and how many differed in ids or in decoding."""
    cases, wrong = read_json(f"{reference}/tokenizer.json"), 0
    for case in cases:
        text = case["text"].encode()
        ids = json.loads(nstf("tokenize", model, "--ids", stdin=text))
        plain = json.loads(nstf("tokenize", model, "--ids", "--no-special", stdin=text))
        back = nstf("tokenize", model, "--decode", stdin=json.dumps(case["ids_no_special"]).encode())
        wrong += ids != case["ids"] or plain != case["ids_no_special"] or back != case["decoded"].encode()
    return len(cases), wrong


def perplexity(nstf, model, mode, reference, shared):
    """Returns per text the relative difference to the reference's perplexity."""
    out = {}
    for name, want in read_json(f"{reference}/perplexity.json").items():
        got = json.loads(nstf("eval", model, "--text", f"{shared}/text/eval_{name}.jsonl", "--ctx", str(want["ctx"]),
                              "--max-tokens", str(TOKENS), "--json", mode))
        assert got["scored"] == want["tokens"], (got["scored"], want["tokens"])
        out[name] = got["perplexity"]["value"] / want["ppl"] - 1
    return out


def doors(nstf, shared, name, tmp):
    """Yields (how, path, mode) for every way into a model."""
    exact, reduced = "--exact", "--exact=false"
    source = f"{shared}/models/{name}"
    package, gguf = f"{tmp}/{name}.nstf", f"{tmp}/{name}.gguf"
    yield "safetensors", source, exact
    nstf("convert", source, "-o", package)
    nstf("verify", package)
    yield "nstf", package, exact
    yield "nstf, without --exact", package, reduced
    if read_json(f"{source}/config.json")["model_type"] == "gptj":  # llama.cpp does not run it
        nstf("export", package, "-o", gguf, code=4)
    else:
        nstf("export", package, "-o", gguf)
        yield "GGUF, own export", gguf, exact
    if os.path.exists(f"{source}-bf16.gguf"):
        yield "GGUF, llama.cpp's", f"{source}-bf16.gguf", exact


def main():
    nstf, shared, results = Nstf(sys.argv[1]), sys.argv[2], sys.argv[3]
    names = sys.argv[4:] or sorted(n for n in os.listdir(f"{shared}/models") if os.path.isdir(f"{shared}/models/{n}"))
    failed = False
    print("| model | through | logits, share of the range | greedy steps held | texts tokenized | perplexity book | docs |")
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    with open(results, "w") as log, tempfile.TemporaryDirectory() as tmp:
        log.write(subprocess.check_output([f"{os.path.dirname(os.path.abspath(__file__))}/machine.sh", sys.argv[1]], text=True))
        for name in names:
            reference = f"{shared}/models/{name}/reference"
            eos = read_json(f"{shared}/models/{name}/config.json").get("eos_token_id")
            for how, path, mode in doors(nstf, shared, name, tmp):
                row = {"model": name, "through": how, "logits": logits(nstf, path, mode, reference, tmp)}
                row["greedy_steps"], row["greedy_wrong"] = greedy(nstf, path, mode, reference, eos)
                row["texts"], row["texts_wrong"] = tokens(nstf, path, reference)
                row["perplexity"] = perplexity(nstf, path, mode, reference, shared)
                exact = mode == "--exact"  # else rounding may turn a step that is not sure
                row["ok"] = bool(row["logits"] <= (EXACT if exact else REDUCED) and not row["texts_wrong"]
                                 and not (exact and row["greedy_wrong"])
                                 and all(abs(d) <= PERPLEXITY for d in row["perplexity"].values()))
                failed |= not row["ok"]
                log.write(json.dumps(row) + "\n")
                log.flush()
                off = ["%+.1e" % row["perplexity"][t] for t in ("book", "docs")]
                wrong = [f", {row[k]} wrong" if row[k] else "" for k in ("greedy_wrong", "texts_wrong")]
                print(f"| {name} | {how} | {row['logits']:.1e} | {row['greedy_steps']}{wrong[0]} "
                      f"| {row['texts']}{wrong[1]} | {off[0]} | {off[1]} |", flush=True)
    return failed


sys.exit(main())
