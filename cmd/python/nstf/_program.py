"""The program, and what it is asked for."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Union

Path = Union[str, "os.PathLike[str]"]
Progress = Callable[[str], None]


class Error(RuntimeError):
    """The program failed. ``code`` is its exit code, as ``nstf --help`` lists them."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def program() -> str:
    """The path of the program: ``NSTF``, else this environment's, else what PATH has."""
    if chosen := os.environ.get("NSTF"):
        return chosen
    name = "nstf.exe" if os.name == "nt" else "nstf"
    folders = [sysconfig.get_path("scripts"), os.path.join(sys.prefix, "bin")]
    if os.name == "posix":
        folders.append(sysconfig.get_path("scripts", "posix_user"))
    for folder in folders:
        found = pathlib.Path(folder) / name
        if found.is_file():
            return str(found)
    if on_path := shutil.which(name):
        return on_path
    raise FileNotFoundError(f"there is no program {name}: the wheel is not installed here; NSTF names one")


def flags(options: dict[str, Any]) -> list[str]:
    """Turns ``max_tokens=5, greedy=True`` into ``--max-tokens=5 --greedy``; None and False are left out."""
    out: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            out.append(flag if one is True else f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return out


def run(args: Sequence[Path], progress: Progress | None = None, text: str | None = None) -> str:
    """Runs the program and returns what it printed. ``progress`` gets its lines on what it does."""
    argv = [program(), *(os.fspath(a) for a in args)]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    assert p.stdin and p.stdout and p.stderr
    last: collections.deque[str] = collections.deque(maxlen=50)
    errors = p.stderr

    def listen() -> None:
        for line in errors:
            last.append(line.rstrip("\n"))
            if progress:
                progress(line.rstrip("\n"))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        try:
            p.stdin.write(text or "")
            p.stdin.close()
        except BrokenPipeError:
            pass  # it says why it ended
        out = p.stdout.read()
        code = p.wait()
    except BaseException:
        p.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        p.wait()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            p.stdin.close()  # what it did not read is still to be written
        p.stdout.close()
        listener.join()
        errors.close()
    if code != 0:
        said = [line for line in last if line.startswith(("error: ", "hint: "))] or list(last)
        raise Error("\n".join(said).removeprefix("error: "), code)
    return out


def version() -> dict[str, Any]:
    """What ``nstf version --json`` says of the program and this machine."""
    out: dict[str, Any] = json.loads(run(["version", "--json"]))
    return out


def inspect(model: Path) -> dict[str, Any]:
    """What ``nstf inspect --json`` says of a model: architecture, shape, tensors."""
    out: dict[str, Any] = json.loads(run(["inspect", model, "--json"]))
    return out


def convert(source: Path, output: Path, *, progress: Progress | None = None, **options: Any) -> None:
    """Turns a checkpoint, a GGUF file or a model of a hub into a package."""
    run(["convert", source, "-o", output, *flags(options)], progress)


def quantize(
    source: Path,
    output: Path,
    *,
    bpw: float | None = None,
    size: str | None = None,
    max_kld: float | None = None,
    scheme: str | None = None,
    calib: Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> None:
    """Makes a model smaller: to bits per weight, a size, a divergence or a scheme. Further options are flags."""
    goal = {"bpw": bpw, "size": size, "max_kld": max_kld, "scheme": scheme, "calib": calib}
    run(["quantize", source, "-o", output, *flags({**goal, **options})], progress)


def evaluate(model: Path, text: Path, *, ref: Path | None = None, progress: Progress | None = None, **options: Any) -> dict[str, Any]:
    """Perplexity of a text, with its standard error; with ``ref`` divergence and agreement too."""
    out: dict[str, Any] = json.loads(run(["eval", model, "--json", *flags({"text": text, "ref": ref, **options})], progress))
    return out


def generate(model: Path, prompt: str, *, progress: Progress | None = None, **options: Any) -> str:
    """Continues a text, and returns what comes behind it."""
    return run(["run", model, "-", *flags(options)], progress, prompt)


class Server:
    """A running ``nstf serve``. ``url`` is where it answers; ``close`` or a with block ends it."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        if self.process.stderr:
            self.process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def serve(*models: Path, progress: Progress | None = None, **options: Any) -> Server:
    """Starts a server of models on a free port of this machine, and returns when it is ready."""
    argv = [program(), "serve", *(os.fspath(m) for m in models), *flags({"listen": "127.0.0.1:0", **options})]
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    assert p.stderr
    said: list[str] = []
    for line in p.stderr:
        said.append(line.rstrip("\n"))
        if progress:
            progress(said[-1])
        if (at := line.find("http://")) >= 0:
            url = line[at:].split()[0].rstrip("/.,:;")
            errors = p.stderr

            def drain() -> None:
                try:
                    for rest in errors:
                        if progress:
                            progress(rest.rstrip("\n"))
                except ValueError:
                    pass  # closed

            threading.Thread(target=drain, daemon=True).start()
            return Server(p, url)
    raise Error("\n".join(said).removeprefix("error: "), p.wait())
