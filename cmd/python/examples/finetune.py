"""Trains on a text what stays beside codes: finetune.py MODEL.nstf TEXT (adapters | scales OUT.nstf) [STEPS]

Adapters are low-rank and stay in this process; scales and norms go back into a package. Every other window of the
text is held out, and the losses there, before and after, are printed.
"""

import os
import sys
import tempfile

import torch
import transformers

import nstf.torch

source, text, what, *rest = sys.argv[1:]
out = rest.pop(0) if what == "scales" else None
steps, length, batch = int(rest[0]) if rest else 30, 128, 8
torch.manual_seed(0)
model = nstf.torch.load(source, dtype=torch.float32)
with tempfile.TemporaryDirectory() as folder:
    nstf.torch.export(source, os.path.join(folder, "model"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.join(folder, "model"))
with open(text, encoding="utf-8") as f:
    ids = tokenizer(f.read(200_000), return_tensors="pt").input_ids[0]
windows = ids[: len(ids) // length * length].view(-1, length)
train, held = windows[::2], windows[1::2][:32]


def loss() -> float:
    with torch.no_grad():
        return float(torch.stack([model(w[None], labels=w[None]).loss for w in held]).mean())


if what == "adapters":
    groups = [{"params": nstf.torch.adapt(model, 8, ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")), "lr": 2e-3}]
else:
    parameters = nstf.torch.scales(model) + [p for name, p in model.named_parameters() if "norm" in name]
    groups = [{"params": [p.requires_grad_(True)], "lr": 2e-3 * float(p.detach().abs().mean())} for p in parameters]
before = loss()
optimizer = torch.optim.Adam(groups)
for step in range(steps):
    w = train[torch.randint(len(train), (batch,))]
    optimizer.zero_grad()
    model(w, labels=w).loss.backward()
    optimizer.step()
print(f"loss on held-out text: {before:.4f}, after {steps} steps {loss():.4f}")
if out:
    nstf.torch.save(model, out)
