"""Makes the files beside it for testdata/micro/mixtral with the package gguf of llama.cpp: python make.py

Values are the feature's number plus a hundredth of the entry's; the second expert of the first block has no count.
"""
import struct
import numpy as np
from gguf import GGUFWriter

import json

c = json.load(open("../micro/mixtral/config.json"))
D, F, E, B = c["hidden_size"], c["intermediate_size"], c["num_local_experts"], c["num_hidden_layers"]
heads = c["num_attention_heads"] * c.get("head_dim", D // c["num_attention_heads"])
entries = []
for b in range(B):
    for name, k, e in [("attn_q", D, 1), ("attn_k", D, 1), ("attn_v", D, 1), ("attn_output", heads, 1), ("ffn_gate_inp", D, 1),
                       ("ffn_gate_exps", D, E), ("ffn_up_exps", D, E), ("ffn_down_exps", F, E)]:
        entries.append((f"blk.{b}.{name}.weight", k, e))

w = GGUFWriter("mixtral.gguf", "")
w.kv_data[0].pop("general.architecture", None)
w.add_string("general.type", "imatrix")
w.add_array("imatrix.datasets", ["dir/some.txt"])
w.add_uint32("imatrix.chunk_count", 2)
w.add_uint32("imatrix.chunk_size", 512)
dat = struct.pack("<i", len(entries))
for i, (name, k, e) in enumerate(entries):
    mean = np.tile(np.arange(k, dtype=np.float32) + np.float32(i / 100), (e, 1))
    counts = np.full((e, 1), 1024 // e, np.float32)
    if e > 1 and name.startswith("blk.0"):
        counts[1], mean[1] = 0, 0
    w.add_tensor(name + ".in_sum2", mean * counts)
    w.add_tensor(name + ".counts", counts)
    flat = (mean * 2).ravel()
    dat += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 2, flat.size) + flat.tobytes()
dat += struct.pack("<ii", 2, 12) + b"dir/some.txt"
open("mixtral.dat", "wb").write(dat)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
