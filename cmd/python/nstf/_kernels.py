"""The kernels that decode on a GPU (kernels/hip/decode.go): the program compiles them, and the driver's library loads
and launches them, in the context and on the stream that are the caller's. torch is not needed here."""

from __future__ import annotations

import base64
import ctypes
import glob
import json
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ._program import Error, run

__all__ = ["Device", "Error", "Kernel", "compilers", "words"]

# Of each family of drivers: the library's names, and the functions that load and launch, which take the same.
LIBRARIES = {
    "cuda": ("nvcuda.dll",) if os.name == "nt" else ("libcuda.so.1", "libcuda.so"),
    "hip": tuple(f"amdhip64_{n}.dll" for n in (9, 8, 7, 6)) if os.name == "nt" else tuple(f"libamdhip64.so.{n}" for n in (9, 8, 7, 6, 5)),
}
FUNCTIONS = {
    "cuda": ("cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"),
    "hip": ("hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel"),
}
MOST_BLOCKS = 1 << 16  # of a launch of decode.hip, whose blocks take turns


def loaded(name: str) -> list[str]:
    """Paths of libraries of this process whose file begins so, where the system tells."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as f:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in f if line.count("/") > 0}
    except OSError:
        return []
    return sorted(p for p in paths if os.path.basename(p).startswith(name))


def compilers(beside: str) -> list[str]:
    """Folders where NVRTC or hiprtc may lie: of this process's libraries, and of wheels beside a package of that path."""
    found = [os.path.dirname(p) for name in ("libnvrtc", "libhiprtc", "libamdhip64") for p in loaded(name)]
    site = os.path.dirname(beside)
    for pattern in ("nvidia/*/lib", "nvidia/*/bin", "nvidia/*/bin/x86_64", "_rocm_sdk_core/lib", "_rocm_sdk_core/bin"):
        found += sorted(glob.glob(os.path.join(site, pattern)))
    found.append(os.path.join(beside, "lib"))
    return list(dict.fromkeys(found))


def words(seed: int) -> list[int]:
    """Four words of splitmix64: 128 signs of columns of tcq, and 128 of rows."""
    state, out = seed, []
    for _ in range(4):
        state = (state + 0x9E3779B97F4A7C15) & (1 << 64) - 1
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
        out.append(z ^ z >> 31)
    return out


class Kernel(NamedTuple):
    """A function of a device, and how decode.go says that it is launched."""

    function: ctypes.c_void_p
    threads: int
    table: bytes
    together: int
    weights: int
    bytes: int


class Device:
    """Where kernels run: a family of drivers, an architecture such as sm_90 or gfx942, folders of compilers, and the
    number that the family's runtime has for the device. Callers make it the thread's device."""

    def __init__(self, api: str, arch: str, libraries: Iterable[str] = (), index: int = 0) -> None:
        self.api, self.arch, self.libraries, self.index = api, arch, list(libraries), index
        self.kernels: dict[str, Kernel] = {}
        self.lock = threading.Lock()
        names = [*loaded("libamdhip64"), *LIBRARIES[api]] if api == "hip" else LIBRARIES[api]
        failed: OSError | None = None
        for name in names:
            try:
                library = ctypes.CDLL(name)
                break
            except OSError as e:
                failed = e
        else:
            raise FileNotFoundError(f"the driver's library of {api} is not here: {failed}")
        self.load, self.find, self.start = (getattr(library, f) for f in FUNCTIONS[api])
        self.load.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p]
        self.find.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p]
        pointers = ctypes.POINTER(ctypes.c_void_p)
        self.start.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, pointers, pointers]
        self.library = library

    def enter(self) -> None:
        """Gives a thread that has no context the device's primary one, which CUDA's runtime does at a thread's first work
        and its driver never; HIP's functions do it themselves."""
        if self.api != "cuda":
            return
        context = ctypes.c_void_p()
        self.check("cuCtxGetCurrent", self.library.cuCtxGetCurrent(ctypes.byref(context)))
        if not context:
            self.check("cuDevicePrimaryCtxRetain", self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), ctypes.c_int(self.index)))
            self.check("cuCtxSetCurrent", self.library.cuCtxSetCurrent(context))

    def kernel(self, scheme: str, params: dict[str, int], kind: str) -> Kernel:
        """The kernel that writes a scheme as f32, f16 or bf16; compiled where no folder has it. Raises nstf.Error where
        there is no compiler, or no kernel of the scheme."""
        asked = {"scheme": scheme, "params": params, "type": kind}
        key = json.dumps(asked, sort_keys=True)
        with self.lock:
            if key not in self.kernels:
                flags = [f"--libraries={folder}" for folder in self.libraries]
                (made,) = json.loads(run(["dev", "kernels", self.arch, *flags], text=json.dumps([asked])))
                self.kernels[key] = self.bind(made)
            return self.kernels[key]

    def bind(self, made: dict[str, Any]) -> Kernel:
        self.enter()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        code = base64.b64decode(made["code"])
        self.check(FUNCTIONS[self.api][0], self.load(ctypes.byref(module), code))
        self.check(FUNCTIONS[self.api][1], self.find(ctypes.byref(function), module, made["symbol"].encode()))
        table = base64.b64decode(made.get("table", ""))
        return Kernel(function, made["threads"], table, made["together"], made["weights"], made["bytes"])

    def check(self, function: str, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{function}: error {code}")

    def launch(self, kernel: Kernel, grid: Sequence[int], stream: int, args: Sequence[Any]) -> None:
        """Launches a kernel with arguments of ctypes."""
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in args))
        self.enter()
        self.check(FUNCTIONS[self.api][2], self.start(kernel.function, *grid, kernel.threads, 1, 1, 0, stream, pointers, None))

    def blocks(self, kernel: Kernel, stream: int, n: int, k: int, y: int, data: int, table: int, rows: int, of: int, d: int, m: int) -> None:
        """Writes n rows of k weights of a matrix that has `of`; the rest are addresses, as Decode of decode.go has them."""
        across = k // kernel.weights
        turns = -(-n * across // kernel.together)
        places = table + 16 * kernel.bytes
        args = [*map(ctypes.c_uint64, (y, data, table, places, rows)), *map(ctypes.c_int64, (of, n * across)), ctypes.c_int32(across)]
        self.launch(kernel, (min(turns, MOST_BLOCKS), 1, 1), stream, [*args, ctypes.c_uint64(d), ctypes.c_uint64(m)])

    def trellis(self, kernel: Kernel, stream: int, n: int, k: int, y: int, codes: int, units: int, into: int, out: int, signs: Sequence[int]) -> None:
        """Writes n rows of k weights of trellis codes; signs are the four words of docs/schemes/tcq.md."""
        args = [*map(ctypes.c_uint64, (y, codes, units, into, out)), ctypes.c_int64(n), ctypes.c_int32(k), *map(ctypes.c_uint64, signs)]
        self.launch(kernel, (-(-k // 128), -(-n // 128), 1), stream, args)
