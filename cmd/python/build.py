"""Builds wheels of nstf: the program for one platform each, and the module that drives it.

usage: build.py [-o DIR] [--program FILE] [PLATFORM...]

PLATFORM is linux-amd64, linux-arm64, darwin-arm64 or windows-amd64; none: this machine's.
--program takes a program that was built before.

Needs Go and the standard library alone. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = "0.1.0"

# Go's names of systems, and the tags of their wheels (PyPA, platform compatibility tags). A static
# program needs no library: 2.17 is the oldest glibc that pip knows, and musl takes the same file.
PLATFORMS = {
    "linux-amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux-arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin-arm64": "macosx_11_0_arm64",
    "windows-amd64": "win_amd64",
}

METADATA = f"""Metadata-Version: 2.4
Name: nstf
Version: {VERSION}
Summary: Quantize, measure, run and serve language models, on AMD GPUs and on processors
Requires-Python: >=3.9
Requires-Dist: numpy>=1.24
Provides-Extra: torch
Requires-Dist: torch>=2.6; extra == 'torch'
Requires-Dist: transformers>=5.23; extra == 'torch'
Description-Content-Type: text/markdown

"""


def here() -> str:
    machine = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-{machine}"


def program(target: str, folder: str) -> bytes:
    system, machine = target.split("-")
    out = pathlib.Path(folder) / ("nstf.exe" if system == "windows" else "nstf")
    env = {**os.environ, "CGO_ENABLED": "0", "GOOS": system, "GOARCH": machine}
    subprocess.run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(out), "./cmd/nstf"], cwd=ROOT, env=env, check=True)
    return out.read_bytes()


# Grids of ggml's, 16 bits a point, in the order of GRIDS in nstf/_codes.py.
GRIDS = ["iq1s", "iq2s", "iq2xs", "iq2xxs", "iq3s", "iq3xxs"]


def grids() -> bytes:
    out = b""
    for name in GRIDS:
        listed = (ROOT / "formats" / "scheme" / f"{name}_tables.go").read_text().split("uint16{")[1]
        out += b"".join(int(x, 16).to_bytes(2, "little") for x in re.findall("0x[0-9a-f]{4}", listed))
    return out


def wheel(target: str, out: pathlib.Path, built: pathlib.Path | None) -> pathlib.Path:
    tag = f"py3-none-{PLATFORMS[target]}"
    name = "nstf.exe" if target.startswith("windows") else "nstf"
    info, data = f"nstf-{VERSION}.dist-info", f"nstf-{VERSION}.data"
    files: dict[str, bytes] = {}
    for f in sorted((HERE / "nstf").iterdir()):
        if f.suffix == ".py" or f.name == "py.typed":
            files[f"nstf/{f.name}"] = f.read_bytes()
    files["nstf/grids.bin"] = grids()
    with tempfile.TemporaryDirectory() as folder:
        files[f"{data}/scripts/{name}"] = built.read_bytes() if built else program(target, folder)
    files[f"{info}/METADATA"] = (METADATA + (ROOT / "docs" / "python.md").read_text()).encode()
    tags = "".join(f"Tag: py3-none-{one}\n" for one in PLATFORMS[target].split("."))
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: nstf\nRoot-Is-Purelib: false\n{tags}".encode()
    record = ""
    for inside, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{inside},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"nstf-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for inside, content in files.items():
            entry = zipfile.ZipInfo(inside, (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in inside else 0o100644) << 16
            z.writestr(entry, content)
    return path


def main() -> None:
    p = argparse.ArgumentParser(description="Builds wheels of nstf.")
    p.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("dist"))
    p.add_argument("--program", type=pathlib.Path)
    p.add_argument("platforms", nargs="*", metavar="PLATFORM")
    a = p.parse_args()
    if a.program and len(a.platforms) > 1:
        sys.exit("--program is of one platform")
    for target in a.platforms or [here()]:
        if target not in PLATFORMS:
            sys.exit(f"{target} is none of {', '.join(PLATFORMS)}")
        print(wheel(target, a.output, a.program))


if __name__ == "__main__":
    main()
