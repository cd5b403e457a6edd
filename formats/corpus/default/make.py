"""Makes default.jsonl.zst from a Go source tree and own.jsonl.

python make.py GOROOT     (needs the program zstd; made with go1.26.8)
"""
import json, re, subprocess, sys
from pathlib import Path

root = Path(sys.argv[1])
PIECE = 8000  # characters of a text


def pieces(text):
    """Cuts at empty lines."""
    out, size = [[]], 0
    for paragraph in re.split(r"\n\s*\n", text):
        if size + len(paragraph) > PIECE and out[-1]:
            out.append([])
            size = 0
        out[-1].append(paragraph)
        size += len(paragraph)
    return ["\n\n".join(p) for p in out if p]


def comments(path):
    """The package comment of a doc.go, as plain text."""
    lines = []
    for line in path.read_text().split("\n"):
        if line.startswith("package "):
            break
        if line.startswith("// Copyright") or line.startswith("// Use of this") or line.startswith("// license that"):
            continue
        lines.append(re.sub(r"^// ?|^/\*|^\*/$", "", line))
    return "\n".join(lines).strip()


def unwrap(text):
    """Joins the lines of a paragraph, as most texts of today have them."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text)


texts = [json.loads(line)["text"] for line in open("own.jsonl", encoding="utf-8")]
book = (root / "src/testdata/Isaac.Newton-Opticks.txt").read_text(encoding="utf-8", errors="replace").replace("\r", "")
chapters = pieces(unwrap(book[book.index("DEFINITIONS") :]))
texts += chapters[:18:2]  # of the first book
texts += chapters[-13:-3]  # the queries at its end
docs = [
    "fmt", "text/template", "encoding/gob", "html/template", "os/signal", "sync/atomic", "log/slog", "go/doc",
    "cmd/cgo", "cmd/compile", "cmd/go/internal/doc", "encoding/json/v2", "runtime/metrics", "net/http", "testing/fstest",
]
for name in docs:
    path = root / "src" / name / "doc.go"
    if path.exists():
        texts += pieces(unwrap(comments(path)))[:3]
code = [
    "sort/sort.go", "strings/builder.go", "bufio/scan.go", "net/http/cookie.go", "container/heap/heap.go", "time/sleep.go",
    "encoding/csv/reader.go", "sync/once.go", "math/big/prime.go", "archive/tar/common.go", "path/filepath/match.go",
]
for name in code:
    texts += pieces((root / "src" / name).read_text())[:2]
data = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
Path("default.jsonl").write_text(data, encoding="utf-8")
subprocess.run(["zstd", "-q", "-f", "--ultra", "-22", "--rm", "default.jsonl", "-o", "default.jsonl.zst"], check=True)
print(len(texts), "texts,", len(data), "bytes,", Path("default.jsonl.zst").stat().st_size, "compressed")
