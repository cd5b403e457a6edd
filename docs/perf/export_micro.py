#!/usr/bin/env python3
"""Runs in llama.cpp what nstf exports of the micro checkpoints, and compares logits with transformers'.

    docs/perf/export_micro.py NSTF testdata/micro > results.jsonl

NSTF is the program. Each checkpoint is exported with its weights widened to float32, for llama.cpp rounds what it
multiplies with others to their type. One line for each: the largest difference of a logit, as a share of the
logits' range, or what nstf refuses.

Needs what export_configs.py needs, and torch and safetensors.
"""
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp.llama_cpp as L
import numpy as np
from safetensors.torch import load_file, save_file

from export_configs import logits, quiet


def main() -> None:
    nstf, micro = sys.argv[1], Path(sys.argv[2])
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    for dir in sorted(d.parent for d in micro.glob("*/logits.npy")):
        if dir.name.startswith("quant-"):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            wide, out = Path(tmp, dir.name), Path(tmp, "x.gguf")
            shutil.copytree(dir, wide)
            for f in wide.glob("*.safetensors"):
                save_file({k: v.float().contiguous() if v.is_floating_point() else v for k, v in load_file(f).items()}, f, {"format": "pt"})
            run = subprocess.run([nstf, "export", str(wide), "-o", str(out)], capture_output=True, text=True)
            if run.returncode == 4:
                print(json.dumps({"micro": dir.name, "refused": run.stderr.split("unsupported: ")[-1].split("\n")[0]}), flush=True)
                continue
            run.check_returncode()
            want = np.load(dir / "logits.npy")
            ids = json.loads((dir / "reference.json").read_text())["logits"][0]["ids"][:len(want)]
            got = logits(out, ids, len(ids), 256)
            off = None if got is None else float(np.abs(got - want[:len(ids)]).max() / (want.max() - want.min()))
            print(json.dumps({"micro": dir.name, "off": off and round(off, 9)}), flush=True)


if __name__ == "__main__":
    main()
