#!/usr/bin/env python3
"""Size against accuracy of small trained models of new architectures, beside llama-quantize; see quality.md.

    quality_tiny.py NSTF LLAMA_BIN SHARED WORK RESULTS.jsonl MODEL...

NSTF is the program, LLAMA_BIN the folder of llama-perplexity, llama-imatrix and llama-quantize, SHARED the folder with
text/, MODEL a Hugging Face folder in bf16, as train_tiny.py makes. WORK keeps what is made. For each model
llama-quantize makes every type of TYPES, with the importance of text/calib.jsonl's first 60 windows of 512 tokens;
for 2.5, 3, 4 and 5 bits per weight the file nearest in size is taken, and nstf makes a package that is no larger,
calibrated on text/calib.jsonl (where the smallest is more than a tenth larger, one of those bits). Both are measured
against the bf16 model, each by its own tool, on text/anchor_mix.txt, which nothing was fitted on, in llama.cpp's protocol.
Modules of multi-token prediction are left out first: neither runs them, and no importance is known of them.
RESULTS gets a JSON line for each file, lines that are there already are kept.
"""
import json
import os
import re
import shutil
import sys

from quality_ggml import peer, run

TYPES = ["IQ2_XXS", "IQ2_S", "IQ3_XXS", "IQ3_S", "Q3_K_M", "IQ4_XS", "Q4_K_M", "Q5_K_M"]
RATES = [2.5, 3, 4, 5]
FLAGS = ["--effort", "1", "--parallel", "--samples", "16"]  # what takes least time; statistics are of all windows
GOAL = 0.5


def without_module(source, to):
    """Copies a folder without its module of multi-token prediction."""
    import torch  # noqa: F401, which safetensors needs for bf16
    from safetensors.torch import load_file, save_file
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for name in os.listdir(source):
        if name.endswith((".json", ".jinja")):
            shutil.copy(f"{source}/{name}", to)
    with open(f"{source}/config.json") as f:
        config = json.load(f)
    if config.pop("mtp_num_hidden_layers", 0):
        config["mtp_num_hidden_layers"] = 0
    with open(f"{to}/config.json", "w") as f:
        json.dump(config, f)
    weights = {k: v for k, v in load_file(f"{source}/model.safetensors").items() if not k.startswith("mtp.")}
    save_file(weights, f"{to}/model.safetensors", metadata={"format": "pt"})


