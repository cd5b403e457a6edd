"""Text by transformers from a package's codes: generate.py MODEL.nstf PROMPT"""

import os
import sys
import tempfile

import torch
import transformers

import nstf
import nstf.torch

model = nstf.torch.load(sys.argv[1], dtype=torch.float32)
with tempfile.TemporaryDirectory() as folder:  # the tokenizer travels in the package
    nstf.torch.export(sys.argv[1], os.path.join(folder, "model"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.join(folder, "model"))
ids = tokenizer(sys.argv[2], return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids, max_new_tokens=40, do_sample=False)[0]))
