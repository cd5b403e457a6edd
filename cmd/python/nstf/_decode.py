"""nstf::decode, the operation of torch that turns codes into numbers: by the kernels of kernels/hip where a GPU holds
them, else by torch's own operations."""

from __future__ import annotations

import functools
import time
import warnings
from typing import cast

import torch
from torch import Tensor

from . import _codes, _kernels
from ._program import Error

KINDS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
TCQ = ("bits", "codebook", "rotate_in", "rotate_out", "seed")  # what params are of tcq


def numbers(data: Tensor, scales: list[Tensor], rows: Tensor | None, scheme: str, params: list[int], k: int) -> Tensor:
    """decode() in float32 by torch's operations, with gradients of scales."""
    if scheme != "tcq":
        block = _codes.BLOCKS[scheme]
        fields = [data.view(-1, block.bytes), *scales]
        if rows is not None:
            fields = [f.unflatten(0, (-1, k // block.weights))[rows].flatten(0, 1) for f in fields]
        return block.decode(*fields).view(-1, k)
    bits, book, rotate_in, rotate_out, seed = params
    units, into, out = scales
    n = 16 * units.shape[0]
    w = _codes.trellis((data.view(torch.int16).int() & 0xFFFF).view(n // 16, k // 16, 16 * bits), bits, book)
    w = w * (units * 2**-7).repeat_interleave(16)[:, None]
    w = _codes.hadamard(w, rotate_in) * _codes.side(k, rotate_in, seed, 0, into)
    w = _codes.hadamard_rows(w, rotate_out) * _codes.side(n, rotate_out, seed, 2, out)[:, None]
    return w if rows is None else w[rows]


def plain(data: Tensor, scales: list[Tensor], rows: Tensor | None, scheme: str, params: list[int], k: int, dtype: torch.dtype) -> Tensor:
    with torch.autocast(data.device.type, enabled=False):
        return numbers(data, scales, rows, scheme, params, k).to(dtype)


decode = torch.library.custom_op(
    "nstf::decode",
    plain,
    mutates_args=(),
    schema="(Tensor data, Tensor[] scales, Tensor? rows, str scheme, int[] params, int k, ScalarType dtype) -> Tensor",
)
"""Numbers [N][k] of a type from the first part of a matrix: of blocks with their scales d and m, which scheme needs, of
tcq with scales of 16 rows, of columns and of rows, empty where there are none. rows: which rows, int64; None: all. Of blocks on
a GPU a row that the matrix lacks is NaN, as nothing can be raised there."""


@decode.register_fake
def _(data: Tensor, scales: list[Tensor], rows: Tensor | None, scheme: str, params: list[int], k: int, dtype: torch.dtype) -> Tensor:
    if rows is not None:
        n = rows.shape[0]
    elif scheme == "tcq":
        n = 16 * scales[0].shape[0]
    else:
        block = _codes.BLOCKS[scheme]
        n = data.numel() // block.bytes * block.weights // k
    return data.new_empty((n, k), dtype=dtype)


# What is there is kept. What failed is said once, and tried again a while later, since the reason may pass.
AGAIN = 60.0  # seconds
Found = tuple[_kernels.Kernel, Tensor]
devices: dict[int, _kernels.Device] = {}
found: dict[tuple[int, str, tuple[int, ...], str], Found] = {}
failed: dict[tuple[int, str, tuple[int, ...], str], float] = {}  # when


@functools.cache
def say(what: str, error: str) -> None:
    warnings.warn(f"nstf decodes {what}by torch's operations: {error}", stacklevel=3)


def device_of(index: int) -> _kernels.Device | None:
    """The device of torch of that number, where its driver's library is here."""
    if index in devices:
        return devices[index]
    p = torch.cuda.get_device_properties(index)
    libraries = _kernels.compilers(torch.__path__[0])
    try:
        if torch.version.hip:
            device = _kernels.Device("hip", p.gcnArchName.split(":")[0], libraries, index)
        else:
            device = _kernels.Device("cuda", f"sm_{p.major}{p.minor}", libraries, index)
    except (OSError, AttributeError) as e:
        say("", str(e))
        return None
    return devices.setdefault(index, device)


def kernel_of(index: int, scheme: str, params: tuple[int, ...], kind: str) -> Found | None:
    """The kernel of a scheme with its table there; None: there is none now, which is said once."""
    key = index, scheme, params, kind
    if key in found:
        return found[key]
    if key in failed and time.monotonic() - failed[key] < AGAIN:
        return None
    device = device_of(index)
    if device is None:
        failed[key] = time.monotonic()
        return None
    try:
        kernel = device.kernel(scheme, dict(zip(TCQ, (*params, 0))) if params else {}, kind)  # any seed: signs are arguments
        with torch.inference_mode(False):
            table = torch.frombuffer(bytearray(kernel.table or b"\0"), dtype=torch.uint8).to(torch.device("cuda", index))
    except (Error, OSError, RuntimeError) as e:
        failed[key] = time.monotonic()
        say(scheme + " ", str(e))
        return None
    return found.setdefault(key, (kernel, table))


def aligned(t: Tensor) -> Tensor:
    """A tensor whose numbers lie together, from a multiple of 16 bytes on."""
    t = t.contiguous()
    return t if t.data_ptr() % 16 == 0 else t.clone()


def launch(device: _kernels.Device, kernel: _kernels.Kernel, table: Tensor, stream: int, y: Tensor, data: Tensor, scales: list[Tensor], rows: Tensor | None, params: list[int]) -> None:
    """Has a kernel write y. All lie on the device; rows are int64."""
    n, k = y.shape
    if n == 0:
        return
    data, scales = aligned(data), [aligned(s.float()) for s in scales]
    at = [s.data_ptr() if s.numel() else 0 for s in scales]
    if kernel.weights:
        at = (at + [0, 0])[:2]
        device.blocks(kernel, stream, n, k, y.data_ptr(), data.data_ptr(), table.data_ptr(), 0 if rows is None else rows.data_ptr(), data.numel() // kernel.bytes * kernel.weights // k, *at)
    else:
        units, into, out = at
        device.trellis(kernel, stream, n, k, y.data_ptr(), data.data_ptr(), units, into, out, _kernels.words(params[4]))


@decode.register_kernel("cuda")
def _(data: Tensor, scales: list[Tensor], rows: Tensor | None, scheme: str, params: list[int], k: int, dtype: torch.dtype) -> Tensor:
    index = data.device.index
    with torch.cuda.device(index):  # the kernel is loaded there
        kernel = kernel_of(index, scheme, tuple(params[:4]), KINDS.get(dtype, "f32"))
    if kernel is None:
        return plain(data, scales, rows, scheme, params, k, dtype)
    some = rows if scheme != "tcq" else None  # trellis codes are decoded whole
    if some is not None:
        n = some.shape[0]
        some = some.to(torch.int64).contiguous()
    else:
        n = 16 * scales[0].shape[0] if scheme == "tcq" else data.numel() // kernel[0].bytes * kernel[0].weights // k
    device = cast(_kernels.Device, device_of(index))
    with torch.cuda.device(data.device):
        y = torch.empty((n, k), dtype=dtype if dtype in KINDS else torch.float32, device=data.device)
        launch(device, *kernel, torch.cuda.current_stream().cuda_stream, y, data, scales, some, params)
    y = y.to(dtype)
    return y if rows is None or scheme != "tcq" else y[rows]
