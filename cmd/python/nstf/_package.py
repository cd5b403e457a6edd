"""Packages: docs/nstf.md. Numbers that are stored plainly are views of the mapped file; what is
coded or factored is decoded by the program."""

from __future__ import annotations

import builtins
import contextlib
import json
import math
import mmap
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._program import Path, run

if TYPE_CHECKING:
    import torch

MAGIC = b"\x89NSTF\r\n\x1a"
PLAIN: dict[str, np.dtype[Any]] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "f64": np.dtype("<f8"), "i8": np.dtype("i1"), "u8": np.dtype("u1")}
PLAIN |= {"i16": np.dtype("<i2"), "i32": np.dtype("<i4"), "i64": np.dtype("<i8"), "u16": np.dtype("<u2"), "u32": np.dtype("<u4"), "u64": np.dtype("<u8")}

Array = np.ndarray[Any, np.dtype[Any]]


class Tensor:
    """A tensor of a package."""

    def __init__(self, package: Package, entry: dict[str, Any]) -> None:
        self._package, self._entry = package, entry
        self.name: str = entry["name"]
        self.shape: tuple[int, ...] = tuple(entry["shape"])
        self.scheme: str = entry["scheme"]
        """How numbers are stored: ``bf16``, ``q4_k``, ``tcq3`` … (docs/schemes)."""
        self.form: str = entry["form"]
        """``dense``, or how factors make the matrix (docs/forms)."""

    def __repr__(self) -> str:
        return f"<nstf.Tensor {self.name} {list(self.shape)} {self.scheme}{'' if self.form == 'dense' else ' ' + self.form}>"

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in the file."""
        return sum(p["size"] for p in self._entry["parts"])

    def parts(self) -> dict[str, Array]:
        """The bytes as they are stored, by part, as views of the file."""
        return {p["name"]: self._package._bytes(p["offset"], p["size"]) for p in self._entry["parts"]}

    def numpy(self) -> Array:
        """The numbers: a read-only view of the file for f32, f16, f64 and integers; else decoded to float32."""
        if self.form == "dense" and self.scheme in PLAIN:
            (raw,) = self.parts().values()
            return raw.view(PLAIN[self.scheme]).reshape(self.shape)
        if self.form == "dense" and self.scheme == "bf16":
            (raw,) = self.parts().values()
            return (raw.view("<u2").astype("<u4") << 16).view("<f4").reshape(self.shape)
        (array,) = self._package.decode(self.name)
        return array

    def torch(self, device: Any = "cpu", dtype: Any = None) -> torch.Tensor:
        """The numbers as a torch tensor of its own memory; bf16 stays bf16 unless ``dtype`` says otherwise. On a GPU codes
        and factors are uploaded as they are stored, and decoded there."""
        import torch

        coded = self.form != "dense" or self.scheme not in PLAIN and self.scheme != "bf16"
        if coded and torch.device(device).type == "cuda":
            from . import _coded

            self._package.verify(self.name)
            with contextlib.suppress(NotImplementedError):  # what torch has no numbers for, the program decodes
                return _coded.decoded(self._entry, self.parts(), torch.device(device), dtype)
        if self.form == "dense" and self.scheme == "bf16":
            (raw,) = self.parts().values()
            t = torch.from_numpy(raw.view("<i2").copy()).view(torch.bfloat16).reshape(self.shape)
        else:
            array = self.numpy()  # the file itself, or memory of its own
            t = torch.from_numpy(array if array.flags.writeable else array.copy())
        return t.to(device=device, dtype=dtype or t.dtype)


def memory(size: int) -> str | None:
    """Where files of so many bytes are memory that processes share; None: there is no room, and they lie on a disk."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free >= size else None


class Package(Mapping[str, Tensor]):
    """An open package: a mapping of its tensors by name. Close it, or use it in a with block."""

    def __init__(self, path: Path) -> None:
        self.path = pathlib.Path(path)
        with builtins.open(self.path, "rb") as f:
            head = f.read(64)
            size = os.fstat(f.fileno()).st_size
            if head[:8] != MAGIC:
                raise ValueError(f"{path}: not an NSTF package")
            if len(head) < 64:
                raise ValueError(f"{path}: truncated")
            version, header, whole = (int.from_bytes(head[a:b], "little") for a, b in ((8, 12), (16, 24), (24, 32)))
            if version != 1:
                raise ValueError(f"{path}: version {version} of the format; this module reads 1")
            if whole != size or not 2 <= header <= min(1 << 26, size - 64):
                raise ValueError(f"{path}: a header of {header} bytes in a file of {size}, which says {whole}")
            text = f.read(header)
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self.header: dict[str, Any] = json.loads(text)
            self.graph: dict[str, Any] = self.header["model"]
            """What the model computes (docs/graph.md)."""
            self._tensors = {t["name"]: Tensor(self, t) for t in self.header["tensors"]}
            self._whole: set[str] = set()  # tensors whose hashes were right
        except (ValueError, KeyError, TypeError) as e:
            self._map.close()
            raise ValueError(f"{path}: damaged header: {e}") from e
        self._data = (64 + header + 4095) // 4096 * 4096

    def _bytes(self, offset: int, size: int) -> Array:
        start = self._data + offset
        if offset < 0 or size < 0 or start + size > len(self._map):
            raise ValueError(f"{self.path}: {size} bytes at {start} lie beyond the file")
        return np.frombuffer(self._map, np.uint8, size, start)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def decode(self, *names: str) -> list[Array]:
        """Several tensors of the graph in float32 at once, checked against their hashes."""
        for name in names:
            if name not in self._tensors:
                raise KeyError(name)
        if not names:
            return []
        size = sum(4 * math.prod(self[name].shape) + 4096 for name in names)
        with tempfile.TemporaryDirectory(prefix="nstf-", dir=memory(size)) as folder:
            out = os.path.join(folder, "arrays")
            run(["dev", "decode", self.path, "-o", out, *names])
            # Mapped, not read: the memory is given back with the array. Who writes gets pages of its own.
            return [np.load(os.path.join(out, f"{i}.npy"), mmap_mode="c" if os.name == "posix" else None) for i in range(len(names))]

    def verify(self, *names: str) -> None:
        """Checks every hash, or those of tensors, once each; raises nstf.Error with the name of what is damaged."""
        if names:
            left = [name for name in names if name not in self._whole]
            if left:
                run(["verify", self.path, *left])
            self._whole.update(left)
        else:
            run(["verify", self.path])
            self._whole.update(self._tensors)

    def close(self) -> None:
        """Closes the file. Views of it must be gone: BufferError otherwise."""
        self._map.close()

    def __enter__(self) -> Package:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except BufferError:
            pass  # arrays keep the file open as long as they live


def open(path: Path) -> Package:
    """Opens a package. Its header is read and its tensors are not, until they are asked for."""
    return Package(path)