class Model:
    def __init__(self, nstf, tools, shared, work, source):
        self.nstf, self.tools, self.name = nstf, tools, os.path.basename(os.path.normpath(source))
        self.work, self.text, self.calib = f"{work}/{self.name}", f"{shared}/text/anchor_mix.txt", f"{shared}/text/calib.jsonl"
        self.model, self.gguf = f"{self.work}/bf16", f"{self.work}/bf16.gguf"
        os.makedirs(self.work, exist_ok=True)
        if not os.path.exists(self.gguf):
            without_module(source, self.model)
            run(nstf, "export", self.model, "-o", self.gguf)
        self.params = json.loads(run(nstf, "inspect", self.model, "--json")[0])["parameters"]

    def tool(self, name, last, *args):
        return peer(f"{self.tools}/llama-{name}", last, *args)

    def once(self, name, make):
        path = f"{self.work}/{name}"
        if not os.path.exists(path):
            make(path)
        return path

    def theirs(self, kind):
        """A file of llama-quantize, measured by llama-perplexity."""
        words = self.once("calib.txt", self.words)
        importance = self.once("imatrix.gguf", lambda p: self.tool("imatrix", "Final estimate", "-m", self.gguf, "-f", words, "-c", "512", "--chunks", "60", "-t", "1", "-o", p))
        base = self.once("base.kld", lambda p: self.tool("perplexity", "Final estimate", "-m", self.gguf, "-f", self.text, "-c", "512", "-t", "1", "--kl-divergence-base", p))
        out = self.once(f"{kind}.gguf", lambda p: run(f"{self.tools}/llama-quantize", "--imatrix", importance, self.gguf, p, kind, "1"))
        log = self.tool("perplexity", "Same top p:", "-m", out, "-c", "512", "-t", "1", "--kl-divergence-base", base, "--kl-divergence")
        mean, se = map(float, re.search(r"Mean +KLD: +([0-9.]+) ± +([0-9.]+)", log).groups())
        return {"bytes": os.path.getsize(out), "kl": mean, "se": se, "top1": float(re.search(r"Same top p: +([0-9.]+)", log).group(1)) / 100}

    def words(self, path):
        with open(self.calib) as f, open(path, "w") as out:
            out.write("\n".join(json.loads(line)["text"] for line in f)[:200_000])

    def ours(self, rate, peers):
        """A package of the size of the peers' file nearest to a rate, measured by nstf eval."""
        want = os.path.getsize(self.gguf) - (2 - rate / 8) * self.params
        beside, size = min(peers.items(), key=lambda p: abs(p[1] - want))
        budget = ["--size", str(size)] if size <= 1.1 * want else ["--bpw", str(rate)]
        stats = self.once("stats.nstats", lambda p: run(self.nstf, "calibrate", self.model, "--calib", self.calib, "-o", p))
        ref = self.once("anchor.ref", lambda p: run(self.nstf, "eval", self.model, "--text", self.text, "--protocol", "llama.cpp", "--save-ref", p))
        out = f"{self.work}/{rate}.nstf"
        made = json.loads(run(self.nstf, "quantize", self.model, "--calib", self.calib, "--stats", stats, *budget, *FLAGS, "-o", out, "--force", "--discard", "--json")[0])
        got = json.loads(run(self.nstf, "eval", out, "--text", self.text, "--protocol", "llama.cpp", "--ref", ref, "--json")[0])
        return {"beside": beside, "bytes": os.path.getsize(out), "kl": got["ref"]["kl_mean"]["value"], "se": got["ref"]["kl_mean"]["std_err"],
                "top1": got["ref"]["top1_agreement"]["value"], "perplexity": got["perplexity"]["value"], "bpw": made["bpw"],
                "predicted": made["ledger"]["model"]["predicted_kld"]}


def table(rows):
    print("| model | bits per weight | our MB | our KL | peer's type | its MB | its KL | ratio | goal | top token %, ours and its | predicted KL |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for model in dict.fromkeys(m for m, _ in rows):
        for rate in RATES:
            r = rows.get((model, rate))
            if r is None:
                continue
            kind, other = r["beside"], rows[model, r["beside"]]
            ratio = r["kl"] / other["kl"]
            print(f"| {model} | {r['bpw']:.2f} | {r['bytes'] / 1e6:.2f} | {r['kl']:.4f} ± {r['se']:.4f} | {kind} | {other['bytes'] / 1e6:.2f} | {other['kl']:.4f} ± {other['se']:.4f} "
                  f"| {ratio:.2f} | {GOAL}{'' if ratio <= GOAL else ' missed'} | {100 * r['top1']:.1f}, {100 * other['top1']:.1f} | {r['predicted']:.4f} |")


def main():
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    nstf, tools, shared, work, results = sys.argv[1:6]
    rows = {}
    if os.path.exists(results):
        with open(results) as f:
            rows = {(r["model"], r["made"]): r for r in map(json.loads, f) if "model" in r}
    else:
        ours = json.loads(run("bash", f"{os.path.dirname(os.path.abspath(__file__))}/machine.sh", nstf)[0])
        version = re.search(r"version: (.*)", "".join(run(f"{tools}/llama-perplexity", "--version"))).group(1)
        with open(results, "w") as f:
            f.write(json.dumps({**ours, "peer": version}) + "\n")
    for source in sys.argv[6:]:
        model = Model(nstf, tools, shared, work, source)
        for made in TYPES + RATES:
            if (model.name, made) in rows:
                continue
            peers = {k: r["bytes"] for (m, k), r in rows.items() if m == model.name and k in TYPES}
            row = {"model": model.name, "made": made, **(model.theirs(made) if made in TYPES else model.ours(made, peers))}
            rows[model.name, made] = row
            with open(results, "a") as f:
                f.write(json.dumps(row) + "\n")
    table(rows)


if __name__ == "__main__":
    main()
