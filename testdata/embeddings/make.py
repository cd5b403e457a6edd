"""Writes reference.json: hidden states of micro checkpoints behind the last norm, by
transformers 5.23.0 in float32, pooled and normalised.

    python testdata/embeddings/make.py
"""

import json
import os

import torch
from transformers import AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(0)
out = []
for name in ["llama-2", "qwen3", "gemma2", "gpt2", "mixtral"]:
    path = os.path.join(here, "..", "micro", name)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    for n in [1, 7, 40]:
        ids = [(5 + 7 * i * i) % (model.config.vocab_size - 3) for i in range(n)]
        with torch.no_grad():
            h = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0].double()
        pooled = {"mean": h.mean(0), "last": h[-1], "first": h[0]}
        out.append({"model": name, "ids": ids, **{k: [round(x, 7) for x in torch.nn.functional.normalize(v, dim=0).tolist()] for k, v in pooled.items()}})
with open(os.path.join(here, "reference.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")
