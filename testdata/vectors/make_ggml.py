#!/usr/bin/env python3
"""Makes the NVFP4, Q1_0 and Q2_0 vectors with ggml's own C, from the source of llama.cpp (made from the copy
in llama_cpp_python 0.3.36 on PyPI: vendor/llama.cpp), and holds NVFP4 to the gguf package too (0.19.0).

    python make_ggml.py .../llama.cpp

NAME.blocks, NAME.f32.gz   source.f32.gz (6 rows of 768) packed by quantize_row_*_ref, and decoded again by
                        dequantize_row_*; listed in index.json
NVFP4_edges.*           64 rows of one block: the scale bytes are 0 to 255 in order, the codes of each 16
                        weights 0 to 7 in the low nibbles and 15 to 8 in the high ones. It pins what ggml
                        does with scales: 0 and 127 are 0, 1 to 7 subnormal, and bit 7 is not looked at
                        but where 255 is 240 and not 0
nvfp4_rows.*            packed and decoded like NVFP4, and each row multiplied by one of three factors, as
                        docs/schemes/nvfp4.md has it; listed in schemes.json
Q2_0_edges.*            4 rows: the scales are the f16 numbers 1/3, -2, the least subnormal one and 65504,
                        the bytes of the codes run through 27, 28, ..., so that code 3, twice the scale, is met
"""

import ctypes
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROWS, COLS = 6, 768
TYPES = {"NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}


def library(llama: Path, folder: str) -> ctypes.CDLL:
    """ggml-quants.c alone: what it calls of the rest is for what is not called here."""
    src = llama / "ggml/src"
    path = Path(folder) / "quants.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-Wl,--unresolved-symbols=ignore-all", "-Wl,-z,lazy",
                    f"-I{src}", f"-I{llama}/ggml/include", "-o", path, src / "ggml-quants.c", "-lm"], check=True)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL | 1)


def decode(lib: ctypes.CDLL, name: str, blocks: np.ndarray) -> np.ndarray:
    _, weights, size = TYPES[name]
    out = np.empty(blocks.size // size * weights, np.float32)
    call = getattr(lib, f"dequantize_row_{name.lower()}")
    call(blocks.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(out.size))
    return out


def write(lib: ctypes.CDLL, name: str, blocks: np.ndarray, suffix: str = "") -> None:
    decoded = decode(lib, name, np.ascontiguousarray(blocks))
    if name == "NVFP4":
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
        assert np.array_equal(dequantize(blocks, GGMLQuantizationType.NVFP4).reshape(-1), decoded)
    (HERE / f"{name}{suffix}.blocks").write_bytes(blocks.tobytes())
    (HERE / f"{name}{suffix}.f32.gz").write_bytes(gzip.compress(decoded.astype("<f4").tobytes(), mtime=0))


def main() -> None:
    source = np.frombuffer(gzip.decompress((HERE / "source.f32.gz").read_bytes()), "<f4")
    index = [e for e in json.loads((HERE / "index.json").read_text()) if e["type"] not in TYPES]
    with tempfile.TemporaryDirectory() as folder:
        lib = library(Path(sys.argv[1]), folder)
        for name, (number, weights, size) in TYPES.items():
            blocks = np.zeros((ROWS, COLS // weights * size), np.uint8)
            getattr(lib, f"quantize_row_{name.lower()}_ref")(source.ctypes.data_as(ctypes.c_void_p), blocks.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(source.size))
            write(lib, name, blocks)
            index.append({"type": name, "ggml_type_id": number, "rows": ROWS, "cols": COLS, "row_bytes": blocks.shape[1]})
        codes = np.arange(8, dtype=np.uint8)
        edges = np.empty((64, 36), np.uint8)
        edges[:, :4] = np.arange(256, dtype=np.uint8).reshape(64, 4)
        edges[:, 4:] = np.tile(codes | ((15 - codes) << 4), 4)
        write(lib, "NVFP4", edges, "_edges")
        blocks = np.fromfile(HERE / "NVFP4.blocks", np.uint8)
        factors = np.array([0.0123, -3.75, 1 / 3], np.float32)
        (HERE / "nvfp4_rows.parts").write_bytes(blocks.tobytes() + factors.tobytes())
        rows = decode(lib, "NVFP4", blocks).reshape(ROWS, COLS) * np.repeat(factors, 2)[:, None]
        (HERE / "nvfp4_rows.f32.gz").write_bytes(gzip.compress(rows.astype("<f4").tobytes(), mtime=0))
        schemes = json.loads((HERE / "schemes.json").read_text())
        row = {"name": "nvfp4_rows", "scheme": "nvfp4", "shape": [ROWS, COLS], "params": {"rows": 2}, "by": "make_ggml.py, ggml's C and the page"}
        schemes["vectors"] = [v for v in schemes["vectors"] if v["name"] != row["name"]] + [row]
        (HERE / "schemes.json").write_text(json.dumps(schemes, indent=1) + "\n")
        edges = np.empty((4, 18), np.uint8)
        edges[:, :2] = np.array([1 / 3, -2, 2**-24, 65504], np.float16).view(np.uint8).reshape(4, 2)
        edges[:, 2:] = np.arange(27, 27 + 64, dtype=np.uint8).reshape(4, 16)
        write(lib, "Q2_0", edges, "_edges")
    index.sort(key=lambda e: e["type"])
    (HERE / "index.json").write_text(json.dumps(index, indent=1))


if __name__ == "__main__":
    main()
