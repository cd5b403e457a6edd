"""NSTF packages from Python: tensors as NumPy and torch arrays, and the program's work.

>>> import nstf
>>> with nstf.open("model.nstf") as p:
...     p.graph["vocab"], p["embed.weight"].numpy().shape

``nstf.quantize``, ``nstf.convert``, ``nstf.evaluate``, ``nstf.generate`` and ``nstf.serve`` run the
program of the same name that this wheel brings. The format is specified in docs/nstf.md.
"""

from ._package import Package, Tensor, open
from ._program import Error, Server, convert, evaluate, generate, inspect, program, quantize, serve, version

__all__ = [
    "Error",
    "Package",
    "Server",
    "Tensor",
    "convert",
    "evaluate",
    "generate",
    "inspect",
    "open",
    "program",
    "quantize",
    "serve",
    "version",
]
