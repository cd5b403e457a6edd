#!/usr/bin/env python3
"""Greedy texts and kept prompts of small trained models of new architectures; see quality.md.

    text_tiny.py NSTF SHARED RESULTS.jsonl MODEL[=PACKAGE]...

MODEL is a Hugging Face folder as train_tiny.py makes, PACKAGE a quantized one of it. Eight prompts, half from
SHARED/text/eval_book.jsonl, half from eval_docs.jsonl, are continued by 48 tokens: by transformers in float32, and by
nstf with --exact and without. Then nstf serve holds four conversations of three messages, whose first answers a
second server has never computed: its answers to the whole, which it reads from the start, must be those of the
first, which goes on from states that it kept. A line for each model; differences are counted, not hidden.
"""
import json
import os
import re
import subprocess
import sys
import urllib.request

TOKENS = 48


def prompts(shared):
    out = []
    for name in ("eval_book", "eval_docs"):
        with open(f"{shared}/text/{name}.jsonl") as f:
            text = "\n".join(json.loads(line)["text"] for line in f)
        out += [text[i:i + 300] for i in range(1000, 1000 + 4 * 20000, 20000)]
    return out


def reference(folder, texts):
    import torch
    import transformers
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            got = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        out.append(tokenizer.decode(got[0, ids.shape[1]:], skip_special_tokens=True))
    return out


def written(nstf, model, texts, *flags):
    out = []
    for text in texts:
        done = subprocess.run([nstf, "run", model, "-", "--greedy", "--max-tokens", str(TOKENS), "--device", "cpu", *flags], input=text.encode(), capture_output=True)
        if done.returncode:
            sys.exit(f"{model}: {done.stderr.decode()}")
        out.append(done.stdout.decode().removesuffix("\n"))
    return out


class Server:
    def __init__(self, nstf, model):
        self.process = subprocess.Popen([nstf, "serve", model, "--listen", "127.0.0.1:0", "--ctx", "1024", "--device", "cpu"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if found := re.search(r"127\.0\.0\.1:\d+", line):
                self.address = found.group()
                return
        sys.exit(f"{model}: the server ended")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stdout.close()
        self.process.wait()

    def answer(self, messages):
        data = json.dumps({"messages": messages, "temperature": 0, "max_tokens": TOKENS}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://{self.address}/v1/chat/completions", data, {"Content-Type": "application/json"})) as r:
            got = json.load(r)
        kept = (got["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return got["choices"][0]["message"]["content"], kept


def conversations(nstf, model, texts):
    """Counts second answers, those that equal the fresh server's, and prompt tokens that were kept."""
    same, kept, turns = 0, 0, []
    with Server(nstf, model) as first:
        for i in range(4):
            turn = [{"role": "user", "content": texts[2 * i]}]
            turn += [{"role": "assistant", "content": first.answer(turn)[0]}, {"role": "user", "content": texts[2 * i + 1]}]
            turns.append((turn, *first.answer(turn)))
    for turn, text, n in turns:
        with Server(nstf, model) as second:
            fresh, none = second.answer(turn)
        assert none == 0, "a fresh server has kept something"
        same, kept = same + (fresh == text), kept + n
    return {"second_answers": len(turns), "equal_to_fresh": same, "kept_prompt_tokens": kept}


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    nstf, shared, results = sys.argv[1:4]
    texts = prompts(shared)
    machine = json.loads(subprocess.run(["bash", f"{os.path.dirname(os.path.abspath(__file__))}/machine.sh", nstf], capture_output=True, check=True).stdout)
    with open(results, "a") as f:
        f.write(json.dumps(machine) + "\n")
        for word in sys.argv[4:]:
            model, _, package = word.partition("=")
            equal = lambda a, b: sum(x == y for x, y in zip(a, b))
            hf, exact, usual = reference(model, texts), written(nstf, model, texts, "--exact"), written(nstf, model, texts)
            row = {"model": os.path.basename(model), "texts": len(texts), "exact_equals_transformers": equal(exact, hf), "usual_equals_exact": equal(usual, exact),
                   **conversations(nstf, model, texts)}
            if package:
                row["package"] = {"usual_equals_exact": equal(written(nstf, package, texts), written(nstf, package, texts, "--exact")), **conversations(nstf, package, texts)}
            row["first"] = {"prompt": texts[0], "transformers": hf[0], "exact": exact[0], "usual": usual[0]}
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
            f.flush()
            print({k: v for k, v in row.items() if k != "first"})


if __name__ == "__main__":
    main()
