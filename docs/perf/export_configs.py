#!/usr/bin/env python3
"""Runs in llama.cpp what nstf exports of testdata/configs, and compares logits with transformers'.

    go test ./runtime/exec -run 'TestConfigs$' -exports DIR
    docs/perf/export_configs.py CASES DIR > results.jsonl

CASES is testdata/configs (or a folder that its make.py --wide wrote), DIR what the test wrote: N.gguf
for each case N that transformers computes, that we read as it does, and that nstf exports, and
refused.json with its words for the others. The first line of the output is a summary; then one
line for each group of refusals, and for each export that llama.cpp does not load or computes otherwise:
by more than 2e-3 of the logits' range (exact GELU, which llama.cpp does not have, is a few 1e-4).

Needs numpy and llama-cpp-python's Python files (0.3.36) on PYTHONPATH, and LLAMA_CPP_LIB_PATH, the folder with
libllama.so built from its vendor/llama.cpp. Keys and values are kept in float32.
"""
import gzip
import ctypes
import json
import re
import sys
from collections import Counter
from pathlib import Path

import llama_cpp.llama_cpp as L
import numpy as np

TOLERANCE = 2e-3


@L.llama_log_callback
def quiet(level, text, data):
    if level in (3, 4):
        said.append(text.decode(errors="replace").strip())


said: list[str] = []


def logits(path: Path, ids: list[int], rows: int, context: int) -> np.ndarray | None:
    said.clear()
    mp = L.llama_model_default_params()
    mp.n_gpu_layers = 0
    model = L.llama_model_load_from_file(str(path).encode(), mp)
    if not model:
        return None
    cp = L.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch = context, len(ids), len(ids), 1, 1
    cp.type_k = cp.type_v = 0  # GGML_TYPE_F32
    cp.flash_attn_type = 0  # disabled
    cp.op_offload = cp.offload_kqv = False
    ctx = L.llama_init_from_model(model, cp)
    batch = L.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, t in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = t, i, 1, i >= len(ids) - rows
        batch.seq_id[i][0] = 0
    out = None
    if ctx and L.llama_decode(ctx, batch) == 0:
        n = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
        out = np.stack([np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), (n,)).copy() for i in range(len(ids) - rows, len(ids))])
    L.llama_batch_free(batch)
    if ctx:
        L.llama_free(ctx)
    L.llama_model_free(model)
    return out


def main() -> None:
    cases_dir, exports = Path(sys.argv[1]), Path(sys.argv[2])
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    cs = json.loads(gzip.decompress((cases_dir / "cases.json.gz").read_bytes()))
    table = np.load(cases_dir / "logits.npy")
    refused = json.loads((exports / "refused.json").read_text())
    same, worst, lines = Counter(), {}, []
    for i, c in enumerate(cs["cases"]):
        path = exports / f"{i}.gguf"
        if not path.exists():
            continue
        got = logits(path, cs["ids"], cs["rows"], context=len(cs["ids"]))
        change = {"type": c["type"], "set": c.get("set"), "head": c.get("head")}
        if got is None:
            same[c["type"], "not loaded"] += 1
            lines.append({**change, "llama.cpp": "does not load it", "says": said[:3]})
            continue
        want = table[c["logits"]][:got.size].reshape(got.shape)
        off = float(np.abs(got - want).max() / (want.max() - want.min()))
        worst[c["type"]] = max(worst.get(c["type"], 0), off if off <= TOLERANCE else 0)
        same[c["type"], "same" if off <= TOLERANCE else "another model"] += 1
        if not off <= TOLERANCE:
            lines.append({**change, "off": round(off, 4)})
    why = Counter((cs["cases"][int(i)]["type"], re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", w)) for i, w in refused.items())
    summary = {k: {"same": same[k, "same"], "worst": float(f"{worst.get(k, 0):.1e}"), "another model": same[k, "another model"], "not loaded": same[k, "not loaded"],
                   "refused": sum(n for (t, _), n in why.items() if t == k)} for k in cs["bases"]}
    print(json.dumps({"summary": summary}))
    for (t, w), n in sorted(why.items()):
        print(json.dumps({"type": t, "refused": n, "says": w}))
    for line in lines:
        print(json.dumps(line))
    sys.exit(any(s["another model"] or s["not loaded"] for s in summary.values()))


if __name__ == "__main__":
    main()
