#!/usr/bin/env python3
"""Measures nstf against llama.cpp and ik_llama.cpp on this machine, and writes the table of docs/perf/cpu.md.

    docs/perf/cpu.py DIR --llamacpp PATH --ik PATH MODEL...

DIR is a folder for models, on a disk with room for two copies of the largest as coded. PATH is a
llama-bench, built with native flags; a peer that is left out has an empty column. MODEL is a shape of
`nstf dev generate` (1.1b, 7b: random codes) or a model's path, which nstf quantizes and exports, so
that all run the very same weights. Decode is tg: GEN tokens from an empty context;
prefill is pp: PROMPT tokens at once. Engines take turns within a round and change their order from
round to round; the table shows medians. Raw figures go to docs/perf/results as they come.

    docs/perf/cpu.py --table RESULTS...       writes the table again from raw figures of one or more runs

What stands in cpu.md from the line "## Remarks" on is kept. Needs go, git and nothing beside python's
own library.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REMARKS = "## Remarks"
ENGINES = {"nstf": "nstf", "llamacpp": "llama.cpp", "ik": "ik_llama.cpp"}


def run(command):
    """Runs a command; returns its standard output, and says what failed."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\nexit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


class Results:
    """Raw figures, one JSON object per line, on the disk as soon as they are known."""

    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "w")

    def add(self, **record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        return record


def first_line(path, start):
    try:
        with open(path) as f:
            return next((line.split(":", 1)[1].strip() for line in f if line.startswith(start)), "")
    except OSError:
        return ""


def machine(nstf, o):
    """What the figures belong to."""
    git = ["git", "-C", HERE]
    return {
        "commit": run([*git, "rev-parse", "--short", "HEAD"]).strip(),
        "changed": bool(run([*git, "status", "--porcelain", "--untracked-files=no"]).strip()),
        "cpu": first_line("/proc/cpuinfo", "model name") or platform.processor(),
        "memory": first_line("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "probe": json.loads(run([*shlex.split(o.prefix), nstf, "bench", "--probe", "--fresh", "--threads", o.threads, "--json"])),
        "threads": o.threads, "prompt": o.prompt, "gen": o.gen, "rounds": o.repeat,
        "notes": o.note, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def prepare(nstf, o, model, scheme):
    """Makes a model's package and GGUF file in DIR where they are not there yet."""
    name = Path(model).resolve().name if os.path.exists(model) else model
    package, gguf = o.dir / f"{name}-{scheme}.nstf", o.dir / f"{name}-{scheme}.gguf"
    print(f"preparing {name} in {scheme}", file=sys.stderr)
    if not os.path.exists(model):
        if not gguf.exists():
            run([nstf, "dev", "generate", "--shape", model, "--blocks", "--scheme", scheme, "-o", gguf])
        if o.direct:
            return name, gguf, gguf
        if not package.exists():
            run([nstf, "convert", gguf, "-o", package])
    if not package.exists():
        run([nstf, "quantize", model, "-o", package, "--scheme", scheme])
    if not gguf.exists():
        run([nstf, "export", package, "-o", gguf])
    forget(gguf)
    return name, package, gguf


def forget(path):
    """Has a file read from the disk again, as after a restart: in the page cache a file that was just
    written may lie in small pages, and memory is read through them at half to three quarters of the rate.
    A package is written so that it lies in large ones."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def bench_nstf(nstf, o, package):
    r = json.loads(run([*shlex.split(o.prefix), nstf, "bench", package, "--prompt", o.prompt, "--gen", o.gen, "--repeat", 1,
                        "--threads", o.threads, "--json", *shlex.split(o.nstf_args)]))
    return {"pp": r["prompt"]["tokens_per_s"]["median"] if o.prompt else None, "tg": r["decode"]["tokens_per_s"]["median"], "result": r}


def bench_peer(binary, o, gguf, extra):
    text = run([*shlex.split(o.prefix), binary, "-m", gguf, "-p", o.prompt, "-n", o.gen, "-t", o.threads, "-r", 1, "-o", "json",
                *shlex.split(extra)])
    rows = json.loads("".join(line for line in text.splitlines(True) if not line.startswith("WARNING")))
    out = {"build": rows[0].get("build_commit", "")}
    for row in rows:
        if row["n_prompt"] == o.prompt and row["n_gen"] == 0:
            out["pp"] = row["avg_ts"]
        elif row["n_prompt"] == 0 and row["n_gen"] == o.gen:
            out["tg"] = row["avg_ts"]
    if not o.prompt:
        out["pp"] = None
    if "pp" not in out or "tg" not in out:
        sys.exit(f"{binary} did not report pp{o.prompt} and tg{o.gen}: {json.dumps(rows)[:2000]}")
    return out


def measure(nstf, o, results, model):
    """All schemes of one model, all engines in turns."""
    for scheme in o.schemes:
        name, package, gguf = prepare(nstf, o, model, scheme)
        engines = {"nstf": lambda: bench_nstf(nstf, o, package)}
        peers = {"llamacpp": (o.llamacpp, o.llamacpp_args), "ik": (o.ik, o.ik_args)}
        for peer, (binary, extra) in peers.items():
            if binary:
                engines[peer] = lambda binary=binary, extra=extra: bench_peer(binary, o, gguf, extra)
        order = list(engines)
        for i in range(o.repeat):
            for engine in order[i % len(order):] + order[:i % len(order)]:
                time.sleep(o.pause)
                load = os.getloadavg()[0]
                began = time.monotonic()
                figures = engines[engine]()
                results.add(kind="run", model=name, scheme=scheme, engine=engine, round=i, load_before=round(load, 2),
                            seconds=round(time.monotonic() - began, 1), bytes=package.stat().st_size, **figures)
                print(f"{name} {scheme} round {i} {engine}: pp {show(figures['pp'], '.1f')}, tg {figures['tg']:.2f} tokens/s"
                      f" (load before: {load:.1f})", file=sys.stderr)
        if not o.keep:
            package.unlink(missing_ok=True)
            gguf.unlink(missing_ok=True)


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def show(v, form):
    return "" if v is None else format(v, form)


def ratio(a, b):
    return "" if a is None or b is None else f"{a / b:.2f}"


def rows_of(records):
    """Medians by model and scheme, in the order of the runs."""
    rows = {}
    for r in records:
        if r["kind"] == "run":
            rows.setdefault((r["model"], r["scheme"]), []).append(r)
    for (model, scheme), runs in rows.items():
        row = {"model": model, "scheme": scheme, "bytes": runs[0]["bytes"], "rounds": max(r["round"] for r in runs) + 1}
        for engine in ENGINES:
            for what in ("pp", "tg"):
                row[engine, what] = median(r[what] for r in runs if r["engine"] == engine)
        ours = [r["result"] for r in runs if r["engine"] == "nstf"]
        decode, prompt = [r["decode"] for r in ours], [r["prompt"] for r in ours if r.get("prompt")]
        row["gbs"] = median(d["gbs"]["median"] for d in decode)
        row["memory"] = median(d["memory_gbs"]["median"] for d in decode)
        row["in_place"] = median(d.get("in_place_gbs", {}).get("median") for d in decode)
        row["gops"] = median(p["gops"]["median"] for p in prompt)
        row["peak"] = median(p.get("peak_gops", {}).get("median") for p in prompt)
        row["kind"] = prompt[0].get("kind", "") if prompt else ""
        row["first"] = median(r.get("first_token_s", {}).get("median") for r in ours)
        row["rss"] = median(r.get("peak_rss") for r in ours)
        yield row


def spreads(records):
    """Per row and engine: the slowest and the fastest round."""
    found = {}
    for r in records:
        if r["kind"] == "run":
            found.setdefault((r["model"], r["scheme"], r["engine"]), []).append(r)
    for (model, scheme, engine), runs in found.items():
        tg, pp, load = [[r[k] for r in runs if r[k] is not None] for k in ("tg", "pp", "load_before")]
        prompts = f"{min(pp):.1f} to {max(pp):.1f}" if pp else ""
        yield f"| {model} | {scheme} | {ENGINES[engine]} | {len(runs)} | {min(tg):.2f} to {max(tg):.2f} | {prompts} | {max(load):.1f} |"


def share(a, b):
    return "" if not a or not b else f"{100 * a / b:.0f} %"


def table(records):
    machines = [r for r in records if r["kind"] == "machine"]
    m = machines[0]
    p = m["probe"]
    yield "# The CPU path against its peers"
    yield ""
    yield "Written by [cpu.py](cpu.py); raw figures under [results](results/)."
    yield ""
    for r in machines:
        prompts = f"prefill of {r['prompt']} tokens" if r["prompt"] else "no prefill"
        yield (f"- {r['date']}, commit {r['commit']}{' with changes' if r['changed'] else ''}, {r['system']}: decode of {r['gen']} tokens from an"
               f" empty context, {prompts}, {r['rounds']} rounds in turns; memory read at {r['probe']['read_all_gbs']['median']:.1f} GB/s before")
    caches = ", ".join(f"L{c['level']} {c['bytes'] >> 10} KiB" for c in p["machine"]["caches"])
    yield f"- {m['cpu']}, {m['threads']} threads, kernels {p['machine']['level']}, {caches}, memory {m['memory']}"
    peaks = ", ".join(f"{k['kind']} {k['all_gops']['median']:.0f}" for k in p["peaks"])
    yield f"- measured before the first: multiplies {peaks} GFLOP/s"
    builds = sorted({f"{ENGINES[r['engine']]} {r['build']}" for r in records if r["kind"] == "run" and r.get("build")})
    if builds:
        yield f"- peers as they name their builds: {', '.join(builds)}"
    yield from (f"- {note}" for note in m["notes"])
    for c in sorted({r["command"] for r in records if r["kind"] == "command"}):
        yield f"- `{c}`"
    rows = list(rows_of(records))
    yield from decode_table(rows, m)
    yield from prefill_table(rows, m)
    yield from ["", "## Start", "", "From the start of a process to the first byte of its answer, the package in the page cache.", "",
                "| model | scheme | first token s | peak memory GiB |", "|---|---|---:|---:|"]
    for r in rows:
        yield f"| {r['model']} | {r['scheme']} | {show(r['first'], '.3f')} | {show(r['rss'] and r['rss'] / 2**30, '.2f')} |"
    yield from ["", "## Spread", "", "The slowest and the fastest round, and the highest load of the machine before one.", "",
                "| model | scheme | engine | rounds | decode tokens/s | prefill tokens/s | load |", "|---|---|---|---:|---:|---:|---:|"]
    yield from spreads(records)


def decode_table(rows, m):
    yield from ["", "## Decode, tokens per second", "",
                "GB/s counts weights and cache read per token; its share is of reading memory, and of reading these very weights",
                "in place, both in the same runs. Weights that fit a cache exceed the memory.", "",
                "| model | scheme | GB | nstf | llama.cpp | ik_llama.cpp | times llama.cpp | times ik | GB/s | of memory | of in place |",
                "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for r in rows:
        ours, llama, ik = (r[e, "tg"] for e in ENGINES)
        yield (f"| {r['model']} | {r['scheme']} | {r['bytes'] / 1e9:.2f} | {show(ours, '.2f')} | {show(llama, '.2f')} | {show(ik, '.2f')} "
               f"| {ratio(ours, llama)} | {ratio(ours, ik)} | {show(r['gbs'], '.1f')} | {share(r['gbs'], r['memory'])} | {share(r['gbs'], r['in_place'])} |")


def prefill_table(rows, m):
    yield from ["", f"## Prefill of {m['prompt']} tokens, tokens per second", "",
                "GFLOP/s counts multiplications and additions of matrices and attention; its share is of the machine's peak of that kind.", "",
                "| model | scheme | nstf | llama.cpp | ik_llama.cpp | times llama.cpp | times ik | GFLOP/s | peak |",
                "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for r in rows:
        ours, llama, ik = (r[e, "pp"] for e in ENGINES)
        peak = share(r["gops"], r["peak"])
        yield (f"| {r['model']} | {r['scheme']} | {show(ours, '.1f')} | {show(llama, '.1f')} | {show(ik, '.1f')} "
               f"| {ratio(ours, llama)} | {ratio(ours, ik)} | {show(r['gops'], '.0f')} | {peak and peak + ' of ' + r['kind']} |")


def write_table(records, page):
    remarks = ""
    if page.exists() and REMARKS in page.read_text():
        text = page.read_text()
        remarks = "\n" + text[text.index(REMARKS):]
    page.write_text("\n".join(table(records)) + "\n" + remarks)
    print(page, file=sys.stderr)


def parse():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("dir", nargs="?", type=Path, help="folder for models")
    a.add_argument("models", nargs="*", help="shapes of nstf dev generate, or paths")
    a.add_argument("--llamacpp", help="llama.cpp's llama-bench")
    a.add_argument("--ik", help="ik_llama.cpp's llama-bench")
    a.add_argument("--llamacpp-args", default="", help="more arguments for it, such as '-fa 1'")
    a.add_argument("--ik-args", default="", help="more arguments for it, such as '-fa 1 -rtr 1'")
    a.add_argument("--nstf", help="a built nstf; default: it is built")
    a.add_argument("--nstf-args", default="", help="more arguments for nstf bench")
    a.add_argument("--prefix", default="", help="a command in front of each measurement, such as 'chrt -r 5'")
    a.add_argument("--pause", type=float, default=0, help="seconds to leave the machine alone before each measurement")
    a.add_argument("--schemes", type=lambda s: s.split(","), default=["q4_k", "q6_k", "q8_0", "q4_0"])
    a.add_argument("--threads", type=int, default=os.cpu_count())
    a.add_argument("--repeat", type=int, default=5, help="rounds")
    a.add_argument("--prompt", type=int, default=512, help="tokens of a prompt; 0: only decode")
    a.add_argument("--gen", type=int, default=128)
    a.add_argument("--note", action="append", default=[], help="a line for the page's head, such as a peer's version")
    a.add_argument("--direct", action="store_true", help="nstf reads the GGUF file of a shape too: half the disk")
    a.add_argument("--keep", action="store_true", help="keep models for another run")
    a.add_argument("--results", type=Path, default=HERE / "results" / "cpu.jsonl")
    a.add_argument("--page", type=Path, default=HERE / "cpu.md")
    a.add_argument("--table", nargs="+", type=Path, metavar="RESULTS", help="only write the table again")
    o = a.parse_args()
    if not o.table and (not o.dir or not o.models):
        a.error("give a folder and at least one model, or --table")
    return o


def main():
    o = parse()
    if o.table:
        write_table([json.loads(line) for path in o.table for line in open(path)], o.page)
        return
    o.dir.mkdir(parents=True, exist_ok=True)
    nstf = o.nstf
    if not nstf:
        nstf = o.dir / "nstf"
        subprocess.run(["go", "build", "-o", nstf.resolve(), "./cmd/nstf"], cwd=HERE.parent.parent, check=True,
                       env={**os.environ, "CGO_ENABLED": "0"})
    nstf = Path(nstf).resolve()
    results = Results(o.results)
    results.add(kind="machine", **machine(nstf, o))
    names = {"llamacpp": "LLAMA_BENCH", "ik": "IK_LLAMA_BENCH"}  # paths of one machine say nothing to others
    shown = ["docs/perf/cpu.py", "DIR", *(Path(m).name for m in o.models), "--threads", str(o.threads), "--repeat", str(o.repeat)]
    for peer, word in names.items():
        if getattr(o, peer):
            shown += [f"--{peer}", word]
    for flag, usual in (("prompt", 512), ("gen", 128)):
        if getattr(o, flag) != usual:
            shown += [f"--{flag}", str(getattr(o, flag))]
    for flag in ("llamacpp_args", "ik_args", "nstf_args", "prefix"):
        if getattr(o, flag):
            shown.append(f"--{flag.replace('_', '-')}={shlex.quote(getattr(o, flag))}")
    results.add(kind="command", command=" ".join(shown))
    for model in o.models:
        measure(nstf, o, results, model)
    results.file.close()
    write_table([json.loads(line) for line in open(o.results)], o.page)


if __name__ == "__main__":
    main()
