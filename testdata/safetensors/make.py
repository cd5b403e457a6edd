"""Makes types.safetensors and types.json beside it with safetensors 0.8.0.

types.safetensors has a tensor of every element type, written by the reference
implementation; types.json is what was given to it.
"""

import json
import os

import numpy as np
import safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {
    "bool": "BOOL", "float4_e2m1fn_x2": "F4", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16", "uint16": "U16", "float16": "F16", "bfloat16": "BF16",
    "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64", "float64": "F64", "int64": "I64",
    "uint64": "U64",
}
BITS = {"F4": 4, "C64": 64, "BOOL": 8, "BF16": 16}

rng = np.random.default_rng(11)
given, want = {}, []
for name, dtype in TYPES.items():
    bits = BITS.get(dtype) or int("".join(c for c in dtype.split("_")[0] if c.isdigit()))
    shape = [2, 3, 4]
    data = rng.integers(0, 2 if name == "bool" else 256, 24 * bits // 8, dtype=np.uint8).tobytes()
    given["t." + name] = {"dtype": name, "shape": [2, 3, 2] if bits == 4 else shape, "data": data}
    want.append({"name": "t." + name, "dtype": dtype, "shape": shape, "hex": data.hex()})
given["scalar"] = {"dtype": "float32", "shape": [], "data": b"\0\0\x80\x3f"}
want.append({"name": "scalar", "dtype": "F32", "shape": [], "hex": "0000803f"})
given["no weights"] = {"dtype": "int64", "shape": [0, 7], "data": b""}
want.append({"name": "no weights", "dtype": "I64", "shape": [0, 7], "hex": ""})
given["naïve \" <\\>"] = {"dtype": "uint8", "shape": [1], "data": b"\x07"}
want.append({"name": "naïve \" <\\>", "dtype": "U8", "shape": [1], "hex": "07"})

arrays = {k: np.frombuffer(v["data"], dtype=np.uint8) for k, v in given.items()}
given = {k: safetensors.TensorSpec(dtype=v["dtype"], shape=v["shape"], data_ptr=arrays[k].ctypes.data,
                                   data_len=arrays[k].nbytes) for k, v in given.items()}
safetensors.serialize_file(given, os.path.join(HERE, "types.safetensors"), {"format": "pt"})
with open(os.path.join(HERE, "types.json"), "w") as f:
    json.dump(want, f)
