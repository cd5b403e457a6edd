"""Makes the GGUF files beside it with numpy and the gguf package of llama.cpp (gguf-py in
llama_cpp_python 0.3.36 on PyPI; gguf 0.19.0 does not know Q2_0 yet).

    python make.py          writes types.gguf, align64.gguf, v2.gguf, split-*.gguf, types.json
    python make.py check F  prints what the package reads in F, as JSON

types.gguf has a key of every metadata type and a tensor of every ggml type,
types.json what the package reads in it;
v2.gguf is a copy of align64.gguf whose version says 2: the layouts are equal.
"""

import json
import os
import sys

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
T = gguf.GGUFValueType
Q = gguf.GGMLQuantizationType


def metadata(w):
    w.add_uint8("t.uint8", 255)
    w.add_int8("t.int8", -128)
    w.add_uint16("t.uint16", 65535)
    w.add_int16("t.int16", -32768)
    w.add_uint32("t.uint32", 4294967295)
    w.add_int32("t.int32", -2147483648)
    w.add_float32("t.float32", 0.1)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "naïve \u2603")
    w.add_uint64("t.uint64", 18446744073709551615)
    w.add_int64("t.int64", -9223372036854775808)
    w.add_float64("t.float64", 0.1)
    for t, values in {
        T.UINT8: [0, 255], T.INT8: [-128, 127], T.UINT16: [0, 65535], T.INT16: [-32768, 32767],
        T.UINT32: [0, 4294967295], T.INT32: [-2147483648, 2147483647], T.FLOAT32: [0.5, -1.25],
        T.BOOL: [True, False, True], T.STRING: ["a", "", "\u00e9"], T.UINT64: [0, 18446744073709551615],
        T.INT64: [-9223372036854775808, 9223372036854775807], T.FLOAT64: [0.1, -2.0],
    }.items():
        w.add_key_value("a." + t.name.lower(), values, T.ARRAY, sub_type=t)


def tensors(w):
    rng = np.random.default_rng(7)
    dense = {Q.F32: np.float32, Q.F16: np.float16, Q.F64: np.float64, Q.I8: np.int8,
             Q.I16: np.int16, Q.I32: np.int32, Q.I64: np.int64}
    for q in Q:
        if q in (Q.Q8_1, Q.Q8_K):
            continue
        name = q.name.lower()
        if q in dense:
            w.add_tensor(name, (rng.standard_normal((2, 3)) * 50).astype(dense[q]))
            continue
        block, size = gguf.GGML_QUANT_SIZES[q]
        rows = rng.integers(0, 256, (2, size * (3 if block == 1 else 1)), dtype=np.uint8)
        w.add_tensor(name, rows, raw_dtype=q)


def write(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make():
    w = gguf.GGUFWriter(os.path.join(HERE, "types.gguf"), "test")
    metadata(w)
    tensors(w)
    write(w)
    with open(os.path.join(HERE, "types.json"), "w") as f:
        f.write(check(os.path.join(HERE, "types.gguf")) + "\n")

    w = gguf.GGUFWriter(os.path.join(HERE, "align64.gguf"), "test")
    w.add_custom_alignment(64)
    w.add_tensor("scalar3", np.arange(3, dtype=np.float32))
    w.add_tensor("cube", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    write(w)
    data = bytearray(open(os.path.join(HERE, "align64.gguf"), "rb").read())
    data[4] = 2
    open(os.path.join(HERE, "v2.gguf"), "wb").write(data)

    w = gguf.GGUFWriter(os.path.join(HERE, "split.gguf"), "test", split_max_tensors=2)
    w.add_string("general.name", "split in three")
    for i in range(5):
        w.add_tensor(f"blk.{i}.weight", np.full((2, 4), i, dtype=np.float32))
    write(w)


def check(path):
    r = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in r.fields.items() if not k.startswith("GGUF.")}
    ts = [{"name": t.name, "type": t.tensor_type.name.lower(), "ne": [int(d) for d in t.shape],
           "hex": t.data.tobytes().hex()} for t in r.tensors]
    return json.dumps({"keys": keys, "tensors": ts})


if __name__ == "__main__":
    print(check(sys.argv[2])) if sys.argv[1:2] == ["check"] else make()
