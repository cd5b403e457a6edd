"""Exports every micro checkpoint and reads the file with the gguf package.

usage: check_gguf.py NSTF MICRO TMP

Matrices that the package reads are compared with the safetensors source, by
a reader and a rotary permutation written here: they have to hold the same
numbers. The keys that llama.cpp requires have to be there. Checkpoints that GGUF
cannot say have to end with exit code 4 and leave no file.
"""

import glob
import json
import os
import subprocess
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

NSTF, MICRO, TMP = sys.argv[1:4]
INTERLEAVED = ("llama", "granite", "granitehybrid", "mistral3", "smollm3")  # those whose converter permutes: classes over LlamaModel with undo_permute
REQUIRED = ["context_length", "embedding_length", "block_count", "attention.head_count", "feed_forward_length"]


def safetensors(directory: str) -> dict:
    """Reads the plain float tensors of a checkpoint."""
    out = {}
    for path in glob.glob(os.path.join(directory, "*.safetensors")):
        with open(path, "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            header, data = json.loads(f.read(n)), f.read()
        for name, t in header.items():
            if name == "__metadata__" or t["dtype"] not in ("F32", "F16", "BF16"):
                continue
            raw = data[t["data_offsets"][0] : t["data_offsets"][1]]
            if t["dtype"] == "BF16":
                x = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                x = np.frombuffer(raw, "<f4" if t["dtype"] == "F32" else "<f2").astype(np.float32)
            out[name] = x.reshape(t["shape"])
    return out


def interleaved(w: np.ndarray, heads: int) -> np.ndarray:
    """The order that llama.cpp gives to query and key rows of INTERLEAVED architectures."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def compare(directory: str, path: str) -> int:
    """Compares matrices of the source with those of the export, bit for bit."""
    source, r = safetensors(directory), GGUFReader(path)
    arch = r.get_field("general.architecture").contents()
    ours = {t.name: dequantize(t.data, t.tensor_type) for t in r.tensors}
    same = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight"}
    for i in range(r.get_field(f"{arch}.block_count").contents()):
        for hf, gg in (("mlp.down_proj", "ffn_down"), ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
                       ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.qkv_proj", "attn_qkv")):
            same[f"model.layers.{i}.{hf}.weight"] = f"blk.{i}.{gg}.weight"
    compared = 0
    for name, theirs in same.items():
        if name not in source or theirs not in ours:
            continue
        w = source[name]
        if arch in INTERLEAVED and (".q_proj" in name or ".k_proj" in name):
            heads = r.get_field(arch + ".attention.head_count" + ("_kv" if ".k_proj" in name else "")).contents()
            if isinstance(heads, list):  # by block, where some have none
                heads = heads[int(name.split(".")[2])]
            w = interleaved(w, heads)
        if w.shape != ours[theirs].shape or not np.array_equal(w, ours[theirs].astype(np.float32)):
            raise SystemExit(f"{path}: {theirs} differs from {name}")
        compared += 1
    return compared


def check(path: str) -> int:
    r = GGUFReader(path)
    arch = r.get_field("general.architecture").contents()
    for key in REQUIRED:
        if r.get_field(f"{arch}.{key}") is None:
            raise SystemExit(f"{path}: {arch}.{key} is missing")
    tokens = r.get_field("tokenizer.ggml.tokens").contents()
    names = {t.name: t for t in r.tensors}
    table = names["token_embd.weight"]
    if int(table.shape[1]) != len(tokens):
        raise SystemExit(f"{path}: {len(tokens)} tokens, {table.shape[1]} rows")
    for t in r.tensors:
        x = dequantize(t.data, t.tensor_type)
        if not np.isfinite(x).all():
            raise SystemExit(f"{path}: {t.name} is not finite")
    return len(names)


def main() -> None:
    read = refused = matrices = 0
    for config in sorted(glob.glob(os.path.join(MICRO, "*", "config.json"))):
        d = os.path.dirname(config)
        out = os.path.join(TMP, os.path.basename(d) + ".gguf")
        p = subprocess.run([NSTF, "export", d, "-o", out, "--dtype", "f16"], capture_output=True, text=True)
        if p.returncode == 4:
            refused += 1
            if os.path.exists(out) or not p.stderr.startswith("error:"):
                raise SystemExit(f"{d}: refused, and left a file or no message: {p.stderr}")
            continue
        if p.returncode != 0:
            raise SystemExit(f"{d}: {p.stderr}")
        n, same = check(out), compare(d, out)
        read, matrices = read + 1, matrices + same
        print(f"{os.path.basename(d)}: {n} tensors, {same} compared")
    print(f"{read} read, {refused} refused, {matrices} matrices compared")
    if read < 40 or matrices < 300:
        raise SystemExit("too few exports were read or compared")


main()
