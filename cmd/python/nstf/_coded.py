"""Coded and factored matrices as torch modules, and what transformers' tensors are made of them:
docs/schemes, docs/forms and quantization_config in docs/python.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from . import _codes, _decode

FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PLAIN = FLOATS | {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}
PLAIN |= {"f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2}
# Parts whose numbers are trained, where they are floats; the others stay as they are.
TRAINED = {"scales", "out", "in", "scale", "absmax", "data"}


class Recomputed(torch.autograd.Function):
    """make(x) of a module's parameters. Nothing that is decoded on the way is kept: the backward pass decodes it again."""

    @staticmethod
    def forward(ctx: Any, make: Callable[[Tensor | None], Tensor], x: Tensor | None, *parameters: Tensor) -> Tensor:
        ctx.make, ctx.x, ctx.count = make, x is not None, len(parameters)
        ctx.save_for_backward(*([x] if x is not None else []), *parameters)
        with torch.no_grad():
            return make(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = list(ctx.saved_tensors)
        x = saved.pop(0).detach().requires_grad_(ctx.needs_input_grad[1]) if ctx.x else None
        wanted = [t for t in [x, *saved] if t is not None and t.requires_grad]
        with torch.enable_grad():
            y = ctx.make(x)
            found = dict(zip(map(id, wanted), torch.autograd.grad(y, wanted, grads[0], allow_unused=True)))
        return (None, found.get(id(x)), *(found.get(id(p)) for p in saved))


def recomputed(make: Callable[[Tensor | None], Tensor], x: Tensor | None, modules: list[nn.Module]) -> Tensor:
    parameters = [p for m in modules for p in m.parameters()]
    if not torch.is_grad_enabled() or not any(p.requires_grad for p in [*parameters, *([] if x is None else [x])]):
        return make(x)
    return cast(Tensor, Recomputed.apply(make, x, *parameters))


def exact(of: nn.Module) -> torch.autocast:
    """Without autocast, which takes products in 16 bits: rotations and factors are products of matrices, and the
    backward pass decodes outside of it."""
    return torch.autocast(next(of.buffers()).device.type, enabled=False)


class Matrix(nn.Module):
    """A matrix, or a stack, in one scheme. Its parts are buffers of bytes until open() takes the scales out of them."""

    def __init__(self, entry: dict[str, Any]) -> None:
        super().__init__()
        self.scheme: str = entry["scheme"]
        self.shape: tuple[int, ...] = tuple(entry["shape"])
        self.params: dict[str, int] = entry.get("params") or {}
        self.k = self.shape[-1] if self.shape else 1
        self.parts = {p["name"]: (p["dtype"], tuple(p["shape"])) for p in entry["parts"]}
        for p in entry["parts"]:
            self.register_buffer(p["name"], torch.empty(p["size"], dtype=torch.uint8))
        if self.scheme not in _codes.BLOCKS and self.scheme not in PLAIN and self.scheme not in DECODERS and self.scheme != "tcq":
            raise NotImplementedError(f"{entry['name']}: scheme {self.scheme} is not decoded in torch")

    def raw(self, part: str) -> Tensor:
        return cast(Tensor, getattr(self, part))

    def stored(self, part: str) -> Tensor:
        """A part as its element type, in its shape."""
        dtype, shape = self.parts[part]
        raw = self.raw(part)
        if dtype == "u16":
            return (raw.view(torch.int16).int() & 0xFFFF).view(shape)
        return raw.view(PLAIN[dtype]).view(shape)

    def open(self) -> None:
        """Makes parameters, which ask for no gradients yet, of the scales among the bytes."""
        scales: dict[str, Tensor] = {}
        if block := _codes.BLOCKS.get(self.scheme):
            b = self.blocks()
            for name, at in zip("dm", block.scales):
                scales[name] = _codes.half(b, at)
            if self.scheme == "iq1_m":
                scales["d"] = _codes.spread(b[:, 48:])[1]
        for part, (dtype, _) in self.parts.items():
            if part in TRAINED and dtype in FLOATS:
                scales[part] = self.stored(part).float()
        for name, numbers in scales.items():
            self.register_parameter("of_" + name, nn.Parameter(numbers.clone(), requires_grad=False))

    def of(self, name: str) -> Tensor:
        """The scales of a part, or d and m of blocks."""
        return cast(Tensor, getattr(self, "of_" + name))

    def blocks(self) -> Tensor:
        return self.raw("data").view(-1, _codes.BLOCKS[self.scheme].bytes)

    def bytes(self) -> dict[str, Tensor]:
        """The parts, with the scales as they are now, rounded to their type."""
        out = {part: self.raw(part) for part in self.parts}
        own = dict(self.named_parameters(recurse=False))
        if block := _codes.BLOCKS.get(self.scheme):
            b = self.blocks().clone()
            for name, at in zip("dm", block.scales):
                if "of_" + name in own:
                    b[:, at : at + 2] = self.of(name).detach().to(torch.float16).view(torch.uint8)
            if self.scheme == "iq1_m" and own:
                bits = self.of("d").detach().to(torch.float16).view(torch.uint8).int()
                bits = bits[:, 0] | bits[:, 1] << 8
                for i in range(4):
                    b[:, 49 + 2 * i] = (b[:, 49 + 2 * i] & 15) | ((bits >> 4 * i & 15) << 4).to(torch.uint8)
            out["data"] = b.view(-1)
        for part, (dtype, _) in self.parts.items():
            if part in TRAINED and dtype in FLOATS and "of_" + part in own:
                out[part] = self.of(part).detach().to(FLOATS[dtype]).contiguous().view(-1).view(torch.uint8)
        return out

    def factors(self) -> list[Tensor]:
        """What nstf::decode takes beside the first part."""
        if self.scheme == "tcq":
            none = self.of("scales").new_empty(0)
            return [self.of("scales").view(-1), *(self.of(s).view(-1) if s in self.parts else none for s in ("in", "out"))]
        return [self.of(n) for n in "dm" if hasattr(self, "of_" + n)]

    def decoded(self, rows: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Blocks and trellis codes as numbers; by torch's operations where scales want gradients or are float64."""
        scales, params = self.factors(), [self.params.get(p, 0) for p in _decode.TCQ] if self.scheme == "tcq" else []
        data = self.raw("codes" if self.scheme == "tcq" else "data")
        if any(s.dtype == torch.float64 or torch.is_grad_enabled() and s.requires_grad for s in scales):
            with exact(self):
                return _decode.numbers(data, scales, rows, self.scheme, params, self.k)
        return cast(Tensor, _decode.decode(data, scales, rows, self.scheme, params, self.k, dtype))

    def weight(self, rows: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """The numbers of all rows or of some, in a type; None: in float32, or as scales are."""
        w = self.numbers(rows, dtype)
        return w if dtype is None else w.to(dtype)

    def numbers(self, rows: Tensor | None, dtype: torch.dtype | None) -> Tensor:
        """weight(), perhaps in another type."""
        if self.scheme in _codes.BLOCKS or self.scheme == "tcq":
            shared = self.params.get("rows") if self.scheme == "nvfp4" else None
            w = self.decoded(rows, torch.float32 if shared else dtype or torch.float32)
            if shared:
                n = torch.arange(w.shape[0], device=w.device) if rows is None else rows
                w = w * self.of("scale").view(-1)[n // shared][:, None]
            return w if rows is not None else w.view(self.shape)
        if self.scheme in PLAIN:
            values = self.of("data") if hasattr(self, "of_data") else self.stored("data").float()
            return values if rows is None else values.reshape(-1, self.k)[rows]
        with exact(self):
            w = DECODERS[self.scheme](self)
        return w.view(self.shape) if rows is None else w.view(-1, self.k)[rows]

    def linear(self, x: Tensor) -> Tensor:
        """x times the matrix turned. Of trellis codes the processor rotates the activations, once for all rows."""
        if self.scheme != "tcq" or len(self.shape) != 2 or self.raw("codes").is_cuda:
            return functional.linear(x, self.weight(dtype=x.dtype))
        p = self.params
        units, into, out = self.factors()
        x = _codes.hadamard(x * _codes.side(self.k, p["rotate_in"], p["seed"], 0, into).to(x.dtype), p["rotate_in"])
        y = functional.linear(x, _codes.trellis(self.stored("codes"), p["bits"], p["codebook"]).to(x.dtype))
        y = y * (units * 2**-7).repeat_interleave(16).to(x.dtype)
        return _codes.hadamard(y, p["rotate_out"]) * _codes.side(self.rows(), p["rotate_out"], p["seed"], 2, out).to(x.dtype)

    def rows(self) -> int:
        return int(np.prod(self.shape[:-1], dtype=np.int64))


def affine(m: Matrix) -> Tensor:
    bits, group, share = m.params["bits"], m.params["group"], m.params.get("index", 0)
    codes = m.stored("codes")
    n, k = codes.shape[0], m.k
    stream = ((codes[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=codes.device)) & 1).flatten(1)
    powers = 2.0 ** torch.arange(bits, device=codes.device)
    q = (stream[:, : k * bits].view(n, k, bits).float() * powers).sum(-1)
    of = (torch.arange(k, device=codes.device) // group).expand(n, k)
    if share:
        of = m.stored("index").long()[torch.arange(n, device=codes.device) // share]
    zero: float | Tensor = 2.0 ** (bits - 1)
    if m.params.get("zero", 0):
        zero = m.stored("zeros").float().gather(1, of)
    return m.of("scales").gather(1, of) * (q - zero)


def fp8(m: Matrix) -> Tensor:
    n, k = m.rows(), m.k
    s = m.of("scales").repeat_interleave(m.params["rows"], 0)[:n].repeat_interleave(m.params["cols"], 1)[:, :k]
    return m.stored("codes").float() * s


def nf4(m: Matrix) -> Tensor:
    b, nested = m.stored("codes"), m.params.get("nested", 0)
    count = m.rows() * m.k
    q = torch.stack([b >> 4, b & 15], 1).view(-1)[:count].int()
    if nested:
        big = m.stored("nested_absmax").repeat_interleave(nested)[: m.parts["absmax"][1][0]]
        largest = m.stored("nested_levels")[m.stored("absmax").int()] * big + m.stored("offset")
    else:
        largest = m.of("absmax")
    return m.stored("levels")[q] * largest.repeat_interleave(m.params["block"])[:count]


DECODERS: dict[str, Callable[[Matrix], Tensor]] = {"affine": affine, "fp8": fp8, "nf4": nf4}


class Coded(nn.Module):
    """A tensor of a package's graph: a matrix, a stack of them, or what factors make."""

    def __init__(self, entry: dict[str, Any]) -> None:
        super().__init__()
        self.tensor: str = entry["name"]
        self.form: str = entry.get("form") or "dense"
        self.shape: tuple[int, ...] = tuple(entry["shape"])
        self.params: dict[str, int] = entry.get("params") or {}
        if self.form not in ("dense", "lowrank", "corrected", "shared", "train"):
            raise NotImplementedError(f"{self.tensor}: form {self.form} is not known")
        for f in entry.get("factors") or [{**entry, "name": "w"}]:
            self.add_module(f["name"], Matrix(f))

    def factor(self, name: str) -> Matrix:
        return cast(Matrix, self.get_submodule(name))

    def open(self) -> None:
        for m in self.children():
            cast(Matrix, m).open()

    def weight(self, rows: Tensor | None = None) -> Tensor:
        """The numbers in float32; of a matrix, of some rows alone."""
        with exact(self):
            return self.made(rows)

    def made(self, rows: Tensor | None) -> Tensor:
        """What the form makes of its factors."""
        if self.form == "dense":
            return self.factor("w").weight(rows)
        if self.form in ("lowrank", "corrected"):
            w = self.factor("a").weight(rows) @ self.factor("b").weight()
            return w if self.form == "lowrank" else self.factor("q").weight(rows) + w
        if self.form == "shared":
            w = cast(Tensor, torch.tensordot(self.factor("c").weight(), self.factor("u").weight(), 1))
            return w + self.factor("q").weight() if "q" in self._modules else w
        return self.train_of(rows)

    def train_of(self, rows: Tensor | None) -> Tensor:
        """The rows of a tensor train: all digits of its rows in turn."""
        cores = [self.factor(f"g{i + 1}") for i in range(len(self._modules))]
        v = torch.arange(self.shape[0], device=cores[0].raw("data").device if "data" in cores[0].parts else None) if rows is None else rows
        digits = []
        for c in reversed(cores):
            digits.append(v % c.shape[0])
            v = v // c.shape[0]
        t = torch.ones(len(v), 1, 1, device=v.device)
        rank = 1
        for i, (c, digit) in enumerate(zip(cores, reversed(digits)), 1):
            cols, after = self.params[f"cols{i}"], self.params.get(f"rank{i}", 1)
            g = c.weight()[digit].view(len(digit), rank, cols, after)
            t, rank = torch.einsum("vjr,vrds->vjds", t, g).flatten(1, 2), after
        return t[..., 0]

    def linear(self, x: Tensor) -> Tensor:
        """x times the matrix turned, without making it where factors are thinner."""
        if self.form == "dense":
            return self.factor("w").linear(x)
        if self.form in ("lowrank", "corrected"):
            y = self.factor("a").linear(self.factor("b").linear(x))
            return y if self.form == "lowrank" else self.factor("q").linear(x) + y
        return functional.linear(x, self.weight().to(x.dtype))


def decoded(entry: dict[str, Any], parts: dict[str, Any], device: torch.device, dtype: torch.dtype | None) -> Tensor:
    """The numbers of a tensor of a package, whose header has that entry, decoded on a device; dtype None: in float32."""
    if entry.get("factors"):  # whose parts stand together, each under its factor's name
        of = {f["name"]: [{**p, "name": p["name"][len(f["name"]) + 1 :]} for p in entry["parts"] if p["name"].startswith(f["name"] + ".")] for f in entry["factors"]}
        entry = {**entry, "factors": [{**f, "parts": of[f["name"]]} for f in entry["factors"]]}
    with torch.no_grad(), torch.device(device):
        c = Coded(entry)
        for name, m in c.named_children():
            for part in cast(Matrix, m).parts:
                raw = parts[part if c.form == "dense" else f"{name}.{part}"]
                cast(Matrix, m).raw(part).copy_(torch.from_numpy(raw.copy()))
        c.open()
        if c.form != "dense":
            return c.weight().to(dtype or torch.float32)
        with exact(c):
            return c.factor("w").weight(dtype=dtype)


def picked(runs: list[list[int]], device: torch.device) -> Tensor:
    return torch.cat([torch.arange(first, first + count, device=device) for first, count in runs])


class Weight:
    """What tensors of a checkpoint of transformers' are made of: one, or one for each expert."""

    def __init__(self, entry: dict[str, Any], coded: list[Coded]) -> None:
        self.entry, self.names = entry, list[str](entry["names"])
        self.of = [coded[i] for i in entry["of"]]
        rearranged = any(entry.get(key) for key in ("alternating", "latent", "columns", "transposed", "shape"))
        self.plain = not rearranged and len(self.names) == 1 and all(len(c.shape) == 2 for c in self.of)

    def tensors(self) -> list[Tensor]:
        e = self.entry
        parts = [c.weight() for c in self.of]
        first = parts[0]
        if e.get("latent"):
            t = torch.cat([first.transpose(1, 2), parts[1]], 1).flatten(0, 1)
        elif e.get("alternating"):
            t = torch.stack(parts, -2).flatten(-3, -2)
        else:
            t = first
            if len(parts) > 1:
                t = torch.cat([p.reshape(-1, p.shape[-1]) for p in parts])
            if rows := e.get("rows"):
                t = t.reshape(-1, t.shape[-1])[picked(rows, t.device)]
            if columns := e.get("columns"):
                t = t[..., picked(columns, t.device)]
            if first.dim() == 3 and t.dim() == 2:
                t = t.view(first.shape[0], -1, t.shape[-1])
        if e.get("transposed"):
            t = t.transpose(-1, -2)
        if e.get("shape"):
            t = t.reshape(e["shape"])
        return [t] if len(self.names) == 1 else list(t.unbind(0))

    def linear(self, x: Tensor) -> Tensor:
        """x times a plain one turned."""
        y = torch.cat([c.linear(x) for c in self.of], -1) if len(self.of) > 1 else self.of[0].linear(x)
        rows = self.entry.get("rows")
        return y[..., picked(rows, y.device)] if rows else y
