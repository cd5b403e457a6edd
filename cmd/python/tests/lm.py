"""lm-evaluation-harness on a package, by `nstf serve` and by the quantizer for transformers: lm.py MODEL.nstf FOLDER

Two small tasks of the demo's text: the last word of twelve passages among three, and what follows them.
"""

import json
import os
import pathlib
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import lm_eval
from lm_eval.tasks import TaskManager

import nstf
import nstf.torch

TEXT = pathlib.Path(__file__).resolve().parents[3] / "testdata" / "demo" / "text.txt"
TASK = {"dataset_path": "json", "test_split": "test", "doc_to_text": "{{start}}", "target_delimiter": "", "metadata": {"version": 1}}

package, folder = sys.argv[1], pathlib.Path(sys.argv[2])
folder.mkdir()
words = TEXT.read_text(encoding="utf-8").split()
with open(folder / "words.jsonl", "w", encoding="utf-8") as f:
    for i in range(12):
        *start, last = words[i * 40 : i * 40 + 40]
        f.write(json.dumps({"start": " ".join(start), "choices": [" " + w for w in (last, words[i * 97 + 13], words[i * 31 + 7])]}) + "\n")
task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(folder / "words.jsonl")}}}
choose = {**task, "task": "last_word", "output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": 0, "metric_list": [{"metric": "acc"}]}
go_on = {**task, "task": "goes_on", "output_type": "generate_until", "doc_to_target": "{{choices[0]}}", "metric_list": [{"metric": "exact_match"}]}
go_on["generation_kwargs"] = {"until": ["\n"], "max_gen_toks": 4}
for t in (choose, go_on):
    (folder / f"{t['task']}.yaml").write_text(json.dumps(t), encoding="utf-8")  # YAML holds JSON


def run(model: str, args: str, *tasks: str):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return lm_eval.simple_evaluate(model=model, model_args=args, tasks=list(tasks), task_manager=manager, device="cpu", bootstrap_iters=0)


def said(results):
    return [s["resps"][0][0] for s in sorted(results["samples"]["goes_on"], key=lambda s: s["doc_id"])]


def likelihoods(results):
    """Of each choice of each passage: the logarithm of its probability, and whether it is the most probable one."""
    return [r[0] for s in sorted(results["samples"]["last_word"], key=lambda s: s["doc_id"]) for r in s["resps"]]


nstf.torch.export(package, folder / "model")
by_torch = run("hf", f"pretrained={folder / 'model'},dtype=float32", "last_word", "goes_on")
accuracy = by_torch["results"]["last_word"]["acc,none"]
assert accuracy > 0.4, f"{accuracy} of last words, and a third by chance"
with nstf.serve(package, device="cpu", exact=True) as server:
    # With text for tokens the harness would write BOS out, and count it where the server has put one more.
    args = f"base_url={server.url}/v1/completions,model=m,tokenizer={folder / 'model'},add_bos_token=True,num_concurrent=1"
    by_server = run("local-completions", args, "last_word", "goes_on")
off = max(abs(a - b) for (a, _), (b, _) in zip(likelihoods(by_server), likelihoods(by_torch), strict=True))
assert off < 1e-3, f"logarithms of probabilities are {off} off torch's"
assert [g for _, g in likelihoods(by_server)] == [g for _, g in likelihoods(by_torch)]
assert by_server["results"]["last_word"]["acc,none"] == accuracy
assert said(by_server) == said(by_torch), f"{said(by_server)}, and by torch {said(by_torch)}"
print(f"lm-evaluation-harness {lm_eval.__version__}: {accuracy:.2f} of last words by torch and by the server, whose logarithms of probabilities are {off:.1e} apart; what goes on is equal")
