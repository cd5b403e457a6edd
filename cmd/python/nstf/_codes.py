"""What codes mean, in torch on any device: docs/schemes. A scheme's scales are taken out of its
bytes as float32 numbers of their own, so that decoding has gradients with respect to them."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from . import _kernels

Array = np.ndarray[Any, np.dtype[Any]]


@functools.cache
def table(name: str, device: torch.device) -> Tensor:
    """A table of numbers on a device: GRIDS, CODEWORDS and the small ones below."""
    return torch.from_numpy(np.ascontiguousarray(TABLES[name]())).to(device)


def grid(name: str, points: int, values: int, bits: int, levels: list[float]) -> Array:
    """Points of a grid of ggml's: the wheel carries them as they stand in formats/scheme, 16 bits each."""
    raw = np.fromfile(pathlib.Path(__file__).with_name("grids.bin"), "<u2")
    at = 0
    for other, count in GRIDS.items():
        if other == name:
            break
        at += count
    codes = raw[at : at + points].astype(np.int64)
    digits = codes[:, None] >> (bits * np.arange(values)) & ((1 << bits) - 1)
    return cast(Array, np.array(levels, np.float32)[digits])


# In the order of build.py: points of each.
GRIDS = {"iq1s": 2048, "iq2s": 1024, "iq2xs": 512, "iq2xxs": 256, "iq3s": 512, "iq3xxs": 256}
TWO, THREE = [8.0, 25.0, 43.0, 0.0], [4.0, 12, 20, 28, 36, 44, 52, 62] + [0.0] * 8


def codewords(book: int) -> Array:
    """All 65536 codewords of tcq, divided by 128."""
    x = np.arange(65536, dtype=np.uint64)
    if book == 2:
        y, count = (x * 0xD59B + 0x469D) & 0xFFFF, 2
    else:
        y, count = (x * (0xCE5C43 if book == 1 else 0x654CB9)) & 0xFFFFFFFF, 4
    signed = [((y >> np.uint64(8 * i)) & np.uint64(255)).astype(np.uint8).view(np.int8).astype(np.float32) for i in range(count)]
    return cast(Array, np.sum(signed, axis=0, dtype=np.float32))


def halves() -> Array:
    """The scales of nvfp4: half of E4M3, where 127 is 0."""
    s = np.arange(256)
    e, m = s >> 3 & 15, s & 7
    out = np.where(e > 0, (8 + m) * 2.0 ** (e - 11.0), m * 2.0**-10)
    out[127] = 0
    return out.astype(np.float32)


TABLES: dict[str, Callable[[], Array]] = {
    "iq1s": lambda: grid("iq1s", 2048, 8, 2, [-1.0, 0, 1, 0]),
    "iq2s": lambda: grid("iq2s", 1024, 8, 2, TWO),
    "iq2xs": lambda: grid("iq2xs", 512, 8, 2, TWO),
    "iq2xxs": lambda: grid("iq2xxs", 256, 8, 2, TWO),
    "iq3s": lambda: grid("iq3s", 512, 4, 4, [2.0 * i + 1 for i in range(8)] + [0.0] * 8),
    "iq3xxs": lambda: grid("iq3xxs", 256, 4, 4, THREE),
    "signs": lambda: np.array([[1.0 - 2 * (s >> j & 1) for j in range(7)] + [1.0 - 2 * (bin(s).count("1") & 1)] for s in range(128)], np.float32),
    "bits": lambda: np.array([[1.0 - 2 * (s >> j & 1) for j in range(8)] for s in range(256)], np.float32),
    "iq4": lambda: np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32),
    "fp4": lambda: np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32),
    "e8m0": lambda: np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32),
    "halves": halves,
    "book1": lambda: codewords(1),
    "book2": lambda: codewords(2),
    "book3": lambda: codewords(3),
}


def shifts(b: Tensor, *by: int) -> Tensor:
    return torch.tensor(by, dtype=torch.uint8, device=b.device)


def nibbles(b: Tensor) -> Tensor:
    """Low nibbles, then high ones."""
    return torch.cat([b & 15, b >> 4], -1)


def pairs(b: Tensor) -> Tensor:
    """The low nibble of each byte, then its high one."""
    return ((b[..., None] >> shifts(b, 0, 4)) & 15).flatten(-2)


def quarters(b: Tensor) -> Tensor:
    """Halves of 128 weights in 32 bytes: weight 32*s+j has bits 2*s and 2*s+1 of byte j."""
    return cast(Tensor, ((b.unflatten(1, (-1, 1, 32)) >> shifts(b, 0, 2, 4, 6)[:, None]) & 3).flatten(1))


def half(b: Tensor, at: int) -> Tensor:
    """Two bytes of each block as a binary16 number in float32."""
    return b[:, at : at + 2].contiguous().view(torch.float16).float()


