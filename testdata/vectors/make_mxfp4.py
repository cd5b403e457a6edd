#!/usr/bin/env python3
"""Makes the MXFP4 vectors with the gguf package from PyPI (made with gguf 0.19.0, numpy 2.4.6).

    python make_mxfp4.py

MXFP4.blocks, MXFP4.f32.gz   source.f32.gz (6 rows of 768) packed, and decoded again: the same shape as
                          the vectors of the other types; listed in index.json
MXFP4_edges.*             256 rows of one block: row e has the scale byte e and the codes 0 to 15 in
                          the low nibbles, 15 to 0 in the high ones. It pins what ggml does at the
                          ends: scale bytes 0 and 1 are subnormal (2^-128, 2^-127), 255 is 2^127 and
                          not NaN, its larger codes overflow to infinity, and code 8 is +0

A block is 17 bytes: the scale byte e, then 16 bytes of codes; byte j holds weight j in its low and
weight j+16 in its high nibble. A weight is 2^(e-128) times (0 1 2 3 4 6 8 12, and the negatives).
"""

import gzip
import json
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

HERE = Path(__file__).resolve().parent
ROWS, COLS = 6, 768
TYPE = GGMLQuantizationType.MXFP4


def write(name: str, blocks: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        decoded = dequantize(blocks, TYPE)
    assert blocks.dtype == np.uint8 and decoded.dtype == np.float32
    (HERE / f"{name}.blocks").write_bytes(blocks.tobytes())
    (HERE / f"{name}.f32.gz").write_bytes(gzip.compress(decoded.astype("<f4").tobytes(), mtime=0))


def main() -> None:
    assert GGML_QUANT_SIZES[TYPE] == (32, 17)
    source = np.frombuffer(gzip.decompress((HERE / "source.f32.gz").read_bytes()), "<f4").reshape(ROWS, COLS)
    blocks = quantize(source, TYPE)
    write("MXFP4", blocks)

    codes = np.arange(16, dtype=np.uint8)
    edges = np.empty((256, 17), np.uint8)
    edges[:, 0] = np.arange(256)
    edges[:, 1:] = codes | (codes[::-1] << 4)
    write("MXFP4_edges", edges)

    index = [e for e in json.loads((HERE / "index.json").read_text()) if e["type"] != "MXFP4"]
    index.append({"type": "MXFP4", "ggml_type_id": int(TYPE), "rows": ROWS, "cols": COLS, "row_bytes": blocks.shape[1]})
    index.sort(key=lambda e: e["type"])
    (HERE / "index.json").write_text(json.dumps(index, indent=1))


if __name__ == "__main__":
    main()