def word(b: Tensor, at: int, size: int) -> Tensor:
    """Little-endian numbers of size bytes, one a block."""
    return sum((b[:, at + i].int() << (8 * i) for i in range(size)), start=torch.zeros_like(b[:, 0], dtype=torch.int32))


def sixes(p: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minimums of q4_k and q5_k."""
    a, b, c = p[:, :4], p[:, 4:8], p[:, 8:]
    return torch.cat([a & 63, (c & 15) | (a >> 6 << 4)], 1), torch.cat([b & 63, (c >> 4) | (b >> 6 << 4)], 1)


def grouped(scale: Tensor, values: Tensor) -> Tensor:
    """Scales [n][g] times values [n][K], g groups of a block."""
    return cast(Tensor, (scale[:, :, None] * values.unflatten(1, (scale.shape[1], -1))).flatten(1))


class Block(NamedTuple):
    """Blocks of ggml's: weights, bytes, where scales lie as binary16, and the decoder."""

    weights: int
    bytes: int
    scales: tuple[int, ...]
    decode: Callable[..., Tensor]


BLOCKS: dict[str, Block] = {}


def block(weights: int, size: int, *scales: int) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Has a function decode the scheme of its name."""
    return lambda decode: BLOCKS.setdefault(decode.__name__, Block(weights, size, scales, decode)).decode


@block(256, 144, 0, 2)
def q4_k(b: Tensor, d: Tensor, m: Tensor) -> Tensor:
    q = ((b[:, 16:].unflatten(1, (4, 1, 32)) >> shifts(b, 0, 4)[:, None]) & 15).flatten(1)
    sc, mn = sixes(b[:, 4:16])
    return cast(Tensor, (grouped(d * sc, q).unflatten(1, (8, 32)) - (m * mn)[:, :, None]).flatten(1))


@block(256, 176, 0, 2)
def q5_k(b: Tensor, d: Tensor, m: Tensor) -> Tensor:
    q = ((b[:, 48:].unflatten(1, (4, 1, 32)) >> shifts(b, 0, 4)[:, None]) & 15).flatten(1)
    high = ((b[:, None, 16:48] >> shifts(b, *range(8))[:, None]) & 1).flatten(1)
    sc, mn = sixes(b[:, 4:16])
    return cast(Tensor, (grouped(d * sc, q | high << 4).unflatten(1, (8, 32)) - (m * mn)[:, :, None]).flatten(1))


@block(256, 84, 80, 82)
def q2_k(b: Tensor, d: Tensor, m: Tensor) -> Tensor:
    w = grouped(d * (b[:, :16] & 15), quarters(b[:, 16:80]))
    return cast(Tensor, (w.unflatten(1, (16, 16)) - (m * (b[:, :16] >> 4))[:, :, None]).flatten(1))


@block(256, 110, 108)
def q3_k(b: Tensor, d: Tensor) -> Tensor:
    by = shifts(b, *range(8)).view(2, 4, 1)
    high = ((b[:, None, None, :32] >> by) & 1).flatten(1)
    p = b[:, 96:108]
    sc = nibbles(p[:, :8]) | (((p[:, None, 8:] >> shifts(b, 0, 2, 4, 6)[:, None]) & 3) << 4).flatten(1)
    return grouped(d * (sc.float() - 32), (quarters(b[:, 32:96]) | high << 2).float() - 4)


@block(256, 210, 208)
def q6_k(b: Tensor, d: Tensor) -> Tensor:
    low = ((b[:, :128].unflatten(1, (2, 1, 64)) >> shifts(b, 0, 4)[:, None]) & 15).flatten(1)
    sc = b[:, 192:208].contiguous().view(torch.int8).float()
    return grouped(d * sc, (low | quarters(b[:, 128:192]) << 4).float() - 32)


@block(32, 18, 0)
def q4_0(b: Tensor, d: Tensor) -> Tensor:
    return d * (nibbles(b[:, 2:]).float() - 8)


@block(32, 20, 0, 2)
def q4_1(b: Tensor, d: Tensor, m: Tensor) -> Tensor:
    return d * nibbles(b[:, 4:]).float() + m


def fives(b: Tensor, at: int) -> Tensor:
    high = ((b[:, at : at + 4, None] >> shifts(b, *range(8))) & 1).flatten(1)
    return (nibbles(b[:, at + 4 :]) | high << 4).float()


@block(32, 22, 0)
def q5_0(b: Tensor, d: Tensor) -> Tensor:
    return d * (fives(b, 2) - 16)


@block(32, 24, 0, 2)
def q5_1(b: Tensor, d: Tensor, m: Tensor) -> Tensor:
    return d * fives(b, 4) + m


@block(32, 34, 0)
def q8_0(b: Tensor, d: Tensor) -> Tensor:
    return d * b[:, 2:].contiguous().view(torch.int8).float()


@block(32, 18, 0)
def iq4_nl(b: Tensor, d: Tensor) -> Tensor:
    return d * table("iq4", b.device)[nibbles(b[:, 2:]).int()]


@block(256, 136, 0)
def iq4_xs(b: Tensor, d: Tensor) -> Tensor:
    high = ((b[:, 2:4, None] >> shifts(b, 0, 2, 4, 6)) & 3).flatten(1)
    sc = (pairs(b[:, 4:8]) | high << 4).float() - 32
    return grouped(d * sc, table("iq4", b.device)[nibbles(b[:, 8:].unflatten(1, (8, 16))).int()].flatten(1))


@block(32, 17)
def mxfp4(b: Tensor) -> Tensor:
    return table("e8m0", b.device)[b[:, :1].int()] * table("fp4", b.device)[nibbles(b[:, 1:]).int()]


@block(64, 36)
def nvfp4(b: Tensor) -> Tensor:
    return grouped(table("halves", b.device)[b[:, :4].int()], table("fp4", b.device)[nibbles(b[:, 4:].unflatten(1, (4, 8))).int()].flatten(1))


@block(128, 18, 0)
def q1_0(b: Tensor, d: Tensor) -> Tensor:
    return d * -table("bits", b.device)[b[:, 2:].int()].flatten(1)


@block(64, 18, 0)
def q2_0(b: Tensor, d: Tensor) -> Tensor:
    return d * (((b[:, 2:, None] >> shifts(b, 0, 2, 4, 6)) & 3).flatten(1).float() - 1)


@block(256, 54, 52)
def tq1_0(b: Tensor, d: Tensor) -> Tensor:
    powers = torch.tensor([1, 3, 9, 27, 81], dtype=torch.int32, device=b.device)[:, None]

    def digits(c: Tensor, count: int) -> Tensor:
        return ((c[:, None].int() * powers[:count]) & 255) * 3 >> 8

    last = digits(b[:, 48:52], 4)  # digit m of byte j is weight 240+4m+j
    q = torch.cat([digits(b[:, :32], 5).flatten(1), digits(b[:, 32:48], 5).flatten(1), last.flatten(1)], 1)
    return d * (q.float() - 1)


@block(256, 66, 64)
def tq2_0(b: Tensor, d: Tensor) -> Tensor:
    return d * (quarters(b[:, :64]).float() - 1)


def points(name: str, index: Tensor) -> Tensor:
    return table(name, index.device)[index.int()]


def odd_signs(b: Tensor, at: int, stride: int, groups: int) -> tuple[Tensor, Tensor]:
    """Words of four times 7 signs and a scale: the signs [n][groups][32] and the scales."""
    w = torch.stack([word(b, at + stride * g, 4) for g in range(groups)], 1)
    s = (w[:, :, None] >> torch.tensor([0, 7, 14, 21], dtype=torch.int32, device=b.device)) & 127
    return points("signs", s).flatten(2), (w >> 28 & 15).float()


@block(256, 66, 0)
def iq2_xxs(b: Tensor, d: Tensor) -> Tensor:
    p = points("iq2xxs", b[:, 2:].unflatten(1, (8, 8))[:, :, :4]).flatten(2)
    signs, s = odd_signs(b, 6, 8, 8)
    return grouped(d * (0.5 + s) * 0.25, (p * signs).flatten(1))


@block(256, 98, 0)
def iq3_xxs(b: Tensor, d: Tensor) -> Tensor:
    p = points("iq3xxs", b[:, 2:66]).flatten(1)
    signs, s = odd_signs(b, 66, 4, 8)
    return grouped(d * (0.5 + s) * 0.5, p * signs.flatten(1))


@block(256, 74, 0)
def iq2_xs(b: Tensor, d: Tensor) -> Tensor:
    w = b[:, 2:66].int().unflatten(1, (32, 2))
    i = w[..., 0] | w[..., 1] << 8
    p = points("iq2xs", i & 511) * points("signs", i >> 9)
    return grouped(d * (0.5 + pairs(b[:, 66:74]).float()) * 0.25, p.flatten(1))


@block(256, 82, 0)
def iq2_s(b: Tensor, d: Tensor) -> Tensor:
    i = b[:, 2:34].int() | ((b[:, 66:74, None] >> shifts(b, 0, 2, 4, 6)) & 3).flatten(1).int() << 8
    p = points("iq2s", i) * points("bits", b[:, 34:66])
    return grouped(d * (0.5 + pairs(b[:, 74:82]).float()) * 0.25, p.flatten(1))


@block(256, 110, 0)
def iq3_s(b: Tensor, d: Tensor) -> Tensor:
    i = b[:, 2:66].int() | ((b[:, 66:74, None] >> shifts(b, *range(8))) & 1).flatten(1).int() << 8
    p = points("iq3s", i).flatten(1) * points("bits", b[:, 74:106]).flatten(1)
    return grouped(d * (1 + 2 * pairs(b[:, 106:110]).float()), p)


@block(256, 50, 0)
def iq1_s(b: Tensor, d: Tensor) -> Tensor:
    w = b[:, 34:].int().unflatten(1, (8, 2))
    w = w[..., 0] | w[..., 1] << 8
    high = (w[:, :, None] >> torch.tensor([0, 3, 6, 9], dtype=torch.int32, device=b.device)) & 7
    p = points("iq1s", b[:, 2:34].int() | high.flatten(1) << 8).flatten(1).unflatten(1, (8, 32))
    shift = 0.125 - 0.25 * (w >> 15 & 1).float()
    return grouped(d * (2 * (w >> 12 & 7).float() + 1), (p + shift[:, :, None]).flatten(1))


@block(256, 56)
def iq1_m(b: Tensor, d: Tensor) -> Tensor:
    n = pairs(b[:, 32:48]).int()
    p = points("iq1s", b[:, :32].int() | (n & 7) << 8) + (0.125 - 0.25 * (n >> 3).float())[:, :, None]
    w = b[:, 48:].int().unflatten(1, (4, 2))
    s = ((w[..., :1] | w[..., 1:] << 8) >> torch.tensor([0, 3, 6, 9], dtype=torch.int32, device=b.device)) & 7
    return grouped(d * (2 * s.flatten(1).float() + 1), p.flatten(1))


def spread(d: Tensor) -> tuple[Tensor, Tensor]:
    """iq1_m keeps its scale in the top nibbles of four words: where, and the number."""
    w = d.int()
    bits = (w[:, 1] >> 4) | (w[:, 3] >> 4) << 4 | (w[:, 5] >> 4) << 8 | (w[:, 7] >> 4) << 12
    return bits, torch.stack([bits & 255, bits >> 8], 1).to(torch.uint8).view(torch.float16).float()


@functools.lru_cache(maxsize=4096)
def signs(seed: int, first: int) -> tuple[float, ...]:
    """128 signs of tcq: of columns from word 0 on, of rows from word 2 on. No tensor, since each matrix has a
    seed of its own: no memory of a GPU is kept for them, and nothing of a mode that has ended."""
    both = _kernels.words(seed)[first] | _kernels.words(seed)[first + 1] << 64
    return tuple(-1.0 if both >> i & 1 else 1.0 for i in range(128))


def side(n: int, h: int, seed: int, first: int, scales: Tensor) -> Tensor:
    """What n columns or rows of tcq are multiplied by: signs of blocks of h, and scales where there are some."""
    s = torch.ones(n, device=scales.device)
    if h > 1:
        s = torch.tensor(signs(seed, first), dtype=torch.float32, device=scales.device)[torch.arange(n, device=scales.device) % h]
    return s * scales if scales.numel() else s


@functools.cache
def sylvester(h: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The Hadamard matrix of 1 and -1, in Sylvester's order, for any autograd mode."""
    with torch.inference_mode(False):
        m = torch.ones(1, 1, dtype=dtype, device=device)
        while m.shape[0] < h:
            m = torch.cat([torch.cat([m, m], 1), torch.cat([m, -m], 1)])
        return m


def hadamard(x: Tensor, h: int) -> Tensor:
    """Blocks of h of the last dimension, transformed: orthonormal, in Sylvester's order."""
    if h == 1:
        return x
    y = x.unflatten(-1, (-1, h)) @ sylvester(h, x.dtype, x.device)
    return cast(Tensor, (y * float(np.float32(1 / np.sqrt(h)))).flatten(-2))


def hadamard_rows(w: Tensor, h: int) -> Tensor:
    """The same of blocks of h rows of a matrix."""
    if h == 1:
        return w
    y = sylvester(h, w.dtype, w.device) @ w.unflatten(0, (-1, h))
    return cast(Tensor, (y * float(np.float32(1 / np.sqrt(h)))).flatten(0, 1))


def trellis(codes: Tensor, bits: int, book: int) -> Tensor:
    """Codewords of tcq, [N][K], of u16 codes [N/16][K/16][16*bits] given as int32."""
    n, k = codes.shape[:2]
    t = torch.arange(256, device=codes.device, dtype=torch.int32) * bits
    words = codes.reshape(n * k, 16 * bits)
    both = words | torch.roll(words, -1, 1) << 16  # the next one above: a window lies in two
    state = both.index_select(1, t // 16) >> t % 16 & 0xFFFF
    w = table(f"book{book}", codes.device).index_select(0, state.flatten())
    return w.view(n, k, 16, 16).permute(0, 3, 1, 2).reshape(16 * n, 16 * k)
